"""A log with all but its end in a remote store in a directory (KIP-405), and the same log on disk, read in turns.

Both are read from the beginning as fast as a C client can, and again beside a quiet client. The class of Kafka's store is
that of 4.3.1 in every release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.arms import Arm
from bench.peers import Running
from bench.peers.barnabas import Barnabas
from bench.peers.kafka import Kafka
from bench.procfs import cpu_s, forget_peak_rss, peak_rss_bytes, rss_bytes, settle_disk
from bench.scenarios.base import Metric, Scenario, Target
from bench.scenarios.throughput import GB, LARGE, QUEUE
from bench.tools import loadgen
from compat.hostile.quiet import QuietProcess
from compat.tiered.answers import Side, store_settings, until
from compat.tiered.java import local_jars

SIZE = 1024
COUNT = 1_100_000
QUICK = 4
SEGMENT_BYTES = 64 << 20
LOGGED, TIERED, QUIET = "logged", "tiered", "quiet"
SETTINGS = {LOGGED: {}, TIERED: {"remote.storage.enable": "true", "local.retention.bytes": "1"}, QUIET: {}}
LOCAL_START = -4
"""Timestamp of ListOffsets for the first offset on the broker's disk."""


class TieredRead(Scenario):
    """One consumer reads about 1 GB out of a store in a directory."""

    name = "consume-1k-tiered"
    title = "consume 1 KB out of tiered storage"
    metrics = (
        Metric("rate", "throughput", "MB/s", True, (Target(1.0, "kafka"),)),
        Metric("rate_of_log", "throughput, of reading the log", "x", True, (Target(0.7),)),
        Metric("cpu_per_gb", "broker CPU", "s/GB", targets=(Target(0.6, "kafka"),)),
        Metric("cpu_of_log", "broker CPU, of reading the log", "x", targets=(Target(2.0),)),
        Metric("rss_added", "broker RSS, added", "MB", targets=(Target(64),)),
        Metric("quiet_max", "longest wait of a quiet client beside it", "ms", targets=(Target(50),)),
        Metric("quiet_max_of_log", "the same beside reading the log", "ms"),
    )

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._rss: dict[str, int] = {}
        """Memory of the broker after reading its log, before reading from the store."""

    def serves(self, arm: Arm) -> bool:
        return isinstance(arm.peer, Barnabas | Kafka)

    def prepare(self, arm: Arm) -> None:
        running = self._running(arm)
        side = Side(running.bootstrap)
        count = COUNT // QUICK if arm.quick else COUNT
        for topic, settings in SETTINGS.items():
            side.create(topic, {**settings, "segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"})
            if topic != QUIET:
                loadgen(
                    "produce", running.bootstrap, client={**QUEUE, **LARGE}, topic=topic, size=SIZE, count=count,
                )  # fmt: skip
        most = count - 2 * SEGMENT_BYTES // SIZE
        until(lambda: side.offset(LOCAL_START, topic=TIERED)["Offset"] >= most, "the copy of all segments")
        self._counts[arm.label] = side.offset(LOCAL_START, topic=TIERED)["Offset"]
        side.close()
        self._read(arm, running, LOGGED)
        self._rss[arm.label] = rss_bytes(running.pid)

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        running = self._running(arm)
        order = (LOGGED, TIERED) if round_number % 2 else (TIERED, LOGGED)
        forget_peak_rss(running.pid)
        readings = {topic: self._read(arm, running, topic) for topic in order}
        added = peak_rss_bytes(running.pid) - self._rss[arm.label]
        waits = {topic: self._longest_wait(arm, running, topic) for topic in order}
        (log_rate, log_cpu), (rate, cpu) = readings[LOGGED], readings[TIERED]
        return {
            "rate": rate,
            "rate_of_log": rate / log_rate,
            "cpu_per_gb": cpu,
            "cpu_of_log": cpu / log_cpu,
            "rss_added": added / 1e6,
            "quiet_max": waits[TIERED],
            "quiet_max_of_log": waits[LOGGED],
        }

    def finish(self, arm: Arm) -> None:
        running = self._running(arm)
        for topic in SETTINGS:
            running.delete_topic(topic)
            settle_disk(running.data, topic)

    def _read(self, arm: Arm, running: Running, topic: str) -> tuple[float, float]:
        """Return the rate, MB/s, and the broker's CPU, s/GB."""
        cpu, count = cpu_s(running.pid), self._counts[arm.label]
        result: Mapping[str, Any] = loadgen("consume", running.bootstrap, topic=topic, size=SIZE, count=count)
        return result["bytes_per_s"] / 1e6, (cpu_s(running.pid) - cpu) / (count * SIZE / GB)

    def _longest_wait(self, arm: Arm, running: Running, topic: str) -> float:
        """Return the longest latency, ms, of a quiet client while a topic is read."""
        with QuietProcess(running.bootstrap, QUIET) as quiet:
            quiet.begin()
            self._read(arm, running, topic)
            return float(quiet.end()["latencies_ms"][-1])

    @staticmethod
    def _running(arm: Arm) -> Running:
        """Return the shared broker with a store."""
        settings = store_settings(arm.store())
        if isinstance(arm.peer, Kafka):
            settings["remote.log.storage.manager.class.path"] = local_jars()
            settings["remote.log.metadata.manager.listener.name"] = "PLAINTEXT"
        return arm.with_settings(settings)


SCENARIOS: list[Scenario] = [TieredRead()]

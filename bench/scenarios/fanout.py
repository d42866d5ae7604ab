"""One request over 1 to 2,000 partitions: its CPU, time and memory in the broker."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.arms import Arm
from bench.procfs import cpu_s, rss_bytes
from bench.scenarios.base import Metric, Scenario, Target
from bench.tools import BenchError, loadgen
from bench.wire import Connection, fetch_v11, fetch_v11_results, produce_v7, produce_v7_results, record_batch

VALUE = b"x" * 100
FETCH_BYTES_MAX = 4096  # of each partition
MANY = 100  # from here on the cost per partition counts
FIRST_COUNT = 30  # the first append to a log costs more than any other

_created: set[tuple[int, str]] = set()  # by the broker's process id


def _requests(arm: Arm, partitions: int) -> int:
    """Enough requests for CPU time that is counted in steps of 10 ms."""
    count = max(200, min(20_000, 400_000 // partitions))
    return count // 4 if arm.quick else count


class Fanout(Scenario):
    """Requests over a bare socket, one in flight, each over all partitions of a topic."""

    warmups = 1
    rounds_max = 3

    def __init__(self, api: str, partitions: int) -> None:
        self.api = api
        self.partitions = partitions
        self.topic = f"fanout-{partitions}"
        self.name = f"fanout-{api}-{partitions}"
        self.title = f"{api} over {partitions:,} partitions"
        bound = 1.0 if api == "produce" else 0.5
        targets = (Target(bound, "kafka"),) if partitions >= MANY else ()
        self.metrics = (
            Metric("cpu_us", "broker CPU per request", "us", targets=targets),
            Metric("cpu_us_each", "broker CPU per partition of it", "us"),
            Metric("p50_us", "p50", "us"),
            Metric("rss_mb", "RSS after", "MB"),
        )

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def prepare(self, arm: Arm) -> None:
        """Create one topic for each number of partitions, for all rounds, until the broker ends."""
        if (arm.running.pid, self.topic) not in _created:
            arm.running.create_topic(self.topic, self.partitions)
            _created.add((arm.running.pid, self.topic))
            self._replay(arm, self._produce(), FIRST_COUNT)

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        running = arm.running
        count = _requests(arm, self.partitions)
        before = self._end_offset(arm)
        frame = self._produce() if self.api == "produce" else self._fetch()
        cpu = cpu_s(running.pid)
        result, reply = self._replay(arm, frame, count)
        cpu = cpu_s(running.pid) - cpu
        if self.api == "produce":
            good = produce_v7_results(reply) == [(0, before + count - 1)] * self.partitions
        else:
            sizes = fetch_v11_results(reply)
            good = len(sizes) == self.partitions
            good = good and all(not error and 0 < size <= FETCH_BYTES_MAX for error, size in sizes)
        if not good:
            raise BenchError(f"{arm.label}: {self.title} was not answered in full")
        os.sync()
        return {
            "cpu_us": cpu / count * 1e6,
            "cpu_us_each": cpu / count / self.partitions * 1e6,
            "p50_us": result["p50_us"],
            "rss_mb": rss_bytes(running.pid) / 1e6,
        }

    def _produce(self) -> bytes:
        return produce_v7(
            self.topic, range(self.partitions), record_batch([VALUE], time.time_ns() // 1_000_000)
        )

    def _fetch(self) -> bytes:
        return fetch_v11(self.topic, range(self.partitions), 0, FETCH_BYTES_MAX)

    def _end_offset(self, arm: Arm) -> int:
        with Connection(arm.running.bootstrap) as connection:
            ends = set(connection.end_offsets(self.topic, self.partitions))
        if len(ends) != 1:
            raise BenchError(f"{arm.label}: the partitions of {self.topic} do not end alike: {ends}")
        return ends.pop()[1]

    @staticmethod
    def _replay(arm: Arm, request: bytes, count: int) -> tuple[dict[str, Any], bytes]:
        with TemporaryDirectory() as directory:
            frame, reply = Path(directory, "frame"), Path(directory, "reply")
            frame.write_bytes(request)
            result = loadgen("replay", arm.running.bootstrap, frame=frame, reply=reply, count=count)
            return result, reply.read_bytes()


SCENARIOS: list[Scenario] = [
    Fanout(api, partitions) for partitions in (1, 10, 100, 1_000, 2_000) for api in ("produce", "fetch")
]

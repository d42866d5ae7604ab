"""From exec to the first answer: on an empty directory, and with 2,000 partitions to load."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.arms import Arm
from bench.scenarios.base import Metric, Scenario, Target
from bench.tools import BenchError
from bench.wire import Connection, produce_v7, produce_v7_results, record_batch

PARTITIONS = 2_000
RECORDS = 3  # in each


class Empty(Scenario):
    """Start of an empty broker: ApiVersions is polled with a new connection each millisecond until the first response.

    The time in which Python starts and imports Trio, measured just before, shows the speed of the machine.
    """

    name = "startup"
    title = "exec to first answer, empty"
    metrics = (
        Metric("ready_ms", "ready", "ms", targets=(Target(150, moonshot=80),)),
        Metric("imports", "ready, in times of `import trio`", "x", targets=(Target(1.3),)),
        Metric("cpu_ms", "CPU until then", "ms"),
    )
    rounds_max = 10

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        start = time.monotonic()
        subprocess.run([sys.executable, "-c", "import trio"], check=True)
        import_s = time.monotonic() - start
        with arm.fresh() as running:
            return {
                "ready_ms": running.ready_s * 1e3,
                "imports": running.ready_s / import_s,
                "cpu_ms": running.ready_cpu_s * 1e3,
            }


class Loaded(Scenario):
    """Start after a clean stop, until each partition has a leader that returns its end offset."""

    name = "startup-2000"
    title = f"exec to all leaders, {PARTITIONS:,} partitions"
    metrics = (Metric("ready_ms", "ready", "ms"),)
    rounds_max = 5

    def __init__(self) -> None:
        self._data: dict[str, Path] = {}

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data

    def prepare(self, arm: Arm) -> None:
        data = self._data[arm.label] = arm.new_data()
        with arm.on(data) as running:
            running.create_topic("many", PARTITIONS)
            batch = record_batch([b"x" * 100] * RECORDS, time.time_ns() // 1_000_000)
            with Connection(running.bootstrap) as connection:
                reply = connection.call(produce_v7("many", range(PARTITIONS), batch))
            if produce_v7_results(reply) != [(0, 0)] * PARTITIONS:
                raise BenchError(f"{arm.label} did not take a batch for each of {PARTITIONS} partitions")

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        start = time.monotonic()
        with arm.on(self._data[arm.label]) as running:
            with Connection(running.bootstrap) as connection:
                ends = connection.wait_for_topic("many", PARTITIONS)
            ready_ms = (time.monotonic() - start) * 1e3
        if ends != [RECORDS] * PARTITIONS:
            raise BenchError(f"{arm.label} has lost records over a restart")
        return {"ready_ms": ready_ms}


SCENARIOS: list[Scenario] = [Empty(), Loaded()]

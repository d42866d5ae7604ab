"""One message in flight, acks=1: through librdkafka as users see it, and over a bare socket."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.arms import Arm
from bench.procfs import settle_disk
from bench.scenarios.base import Metric, Scenario, Target
from bench.tools import BenchError, loadgen
from bench.wire import produce_v7, produce_v7_results, record_batch


def _quantiles(p50: float) -> tuple[Metric, ...]:
    """Return metrics of a round trip; `p50` is the target of the median, as a ratio to Apache Kafka's."""
    return (
        Metric("p50_us", "p50", "us", targets=(Target(p50, "kafka"),)),
        Metric("p99_us", "p99", "us", targets=(Target(0.75, "kafka"),)),
        Metric("p999_us", "p99.9", "us", targets=(Target(1.0, "kafka"),)),
    )


WARMUP_COUNT = 2_000  # a JVM needs them


class _OneInFlight(Scenario):
    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        topic = f"{self.name}-{round_number}"
        arm.running.create_topic(topic)
        result = self.run(arm, topic, 3_000 if arm.quick else 20_000)
        arm.running.delete_topic(topic)
        settle_disk(arm.running.data, topic)
        return {metric.key: result[metric.key] for metric in self.metrics}

    def run(self, arm: Arm, topic: str, count: int) -> dict[str, float]:
        raise NotImplementedError


class ClientLatency(_OneInFlight):
    name = "latency"
    title = "one in flight, 100 B, acks=1, librdkafka"
    metrics = _quantiles(0.85)

    def run(self, arm: Arm, topic: str, count: int) -> dict[str, float]:
        return loadgen(
            "latency",
            arm.running.bootstrap,
            client={"acks": 1},
            topic=topic,
            size=100,
            count=count,
            warmup=WARMUP_COUNT,
        )


class SocketLatency(_OneInFlight):
    name = "latency-socket"
    title = "one in flight, 100 B, acks=1, bare socket"
    metrics = _quantiles(0.75)

    def run(self, arm: Arm, topic: str, count: int) -> dict[str, float]:
        batch = record_batch([b"x" * 100], time.time_ns() // 1_000_000)
        with TemporaryDirectory() as directory:
            frame, reply = Path(directory, "frame"), Path(directory, "reply")
            frame.write_bytes(produce_v7(topic, [0], batch))
            result = loadgen(
                "replay", arm.running.bootstrap, frame=frame, reply=reply, count=count, warmup=WARMUP_COUNT
            )
            results = produce_v7_results(reply.read_bytes())
        if results != [(0, count + WARMUP_COUNT - 1)]:
            raise BenchError(
                f"{arm.label}: the last of {count + WARMUP_COUNT} produce requests gave {results}"
            )
        return result


SCENARIOS: list[Scenario] = [ClientLatency(), SocketLatency()]

"""Produce and consume as fast as one C client can, and the cost in the broker.

Each round has a separate topic, which is deleted, with its dirty pages, before the next arm begins.
"""

from __future__ import annotations

from typing import Any

from bench.arms import Arm
from bench.peers import Running
from bench.procfs import back_memory, cpu_s, rss_bytes, settle_disk
from bench.scenarios.base import Metric, Scenario, Target
from bench.tools import loadgen

GB = 1e9
RUN_BYTES, QUICK_BYTES = 1_200_000_000, 400_000_000
# The client's own queue must never limit it.
QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_048_576}
LARGE = {"linger.ms": 50, "batch.size": 1_000_000, "batch.num.messages": 100_000}
JAVA = {"batch.size": 16_384}  # the Java producer's default

RATE = "rate"
CPU_PER_GB = "cpu_per_gb"
RSS = "rss"
AS_KAFKA = (Target(1.0, "kafka"),)
CPU_OF_KAFKA = (Target(1.0, "kafka"),)


def _rate(size: int, *targets: Target) -> Metric:
    if size < 1000:
        return Metric(RATE, "throughput", "k msg/s", True, targets)
    return Metric(RATE, "throughput", "MB/s", True, targets)


def _values(result: dict[str, Any], size: int, broker_cpu_s: float) -> dict[str, float]:
    rate = result["messages_per_s"] / 1e3 if size < 1000 else result["bytes_per_s"] / 1e6
    return {RATE: rate, CPU_PER_GB: broker_cpu_s / (result["messages"] * size / GB)}


class Produce(Scenario):
    """One producer, until a number of bytes is acknowledged."""

    def __init__(
        self, name: str, title: str, size: int, *, partitions: int = 1, spread: int = 0, security: str = "",
        rate: tuple[Target, ...] = AS_KAFKA, cpu: tuple[Target, ...] = CPU_OF_KAFKA, **client: object,
    ) -> None:  # fmt: skip
        """`security` is the protocol of the client's listener, PLAINTEXT if empty.

        `rate` and `cpu` are the targets of throughput and of the broker's CPU.
        """
        self.name = name
        self.title = title
        self.size = size
        self.partitions = partitions
        self.spread = spread
        self.security = security
        self.client = {key.replace("_", "."): value for key, value in client.items()}
        self.metrics = (
            _rate(size, *rate),
            Metric(CPU_PER_GB, "broker CPU", "s/GB", targets=cpu),
            Metric(RSS, "broker RSS", "MB"),
        )

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data or not self.security

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        running, bootstrap, client = _reached(arm, self.security)
        topic = f"{self.name}-{round_number}"
        running.create_topic(topic, self.partitions)
        size_bytes = QUICK_BYTES if arm.quick else RUN_BYTES
        back_memory(int(size_bytes * 1.3))
        cpu = cpu_s(running.pid)
        result = loadgen(
            "produce", bootstrap, client={**QUEUE, **client, **self.client}, topic=topic, size=self.size,
            count=size_bytes // self.size, partitions=self.partitions, spread=self.spread,
        )  # fmt: skip
        values = _values(result, self.size, cpu_s(running.pid) - cpu) | {RSS: rss_bytes(running.pid) / 1e6}
        running.delete_topic(topic)
        settle_disk(running.data, topic)
        return values


class Consume(Scenario):
    """One consumer reads a prepared topic from its beginning, out of the page cache."""

    def __init__(
        self, name: str, title: str, size: int, count: int, *, security: str = "",
        rate: tuple[Target, ...] = AS_KAFKA, **client: object,
    ) -> None:  # fmt: skip
        self.name = name
        self.title = title
        self.size = size
        self.count = count
        self.security = security
        self.client = {key.replace("_", "."): value for key, value in client.items()}
        self.metrics = (
            _rate(size, *rate),
            Metric(CPU_PER_GB, "broker CPU", "s/GB", targets=CPU_OF_KAFKA),
        )

    def serves(self, arm: Arm) -> bool:
        return arm.peer.keeps_data or (arm.peer.serves_consumers and not self.security)

    def _count(self, arm: Arm) -> int:
        return self.count // 4 if arm.quick else self.count

    def prepare(self, arm: Arm) -> None:
        running, _, _ = _reached(arm, self.security)
        running.create_topic(self.name)
        loadgen(
            "produce", running.bootstrap, client={**QUEUE, **LARGE},
            topic=self.name, size=self.size, count=self._count(arm),
        )  # fmt: skip

    def measure(self, arm: Arm, round_number: int) -> dict[str, float]:
        running, bootstrap, client = _reached(arm, self.security)
        cpu = cpu_s(running.pid)
        result = loadgen(
            "consume", bootstrap, client={**client, **self.client},
            topic=self.name, size=self.size, count=self._count(arm),
        )  # fmt: skip
        return _values(result, self.size, cpu_s(running.pid) - cpu)

    def finish(self, arm: Arm) -> None:
        running, _, _ = _reached(arm, self.security)
        running.delete_topic(self.name)
        settle_disk(running.data, self.name)


def _reached(arm: Arm, security: str) -> tuple[Running, str, dict[str, object]]:
    """Return the broker of a protocol, its address, and further options for a client."""
    if not security:
        return arm.running, arm.running.bootstrap, {}
    running = arm.secured(security)
    assert running.peer.secured is not None
    return running, running.secured, running.peer.secured.client


def _times(bound: float) -> tuple[Target, ...]:
    """Return the target: `bound` times Apache Kafka's rate."""
    return (Target(bound, "kafka"),)


def _large(**more: Any) -> dict[str, Any]:
    return {**{key.replace(".", "_"): value for key, value in LARGE.items()}, **more}


# fmt: off
SCENARIOS: list[Scenario] = [
    Produce(
        "produce-100", "produce 100 B, acks=1, client defaults", 100, acks=1,
        rate=(Target(0.97, "mock"),), cpu=(Target(0.35, "kafka"),),
    ),
    Produce("produce-1k", "produce 1 KB, acks=1, client defaults", 1024, acks=1, rate=_times(2)),
    Produce("produce-100-large", "produce 100 B, acks=1, large batches", 100, **_large(acks=1)),
    Produce("produce-1k-large", "produce 1 KB, acks=1, large batches", 1024, **_large(acks=1)),
    Produce("produce-100-varied", "produce 50-150 B, acks=1, client defaults", 100, spread=50, acks=1),
    Produce("produce-100-all", "produce 100 B, acks=all, client defaults", 100, acks="all"),
    Produce("produce-1k-all", "produce 1 KB, acks=all, client defaults", 1024, acks="all"),
    Produce(
        "produce-1k-16k", "produce 1 KB, acks=1, 16 KB batches", 1024, acks=1, batch_size=JAVA["batch.size"],
        rate=_times(1.5),
    ),
    Produce(
        "produce-1k-idempotent", "produce 1 KB, idempotent", 1024, acks="all", enable_idempotence="true",
        rate=_times(1.8),
    ),
    Produce(
        "produce-1k-lz4", "produce 1 KB, acks=1, lz4", 1024, acks=1, compression_codec="lz4",
        rate=_times(1.1), cpu=(Target(0.8, "kafka"),),
    ),
    Produce("produce-1k-16p", "produce 1 KB, acks=1, 16 partitions", 1024, partitions=16, acks=1),
    Consume("consume-100", "consume 100 B", 100, 10_000_000, rate=_times(1.2)),
    Consume("consume-1k", "consume 1 KB", 1024, 2_000_000, rate=_times(1.5)),
    *(
        scenario
        for security in ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
        for scenario in (
            Produce(
                f"produce-1k-{security.lower()}",
                f"produce 1 KB, acks=1, {security}",
                1024,
                acks=1,
                security=security,
            ),
            Consume(
                f"consume-1k-{security.lower()}",
                f"consume 1 KB, {security}",
                1024,
                2_000_000,
                security=security,
            ),
        )
    ),
]
# fmt: on

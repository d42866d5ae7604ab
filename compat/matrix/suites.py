"""Suites: a client's program with cases of its own, which no other client has.

The rule: as in the matrix, a broker of its own, and a case that was asked for has a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

COMPAT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Suite:
    """A program that is called as a client's `run` is; `settings` are what its broker needs besides.

    `zookeeper`: it needs a cluster on ZooKeeper, and gets its address in COMPAT_ZOOKEEPER.
    """

    title: str
    program: Path
    cases: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    zookeeper: bool = False


SUITES = {
    "java-share": Suite(
        "Share groups (KIP-932) with `KafkaShareConsumer` and the admin client of kafka-clients 4.4.0",
        COMPAT / "share" / "run",
        (
            "implicit",
            "explicit",
            "member-dies",
            "lock-ends",
            "renew",
            "delivery-limit",
            "record-limit",
            "read-committed",
            "admin",
            "more-partitions",
            "broker-restart",
            "broker-kill",
        ),
        {"group.share.min.record.lock.duration.ms": "1000"},
    ),
    "java-telemetry": Suite(
        "Client telemetry (KIP-714) with the clients of kafka-clients 4.3.1 and Kafka Streams 4.3.1",
        COMPAT / "telemetry" / "run",
        ("producer", "consumer", "consumer-848", "share-consumer", "admin", "streams", "push"),
        {"telemetry.enable": "true"},
    ),
    "scala-0.8": Suite(
        "The Scala producer, the high-level consumer and the tools of Kafka 0.8.2.2, with three brokers on ZooKeeper",
        COMPAT / "scala" / "run",
        (
            "topics",
            "producer-sync",
            "producer-async",
            "producer-own",
            "group-zookeeper",
            "group-kafka",
            "group-roundrobin",
            "resume-zookeeper",
            "resume-kafka",
            "dual-commit",
            "auto-commit",
            "topic-filter",
            "member-dies",
            "broker-restart",
            "broker-kill",
            "tools",
        ),
        zookeeper=True,
    ),
}

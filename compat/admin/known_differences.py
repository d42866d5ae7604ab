"""Differences between the admin APIs of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.kit.compare import KnownDifference

KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        ".*", r".*/record\.validation", "a setting of Barnabas alone: how far a leader looks at records"
    ),
    KnownDifference(
        ".*",
        r".*/min\.insync\.replicas/ConfigSource",
        "with eligible leader replicas Kafka keeps this as a setting of all brokers; Barnabas has no such replicas",
    ),
    KnownDifference(
        "metadata v1[23]: neither name nor id",
        ".*/ErrorCode",
        "Kafka stumbles; Barnabas answers INVALID_REQUEST, as older versions do",
    ),
    KnownDifference("pages: bad names", ".*/ErrorCode", "Kafka stumbles over names that no topic can have"),
    KnownDifference("log dirs v.*", ".*/LogDir", "its own directory"),
)

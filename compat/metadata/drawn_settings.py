"""Settings that random changes of a cluster draw from. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from compat.metadata.workload import BROKER, CLIENT_METRICS, GROUP, PASSWORD, TOPIC

HOUR_MS = 3_600_000
FAR_MS = 400 * 24 * HOUR_MS
"""Times that no run waits for: records and tokens do not expire meanwhile."""
NUMBERS: Final = MappingProxyType(
    {
        TOPIC: {
            "compression.gzip.level": (1, 9), "compression.lz4.level": (1, 17), "compression.zstd.level": (-100, 22),
            "delete.retention.ms": (0, FAR_MS), "file.delete.delay.ms": (0, 90_000), "flush.messages": (1, 2**62),
            "flush.ms": (0, FAR_MS), "index.interval.bytes": (0, 9000), "max.compaction.lag.ms": (FAR_MS, 2**62),
            "max.message.bytes": (2_000_000, 9_000_000), "message.timestamp.after.max.ms": (FAR_MS, 2**62),
            "message.timestamp.before.max.ms": (FAR_MS, 2**62), "min.compaction.lag.ms": (0, FAR_MS),
            "min.insync.replicas": (1, 1), "retention.bytes": (10**12, 2**62), "retention.ms": (FAR_MS, 2**62),
            "segment.bytes": (2**20, 2**31 - 1), "segment.index.bytes": (4096, 2**24), "segment.jitter.ms": (0, 900),
            "segment.ms": (FAR_MS, 2**62),
        },
        BROKER: {
            "background.threads": (8, 12), "follower.replication.throttled.rate": (10**6, 2**62),
            "leader.replication.throttled.rate": (10**6, 2**62), "log.cleaner.delete.retention.ms": (0, FAR_MS),
            "log.cleaner.threads": (1, 2), "log.flush.interval.messages": (1, 2**62), "log.index.interval.bytes": (0, 9000),
            "log.retention.ms": (FAR_MS, 2**62), "log.segment.bytes": (2**20, 2**31 - 1), "max.connections": (500, 9999),
            "max.connections.per.ip": (500, 9999), "message.max.bytes": (2_000_000, 9_000_000), "num.io.threads": (6, 10),
        },
        GROUP: {
            "consumer.heartbeat.interval.ms": (5000, 15_000), "consumer.session.timeout.ms": (45_000, 60_000),
            "share.heartbeat.interval.ms": (5000, 15_000), "share.record.lock.duration.ms": (15_000, 60_000),
            "share.session.timeout.ms": (45_000, 60_000), "streams.heartbeat.interval.ms": (5000, 15_000),
            "streams.num.standby.replicas": (0, 2), "streams.session.timeout.ms": (45_000, 60_000),
        },
        CLIENT_METRICS: {"interval.ms": (100, HOUR_MS)},
    }
)  # fmt: skip
"""Settings with their lowest and highest value, of which none removes a record or shuts a client out."""
WORDS: Final = MappingProxyType(
    {
        TOPIC: {
            "cleanup.policy": ("compact", "delete", "compact,delete", "delete,compact"),
            "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "follower.replication.throttled.replicas": ("", "*", "0:1", "0:1,1:1"),
            "leader.replication.throttled.replicas": ("", "*", "0:1", "0:1,1:1"),
            "message.timestamp.type": ("CreateTime", "LogAppendTime"), "min.cleanable.dirty.ratio": ("0", "0.25", "1.0"),
            "preallocate": ("false",), "unclean.leader.election.enable": ("true", "false"),
        },
        BROKER: {
            "compression.type": ("producer", "gzip", "zstd"), "log.cleaner.backoff.ms": ("1", "15000"),
            "log.cleaner.io.max.bytes.per.second": ("1000000.0", "1.7976931348623157E308"),
            "log.message.timestamp.type": ("CreateTime", "LogAppendTime"), "my.plugin.api.token": (PASSWORD, "Ünïcode\n=#"),
            "my.plugin.note": ("", "a,b", "Ünïcode"), "unclean.leader.election.enable": ("true", "false"),
        },
        GROUP: {
            "share.auto.offset.reset": ("earliest", "latest", "by_duration:PT1H"),
            "share.isolation.level": ("read_committed", "read_uncommitted"),
        },
        CLIENT_METRICS: {
            "match": ("client_id=web-.*", "client_software_name=apache-kafka-java,client_source_address=10\\..*"),
            "metrics": ("*", "", "org.apache.kafka.producer.", "org.apache.kafka.consumer.,org.apache.kafka.admin."),
        },
    }
)  # fmt: skip
LISTS = ("cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas")

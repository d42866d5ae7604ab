"""The settings of a topic, with Kafka's names and defaults."""

from __future__ import annotations

from typing import Any

from barnabas.config.setting import BOOLEAN, DOUBLE, INT, INT_MAX, LIST, LONG, LONG_MAX, STRING, Setting

_DAY_MS = 86_400_000

ROWS: tuple[Setting[Any], ...] = (
    Setting("cleanup.policy", LIST, ("delete",), "What happens to old segments: deleted, compacted, or both.",
            choices=("compact", "delete"), broker_names=("log.cleanup.policy",)),
    Setting("compression.gzip.level", INT, -1, "Level of gzip when the broker compresses.", low=-1, high=9,
            broker_names=("compression.gzip.level",)),
    Setting("compression.lz4.level", INT, 9, "Level of lz4 when the broker compresses.", low=1, high=17,
            broker_names=("compression.lz4.level",)),
    Setting("compression.type", STRING, "producer", "Codec on disk; `producer` keeps what the producer chose.",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), broker_names=("compression.type",)),
    Setting("compression.zstd.level", INT, 3, "Level of zstd when the broker compresses.", low=-131072, high=22,
            broker_names=("compression.zstd.level",)),
    Setting("delete.retention.ms", LONG, _DAY_MS, "How long a tombstone stays after compaction has met it.", low=0,
            broker_names=("log.cleaner.delete.retention.ms",)),
    Setting("file.delete.delay.ms", LONG, 60_000, "How long a deleted file stays on disk for readers in flight.", low=0,
            broker_names=("log.segment.delete.delay.ms",)),
    Setting("flush.messages", LONG, LONG_MAX, "Records after which the log is forced to disk.", low=1,
            broker_names=("log.flush.interval.messages",)),
    Setting("flush.ms", LONG, LONG_MAX, "Milliseconds after which the log is forced to disk.", low=0,
            broker_names=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
    Setting("follower.replication.throttled.replicas", LIST, (), "Replicas whose followers are throttled.",
            effective=False),
    Setting("index.interval.bytes", INT, 4096, "Bytes of log between two entries of the offset index.", low=0,
            broker_names=("log.index.interval.bytes",)),
    Setting("leader.replication.throttled.replicas", LIST, (), "Replicas whose leaders are throttled.",
            effective=False),
    Setting("local.retention.bytes", LONG, -2, "Bytes kept locally with tiered storage.", low=-2, effective=False,
            broker_names=("log.local.retention.bytes",)),
    Setting("local.retention.ms", LONG, -2, "Milliseconds kept locally with tiered storage.", low=-2, effective=False,
            broker_names=("log.local.retention.ms",)),
    Setting("max.compaction.lag.ms", LONG, LONG_MAX, "Age at which a record must be compacted at last.", low=1,
            broker_names=("log.cleaner.max.compaction.lag.ms",)),
    Setting("max.message.bytes", INT, 1_048_588, "Largest record batch that is accepted.", low=0,
            broker_names=("message.max.bytes",)),
    Setting("message.timestamp.after.max.ms", LONG, 3_600_000, "How far a record's timestamp may be in the future.",
            low=0, broker_names=("log.message.timestamp.after.max.ms",)),
    Setting("message.timestamp.before.max.ms", LONG, LONG_MAX, "How far a record's timestamp may be in the past.",
            low=0, broker_names=("log.message.timestamp.before.max.ms",)),
    Setting("message.timestamp.type", STRING, "CreateTime", "Whether the producer or the broker sets timestamps.",
            choices=("CreateTime", "LogAppendTime"), broker_names=("log.message.timestamp.type",)),
    Setting("min.cleanable.dirty.ratio", DOUBLE, 0.5, "Share of uncompacted bytes from which on a log is compacted.",
            low=0, high=1, broker_names=("log.cleaner.min.cleanable.ratio",)),
    Setting("min.compaction.lag.ms", LONG, 0, "How long a record is safe from compaction.", low=0,
            broker_names=("log.cleaner.min.compaction.lag.ms",)),
    Setting("min.insync.replicas", INT, 1, "Replicas that must be in sync for acks=all.", low=1,
            broker_names=("min.insync.replicas",)),
    Setting("preallocate", BOOLEAN, False, "Whether a new segment's file gets its full size at once.",
            broker_names=("log.preallocate",)),
    Setting("remote.storage.enable", BOOLEAN, False, "Tiered storage; only false is possible.", effective=False),
    Setting("retention.bytes", LONG, -1, "Bytes that a partition may take; -1 for no limit.", low=-1,
            broker_names=("log.retention.bytes",)),
    Setting("retention.ms", LONG, 7 * _DAY_MS, "How long records are kept; -1 for ever.", low=-1,
            broker_names=("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
    Setting("segment.bytes", INT, 1 << 30, "Size at which a new segment begins.", low=14, high=INT_MAX,
            broker_names=("log.segment.bytes",)),
    Setting("segment.index.bytes", INT, 10 << 20, "Largest size of an index file.", low=4,
            broker_names=("log.index.size.max.bytes",)),
    Setting("segment.jitter.ms", LONG, 0, "Largest amount by which the roll of a segment is moved forward.", low=0,
            broker_names=("log.roll.jitter.ms", "log.roll.jitter.hours")),
    Setting("segment.ms", LONG, 7 * _DAY_MS, "Age at which a new segment begins.", low=1,
            broker_names=("log.roll.ms", "log.roll.hours")),
    Setting("unclean.leader.election.enable", BOOLEAN, False, "Whether a replica out of sync may become leader.",
            effective=False, broker_names=("unclean.leader.election.enable",)),
    Setting("record.validation", STRING, "full", "How far a leader looks: every record, or batch headers only.",
            choices=("full", "header"), broker_names=("log.record.validation",)),
)  # fmt: skip

SETTINGS: dict[str, Setting[Any]] = {row.name: row for row in ROWS}

HOUR_MS = 3_600_000
UNIT_MS = {"minutes": 60_000, "hours": HOUR_MS}
"""Broker settings that end in another unit than their topic's: how many milliseconds one of it has."""

"""The settings of a topic, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from typing import Any

from barnabas.config import releases
from barnabas.config.setting import Setting

# Each row is one as in `config/tables`, and the broker settings that give its default, most specific first.
# fmt: off
_ROWS: tuple[tuple[tuple[Any, ...], tuple[str, ...]], ...] = (
    (("cleanup.policy", "list", "delete", "compact|delete", "medium", "cluster", "",
      "What happens to old segments: deleted, compacted, or both."), ("log.cleanup.policy",)),
    (("compression.gzip.level", "int", "-1", "-1, 1..9", "medium", "cluster", "",
      "Level of gzip when the broker compresses."), ("compression.gzip.level",)),
    (("compression.lz4.level", "int", "9", "1..17", "medium", "cluster", "",
      "Level of lz4 when the broker compresses."), ("compression.lz4.level",)),
    (("compression.type", "string", "producer", "uncompressed|zstd|lz4|snappy|gzip|producer", "medium", "cluster", "",
      "Codec on disk; `producer` keeps what the producer chose."), ("compression.type",)),
    (("compression.zstd.level", "int", "3", "-131072..22", "medium", "cluster", "",
      "Level of zstd when the broker compresses."), ("compression.zstd.level",)),
    (("delete.retention.ms", "long", "86400000", "0..", "medium", "cluster", "",
      "How long a tombstone stays after compaction has met it."), ("log.cleaner.delete.retention.ms",)),
    (("errors.deadletterqueue.group.enable", "boolean", "false", "", "medium", "cluster", "",
      "Whether share groups may write what they give up into this topic."), ()),
    (("file.delete.delay.ms", "long", "60000", "0..", "medium", "cluster", "",
      "How long a deleted file stays on disk for readers in flight."), ("log.segment.delete.delay.ms",)),
    (("flush.messages", "long", "9223372036854775807", "1..", "medium", "cluster", "",
      "Records after which the log is forced to disk."), ("log.flush.interval.messages",)),
    (("flush.ms", "long", "9223372036854775807", "0..", "medium", "cluster", "",
      "Milliseconds after which the log is forced to disk."), ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
    (("follower.replication.throttled.replicas", "list", "", "replicas", "medium", "cluster", "cluster",
      "Replicas whose followers are throttled."), ()),
    (("index.interval.bytes", "int", "4096", "0..", "medium", "cluster", "",
      "Bytes of log between two entries of the offset index."), ("log.index.interval.bytes",)),
    (("internal.segment.bytes", "int", None, "", "medium", "internal", "",
      "The same as segment.bytes without its lower bound, for tests."), ()),
    (("leader.replication.throttled.replicas", "list", "", "replicas", "medium", "cluster", "cluster",
      "Replicas whose leaders are throttled."), ()),
    (("local.retention.bytes", "long", "-2", "-2..", "medium", "cluster", "",
      "Bytes kept locally; -2 for as many as are kept at all."), ("log.local.retention.bytes",)),
    (("local.retention.ms", "long", "-2", "-2..", "medium", "cluster", "",
      "How long records are kept locally; -2 for as long as they are kept at all."), ("log.local.retention.ms",)),
    (("max.compaction.lag.ms", "long", "9223372036854775807", "1..", "medium", "cluster", "",
      "Age at which a record must be compacted at last."), ("log.cleaner.max.compaction.lag.ms",)),
    (("max.decompressed.message.bytes", "int", "2147483639", "1..2147483639", "medium", "cluster", "",
      "Largest record in a compressed batch, once it is decompressed."), ("max.decompressed.message.bytes",)),
    (("max.message.bytes", "int", "1048588", "0..", "medium", "cluster", "",
      "Largest record batch that is accepted."), ("message.max.bytes",)),
    (("message.timestamp.after.max.ms", "long", "3600000", "0..", "medium", "cluster", "",
      "How far a record's timestamp may be in the future."), ("log.message.timestamp.after.max.ms",)),
    (("message.timestamp.before.max.ms", "long", "9223372036854775807", "0..", "medium", "cluster", "",
      "How far a record's timestamp may be in the past."), ("log.message.timestamp.before.max.ms",)),
    (("message.timestamp.type", "string", "CreateTime", "CreateTime|LogAppendTime", "medium", "cluster", "",
      "Whether the producer or the broker sets timestamps."), ("log.message.timestamp.type",)),
    (("min.cleanable.dirty.ratio", "double", "0.5", "0..1", "medium", "cluster", "",
      "Share of uncompacted bytes from which on the log is compacted."), ("log.cleaner.min.cleanable.ratio",)),
    (("min.compaction.lag.ms", "long", "0", "0..", "medium", "cluster", "",
      "How long a record is safe from compaction."), ("log.cleaner.min.compaction.lag.ms",)),
    (("min.insync.replicas", "int", "1", "1..", "medium", "cluster", "",
      "Replicas that must be in sync for acks=all."), ("min.insync.replicas",)),
    (("preallocate", "boolean", "false", "", "medium", "cluster", "",
      "Whether a new segment's file gets its full size at once."), ("log.preallocate",)),
    (("remote.copy.lag.bytes", "long", "-1", "-1..", "medium", "cluster", "",
      "Bytes after a segment from which on it is copied; 0 for at once, -1 for local.retention.bytes."),
     ("log.remote.copy.lag.bytes",)),
    (("remote.copy.lag.ms", "long", "0", "-1..", "medium", "cluster", "",
      "Age of a segment from which on it is copied; 0 for at once, -1 for local.retention.ms."),
     ("log.remote.copy.lag.ms",)),
    (("remote.log.copy.disable", "boolean", "false", "", "medium", "cluster", "",
      "Whether segments are no longer copied to tiered storage."), ()),
    (("remote.log.delete.on.disable", "boolean", "false", "", "medium", "cluster", "",
      "Whether what is stored remotely goes when tiered storage is turned off."), ()),
    (("remote.storage.enable", "boolean", "false", "", "medium", "cluster", "",
      "Whether old segments go to tiered storage."), ()),
    (("retention.bytes", "long", "-1", "", "medium", "cluster", "",
      "Bytes that a partition may take; -1 for no limit."), ("log.retention.bytes",)),
    (("retention.ms", "long", "604800000", "-1..", "medium", "cluster", "",
      "How long records are kept; -1 for ever."), ("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
    (("segment.bytes", "int", "1073741824", "1048576..", "medium", "cluster", "",
      "Size at which a new segment begins."), ("log.segment.bytes",)),
    (("segment.index.bytes", "int", "10485760", "4..", "medium", "cluster", "",
      "Largest size of an index file."), ("log.index.size.max.bytes",)),
    (("segment.jitter.ms", "long", "0", "0..", "medium", "cluster", "",
      "Largest amount by which the roll of a segment is moved forward at random."),
     ("log.roll.jitter.ms", "log.roll.jitter.hours")),
    (("segment.ms", "long", "604800000", "1..", "medium", "cluster", "",
      "Age at which a new segment begins."), ("log.roll.ms", "log.roll.hours")),
    (("unclean.leader.election.enable", "boolean", "false", "", "medium", "cluster", "cluster",
      "Whether a replica out of sync may become leader."), ("unclean.leader.election.enable",)),
    (("record.validation", "string", "full", "full|header", "medium", "cluster", "",
      "How far a leader looks at records: at each one, or at batch headers only. Not one of Kafka's."),
     ("log.record.validation",)),
)
# fmt: on

SETTINGS: dict[str, Setting[Any]] = {row[0]: Setting.of_row(row, names) for row, names in _ROWS}
ROWS: tuple[Setting[Any], ...] = tuple(row for row in SETTINGS.values() if row.changes != "internal")
"""Settings that are shown; the others only count when they are set."""

OWN = frozenset(("record.validation",))
"""Settings that Kafka's topics do not have."""


def is_shown(setting: Setting[Any], overrides: Container[str], release: str) -> bool:
    """Return whether a setting of a topic is shown; a setting that the release lacks is shown only if it is set.

    A tool that copies the shown settings to a topic of a Kafka would be refused otherwise.
    """
    return setting.name in overrides or (
        setting.changes != "internal"
        and setting.name not in OWN
        and releases.has_setting(release, setting.name)
    )


@cache
def settings_of(release: str) -> Mapping[str, Setting[Any]]:
    """The settings with the limits that they have in a release; the newest one's where none is named."""
    limits = releases.topic_limits_of(release) if release else {}
    return {
        name: row.with_limits(limits[name]) if name in limits else row
        for name, row in SETTINGS.items()
        if releases.has_setting(release, name)
    }


def stored(name: str) -> Setting[Any]:
    """Parse a stored setting: with the widest limits that it has had in any release."""
    return SETTINGS[name].with_limits(_WIDEST[name]) if name in _WIDEST else SETTINGS[name]


_WIDEST = releases.topic_limits_of(releases.NAMES[0])

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"

UNIT_MS = {"minutes": 60_000, "hours": 3_600_000}
"""Broker settings that end in another unit than their topic's: how many milliseconds one of it has."""


def switches_off(values: Mapping[str, Any]) -> bool:
    """Return whether a topic's settings, typed, end its tiered storage, or the copying (KIP-950)."""
    return bool(values["remote.log.delete.on.disable"] or values["remote.log.copy.disable"])


def has_tiered_storage(texts: Mapping[str, str]) -> bool:
    """Return whether a topic's own settings, by name, switch tiered storage on."""
    return texts.get("remote.storage.enable", "").strip().lower() == "true"

"""Topic settings of a log.

The rule: one field per setting, named as Kafka's with dots for underscores, with Kafka's (4.x) default. A log never
reads settings of another broker or topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from barnabas.records.batch import RECORD_BYTES_MAX
from barnabas.records.rules import AppendRules  # the compiled class needs it at run time

UNBOUNDED = (1 << 63) - 1
NEVER_REACHED = 1 << 61
"""Practically unlimited, for counts: compiled code needs no object for it, unlike for UNBOUNDED."""
UNLIMITED = -1
DAY_MS = 86_400_000
DEFAULT_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic; sizes in bytes, -1 for no limit where Kafka has it so."""

    cleanup_policy: frozenset[str] = frozenset(("delete",))
    compression_gzip_level: int = DEFAULT_LEVELS["gzip"]
    compression_lz4_level: int = DEFAULT_LEVELS["lz4"]
    compression_type: str = "producer"
    compression_zstd_level: int = DEFAULT_LEVELS["zstd"]
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = UNBOUNDED
    flush_ms: int = UNBOUNDED
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = UNBOUNDED
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = UNBOUNDED
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_copy_lag_bytes: int = -1
    remote_copy_lag_ms: int = 0
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False
    record_validation: Literal["full", "header"] = "full"  # ours: see AppendRules
    rules: AppendRules = field(init=False, compare=False, repr=False)
    flush_after_messages: int = field(init=False, compare=False, repr=False)
    """`flush_messages`, capped to a small number: each append compares with it."""
    roll_ms: int = field(init=False, compare=False, repr=False)
    """Age at which a segment is rolled: early enough to be compacted in time, if it must be."""

    def __post_init__(self) -> None:
        level = getattr(self, f"compression_{self.compression_type}_level", None)
        rules = AppendRules(
            compression_type=self.compression_type,
            compression_level=None if level == DEFAULT_LEVELS.get(self.compression_type) else level,
            timestamp_type=self.message_timestamp_type,
            message_timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            max_message_bytes=self.max_message_bytes,
            max_decompressed_message_bytes=self.max_decompressed_message_bytes,
            segment_bytes=self.segment_bytes,
            compacted=self.is_compacted,
            record_validation=self.record_validation,
        )
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "flush_after_messages", min(self.flush_messages, NEVER_REACHED))
        is_lag_bounded = self.is_compacted and self.max_compaction_lag_ms > 0
        roll_ms = min(self.max_compaction_lag_ms, self.segment_ms) if is_lag_bounded else self.segment_ms
        object.__setattr__(self, "roll_ms", roll_ms)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LogConfig:
        """Take typed values by Kafka's names ("segment.bytes"); lists become tuples, other settings are ignored."""
        values = {}
        for config_field in fields(cls):
            name = config_field.name.replace("_", ".")
            if config_field.init and settings.get(name) is not None:
                value = settings[name]
                if config_field.name == "cleanup_policy":
                    value = frozenset(value)
                elif isinstance(value, list):
                    value = tuple(value)
                values[config_field.name] = value
        return cls(**values)

    @property
    def is_tiered(self) -> bool:
        """True if closed segments go to tiered storage (KIP-405)."""
        return self.remote_storage_enable and not self.is_compacted

    @property
    def copy_lag_bytes(self) -> int:
        """Bytes that follow a segment before it is copied, unless it is old enough; 0 for none (KIP-1241)."""
        lag = self.remote_copy_lag_bytes
        return lag if lag != -1 else max(self.local_bytes_max, 0)

    @property
    def copy_lag_ms(self) -> int:
        """Age of a segment before it is copied, unless enough bytes follow it; 0 for none (KIP-1241)."""
        lag = self.remote_copy_lag_ms
        return lag if lag != -1 else max(self.local_ms_max, 0)

    @property
    def local_bytes_max(self) -> int:
        """Bytes that a tiered log keeps locally, -1 for no limit."""
        return self.retention_bytes if self.local_retention_bytes == -2 else self.local_retention_bytes

    @property
    def local_ms_max(self) -> int:
        """Time for which a tiered log keeps records locally, in ms; -1 for ever."""
        return self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms

    @property
    def is_compacted(self) -> bool:
        """True if the cleaner keeps only the last record of each key."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """True if old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

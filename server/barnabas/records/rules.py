"""The rules that a topic's settings set for the records of producers, and the records that break them.

The rule: each record is checked; all that break a rule are named in one error, up to a limit (KIP-467).
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from barnabas.records.batch import DECOMPRESSED_BYTES_MAX, NO_TIMESTAMP, RECORD_BYTES_MAX
from barnabas.records.compression import CODECS_BY_NAME, Codec
from barnabas.records.errors import Code, InvalidRecordsError, RecordError

UNBOUNDED_MS: Final = (1 << 63) - 1
RECORD_ERRORS_MAX: Final = 1_000  # enough to find a mistake; a batch of 1 MB may hold 150,000 records


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The topic settings that records must obey, named as Kafka's with dots for underscores; times in ms.

    `compression_type` is "producer" (keep the producer's codec), "uncompressed" or a codec's name; `compression_level` is
    for that codec, None its default. `compacted` is true if `cleanup.policy` has compact. `record_validation` "full" checks
    every record, as Kafka does; "header" trusts the header of a batch with a correct checksum. `decompressed_bytes_max` is
    the limit for a decompressed batch.
    """

    compression_type: str = "producer"
    compression_level: int | None = None
    timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = UNBOUNDED_MS
    message_timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    segment_bytes: int = 1 << 30
    compacted: bool = False
    record_validation: Literal["full", "header"] = "full"
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    append_time: bool = field(init=False, compare=False, repr=False)
    """True if the broker sets the timestamps."""
    is_age_bounded: bool = field(init=False, compare=False, repr=False)
    """True if a timestamp can be too old."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "append_time", self.timestamp_type == "LogAppendTime")
        object.__setattr__(self, "is_age_bounded", self.message_timestamp_before_max_ms < UNBOUNDED_MS)

    def target_codec(self, source: Codec) -> Codec:
        """Return the codec for storing records that arrived in codec `source`."""
        return source if self.compression_type == "producer" else CODECS_BY_NAME[self.compression_type]


def is_timestamp_allowed(config: AppendRules, now_ms: int, timestamp: int) -> bool:
    """Return whether a record may have that timestamp (ms); a missing timestamp (-1) is allowed (KIP-937)."""
    if timestamp == NO_TIMESTAMP or config.append_time:
        return True
    age_ms = now_ms - timestamp
    return age_ms >= -config.message_timestamp_after_max_ms and not (
        config.is_age_bounded and age_ms > config.message_timestamp_before_max_ms
    )


class RecordJudge:
    """Collects the records that break the rules: call `allows` for each record, then `finish`."""

    __slots__ = ("code", "config", "errors", "now_ms")

    def __init__(self, config: AppendRules, now_ms: int) -> None:
        self.config = config
        self.now_ms = now_ms
        self.errors: list[RecordError] = []
        self.code = Code.INVALID_RECORD

    def allows(self, index: int, key: bytes | None, timestamp: int) -> bool:
        """Return whether a record obeys the rules, and remember if it does not."""
        if self.config.compacted and key is None:
            message = "a record of a compacted topic must have a key"
        elif not is_timestamp_allowed(self.config, self.now_ms, timestamp):
            self.code = Code.INVALID_TIMESTAMP
            before = self.config.message_timestamp_before_max_ms
            after = self.config.message_timestamp_after_max_ms
            message = (
                f"timestamp {timestamp} is not from {before} ms before to {after} ms after {self.now_ms}"
            )
        else:
            return True
        if len(self.errors) < RECORD_ERRORS_MAX:
            self.errors.append(RecordError(index, message))
        return False

    def finish(self) -> None:
        """Raise if any record broke the rules, with which."""
        if self.errors:
            shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in self.errors[:3])
            raise InvalidRecordsError(f"records were refused: {shown}", self.code, tuple(self.errors))

"""Values of producers and consumers: partitions, records, offsets.

The rule: plain values, without references to a client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar


class TopicPartition(NamedTuple):
    """A partition; wherever one is expected, a plain tuple of topic and number serves as well."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Place = TypeVar("Place", bound=tuple[str, int])
"""A `TopicPartition` or a plain tuple, as the key of a mapping."""


class RecordMetadata(NamedTuple):
    """Partition, offset and timestamp of an acknowledged record."""

    topic: str
    partition: int
    offset: int
    """-1 if the broker does not say: with acks=0, and where it had appended the record long before."""
    timestamp_ms: int
    """Of the record, or of its append in a topic with LogAppendTime."""


@dataclass(slots=True)
class ConsumedRecord:
    """A record as a consumer receives it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Since 1970; -1 in logs of Kafka 0.9 and before."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    leader_epoch: int = -1
    """Epoch of the leader that appended it; -1 if unknown."""
    is_append_time: bool = False
    """True if the timestamp is of the append (LogAppendTime), not of the producer."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's partition."""
        return TopicPartition(self.topic, self.partition)


class FetchedRecords(NamedTuple):
    """Undecoded record batches of a partition from one response, perhaps compressed, the last one perhaps incomplete."""

    topic: str
    partition: int
    offset: int
    """The requested offset; the first batch may begin before it."""
    end_offset: int
    """The offset after the last whole batch."""
    data: bytes | bytearray | memoryview
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions: producer id and first offset of each (read_committed)."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    leader_epoch: int = -1
    """Epoch of the last record before it; -1 if unknown."""
    metadata: str = ""
    """A text of the consumer's own."""


class OffsetAndTimestamp(NamedTuple):
    """Offset and timestamp of the first record at or after a time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Group, generation and member of a consumer; transactions that commit its offsets are fenced by them (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None

"""A segment of a log in a remote store, as KIP-405's RemoteLogSegmentMetadata describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID


class SegmentState(IntEnum):
    """Progress of a segment's copy or deletion; the numbers are those of Kafka's records."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition of one incarnation of a topic."""

    topic: str
    partition: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in a remote store.

    Attributes:
        partition: the log that it is a part of.
        segment_id: random for each copy; the same offsets may be stored under several.
        start_offset: offset of the first record (inclusive).
        end_offset: offset of the last record (inclusive).
        broker_id: the broker that wrote the state.
        max_timestamp: largest timestamp of its records, in ms since 1970, -1 for none.
        event_timestamp: when the state was written, in ms since 1970.
        leader_epochs: first offset of each leader epoch in the segment, in the order of the epochs, never empty.
        size: bytes of the log file, at most 2^31 - 1.
        state: progress of its copy or deletion.
        custom_metadata: the store's own data, passed back to it, None without any.
        is_transaction_index_empty: whether the store holds no transaction index of it (KIP-1058).
    """

    partition: TopicIdPartition
    segment_id: UUID
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp: int
    event_timestamp: int
    leader_epochs: tuple[tuple[int, int], ...]
    size: int
    state: SegmentState = SegmentState.COPY_STARTED
    custom_metadata: bytes | None = field(default=None, repr=False)
    is_transaction_index_empty: bool = False


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """The next state of a segment, as KIP-405's RemoteLogSegmentMetadataUpdate.

    Attributes:
        partition: the log that the segment is a part of.
        segment_id: the segment.
        broker_id: the broker that writes the state.
        event_timestamp: when the state is written, in ms since 1970.
        state: progress of its copy or deletion.
        custom_metadata: replaces the segment's, also if it is None.
    """

    partition: TopicIdPartition
    segment_id: UUID
    broker_id: int
    event_timestamp: int
    state: SegmentState
    custom_metadata: bytes | None = field(default=None, repr=False)

"""Records of `__remote_log_metadata` (KIP-405): encoding, decoding, and the partition of a record.

The rule: as in Kafka 4.3's RemoteLogMetadataSerde, a record must be understood completely: another frame, key or
version, a state without a name, invalid offsets, or bytes after the message are errors. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar
from uuid import UUID

from barnabas.records.partitioner import partition_of_key
from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.records import (
    remote_log_segment_metadata,
    remote_log_segment_metadata_snapshot,
    remote_log_segment_metadata_update,
    remote_partition_delete_metadata,
)
from barnabas.wire.metadata_records import FRAME_VERSION, read_frame
from barnabas.wire.primitives import Buffer

S = TypeVar("S", bound=IntEnum)

METADATA_TOPIC: Final = "__remote_log_metadata"
SEGMENT, UPDATE, PARTITION_DELETE, SNAPSHOT = range(4)
_VERSION: Final = 0
_CODECS: Final = (
    remote_log_segment_metadata.CODEC,
    remote_log_segment_metadata_update.CODEC,
    remote_partition_delete_metadata.CODEC,
    remote_log_segment_metadata_snapshot.CODEC,
)
_Segment = remote_log_segment_metadata.RemoteLogSegmentMetadataRecord
_Update = remote_log_segment_metadata_update.RemoteLogSegmentMetadataUpdateRecord
_Delete = remote_partition_delete_metadata.RemotePartitionDeleteMetadataRecord
_Snapshot = remote_log_segment_metadata_snapshot.RemoteLogSegmentMetadataSnapshotRecord


class MetadataRecordError(Exception):
    """Bytes that are no record of `__remote_log_metadata`, or one of an unknown version."""


class PartitionDeleteState(IntEnum):
    """Progress of the deletion of a partition's segments; the numbers are those of Kafka's records."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """A partition that is to be deleted with its segments, as KIP-405's RemotePartitionDeleteMetadata.

    Attributes:
        partition: the deleted partition.
        broker_id: the broker that wrote the state.
        event_timestamp: when the state was written, in ms since 1970.
        state: how far the deletion has come.
    """

    partition: TopicIdPartition
    broker_id: int
    event_timestamp: int
    state: PartitionDeleteState


MetadataRecord = RemoteSegment | SegmentUpdate | PartitionDelete


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Return the partition of `__remote_log_metadata`, of `count`, that has the records of a partition.

    As Kafka's RemoteLogMetadataTopicPartitioner: murmur2 of the four bytes of Java's hash of the topic id's lower and upper
    half and the partition's number.
    """
    topic_id = partition.topic_id.int
    mixed = 1
    for part in (
        _hash_of_long(topic_id & 0xFFFFFFFFFFFFFFFF),
        _hash_of_long(topic_id >> 64),
        partition.partition,
    ):
        mixed = (31 * mixed + part) & 0xFFFFFFFF
    return partition_of_key(mixed.to_bytes(4, "big"), count)


def encode(record: MetadataRecord) -> bytes:
    """Return the value of a record. Raises EncodeError for a number or a text that has no room in it."""
    match record:
        case RemoteSegment():
            entry = _Segment.RemoteLogSegmentIdEntry(
                topic_id_partition=_entry(_Segment.TopicIdPartitionEntry, record.partition),
                id=record.segment_id.bytes,
            )
            message = _Segment(remote_log_segment_id=entry, **_segment_fields(_Segment, record))
            return _framed(SEGMENT, message)
        case SegmentUpdate():
            updated = _Update.RemoteLogSegmentIdEntry(
                topic_id_partition=_entry(_Update.TopicIdPartitionEntry, record.partition),
                id=record.segment_id.bytes,
            )
            update = _Update(
                remote_log_segment_id=updated,
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp,
                custom_metadata=record.custom_metadata,
                remote_log_segment_state=record.state,
            )
            return _framed(UPDATE, update)
        case PartitionDelete():
            deletion = _Delete(
                topic_id_partition=_entry(_Delete.TopicIdPartitionEntry, record.partition),
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp,
                remote_partition_delete_state=record.state,
            )
            return _framed(PARTITION_DELETE, deletion)


def encode_snapshot(segment: RemoteSegment) -> bytes:
    """Return the value of a snapshot record, which has all of a segment but its partition. Raises EncodeError."""
    return _framed(
        SNAPSHOT, _Snapshot(segment_id=segment.segment_id.bytes, **_segment_fields(_Snapshot, segment))
    )


def decode(value: Buffer, partition: TopicIdPartition | None = None) -> MetadataRecord:
    """Decode the value of a record.

    Args:
        value: the record's value.
        partition: the partition of a snapshot record, which has none itself; None refuses snapshots.

    Raises:
        MetadataRecordError: the value is invalid.
    """
    try:
        key, version, position = read_frame(value)
        if key >= len(_CODECS):
            raise MetadataRecordError(f"there is no remote log metadata record with key {key}")
        message: Any = _CODECS[key].decode_whole(value, version, position)
    except DecodeError as error:
        raise MetadataRecordError(str(error)) from error
    if key == SEGMENT:
        identity = message.remote_log_segment_id
        return _segment(message, _partition(identity.topic_id_partition), identity.id)
    if key == UPDATE:
        return SegmentUpdate(
            partition=_partition(message.remote_log_segment_id.topic_id_partition),
            segment_id=UUID(bytes=message.remote_log_segment_id.id),
            broker_id=message.broker_id,
            event_timestamp=message.event_timestamp_ms,
            state=_state(SegmentState, message.remote_log_segment_state),
            custom_metadata=message.custom_metadata,
        )
    if key == PARTITION_DELETE:
        return PartitionDelete(
            partition=_partition(message.topic_id_partition),
            broker_id=message.broker_id,
            event_timestamp=message.event_timestamp_ms,
            state=_state(PartitionDeleteState, message.remote_partition_delete_state),
        )
    if partition is None:
        raise MetadataRecordError("a snapshot of a segment, without the partition that it is of")
    return _segment(message, partition, message.segment_id)


def _hash_of_long(value: int) -> int:
    return (value ^ value >> 32) & 0xFFFFFFFF


def _framed(key: int, message: Any) -> bytes:
    return bytes((FRAME_VERSION, key, _VERSION)) + _CODECS[key].encode_bytes(message, _VERSION)


def _entry(entry: Any, partition: TopicIdPartition) -> Any:
    return entry(name=partition.topic, id=partition.topic_id.bytes, partition=partition.partition)


def _segment_fields(message: Any, segment: RemoteSegment) -> dict[str, Any]:
    epochs = [
        message.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset)
        for epoch, offset in segment.leader_epochs
    ]
    return {
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "broker_id": segment.broker_id,
        "max_timestamp_ms": segment.max_timestamp,
        "event_timestamp_ms": segment.event_timestamp,
        "segment_leader_epochs": epochs,
        "segment_size_in_bytes": segment.size,
        "custom_metadata": segment.custom_metadata,
        "remote_log_segment_state": segment.state,
        "txn_index_empty": segment.is_transaction_index_empty,
    }


def _partition(entry: Any) -> TopicIdPartition:
    return TopicIdPartition(entry.name, entry.partition, UUID(bytes=entry.id))


def _segment(message: Any, partition: TopicIdPartition, segment_id: bytes) -> RemoteSegment:
    start, end = message.start_offset, message.end_offset
    if not 0 <= start <= end:
        raise MetadataRecordError(f"a remote segment cannot reach from offset {start} to {end}")
    epochs = {entry.leader_epoch: entry.offset for entry in message.segment_leader_epochs}
    if not epochs:
        raise MetadataRecordError(f"the remote segment with offsets {start} to {end} has no leader epoch")
    return RemoteSegment(
        partition=partition,
        segment_id=UUID(bytes=segment_id),
        start_offset=start,
        end_offset=end,
        broker_id=message.broker_id,
        max_timestamp=message.max_timestamp_ms,
        event_timestamp=message.event_timestamp_ms,
        leader_epochs=tuple(sorted(epochs.items())),
        size=message.segment_size_in_bytes,
        state=_state(SegmentState, message.remote_log_segment_state),
        custom_metadata=message.custom_metadata,
        is_transaction_index_empty=message.txn_index_empty,
    )


def _state(states: type[S], number: int) -> S:
    try:
        return states(number)
    except ValueError:
        raise MetadataRecordError(f"there is no {states.__name__} {number}") from None

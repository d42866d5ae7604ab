"""Records of __consumer_offsets in Kafka's formats. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from barnabas.config.features import RecordVersions
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.records import group_metadata, offset_commit
from barnabas.wire.generated.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.wire.generated.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition

INT32_MAX: Final = 2**31 - 1
LEADER_EPOCH_SINCE: Final = 3
"""First version of an offset's value that has all fields except the expiry."""


class DecodedRecord(NamedTuple):
    """Content of a record of one kind of group: its type, its decoded key, and its value or None."""

    type_id: int
    key: Any
    value: Any


class CommittedOffset(NamedTuple):
    """Content of a record of a committed offset; `value` is None for a tombstone."""

    group_id: str
    topic_partition: TopicPartition
    value: OffsetCommitValue | None


def check_epoch(epoch: int) -> None:
    """Raise DecodeError for a generation, or a group epoch, that cannot be incremented."""
    if epoch == INT32_MAX:
        raise DecodeError(f"{epoch} is the last that there can be", "epoch", 0)


def group_record(group_id: str, value: GroupMetadataValue, versions: RecordVersions) -> Record:
    """Return a classic group's metadata record."""
    key, _ = group_tombstone(group_id)
    return key, group_metadata.RECORD.encode_value(value, versions.group_metadata)


def group_tombstone(group_id: str) -> Record:
    """Return the tombstone of a classic group."""
    return group_metadata.RECORD.encode_key(GroupMetadataKey(group=group_id)), None


def offset_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue, versions: RecordVersions
) -> Record:
    """Return the record of a committed offset."""
    key, _ = offset_tombstone(group_id, topic, partition)
    expires = value.expire_timestamp >= 0
    version = versions.expiring_offset_commit if expires else versions.offset_commit
    return key, offset_commit.RECORD.encode_value(value, version)


def is_whole(value: OffsetCommitValue, versions: RecordVersions) -> bool:
    """Return whether a record has all fields of an offset, so that its replay gives the same offset."""
    return value.expire_timestamp < 0 and versions.offset_commit >= LEADER_EPOCH_SINCE


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    """Return the tombstone of a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return offset_commit.RECORD.encode_key(key), None

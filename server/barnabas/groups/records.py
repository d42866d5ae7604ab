"""Records of __consumer_offsets in Kafka's formats. Pure."""

from __future__ import annotations

from barnabas.statemachine.decision import Record
from barnabas.wire.generated.records import group_metadata, offset_commit
from barnabas.wire.generated.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.wire.generated.records.offset_commit import OffsetCommitKey, OffsetCommitValue

GROUP_METADATA_VERSION = 3
OFFSET_VERSION = 3
"""The newest versions that Kafka 3.x reads as well."""
OFFSET_WITH_EXPIRY_VERSION = 1
"""The only version that can say when an offset expires; it has no leader epoch."""


def group_record(group_id: str, value: GroupMetadataValue | None) -> Record:
    """A classic group's metadata, or its end."""
    key = group_metadata.RECORD.encode_key(GroupMetadataKey(group=group_id))
    return key, None if value is None else group_metadata.RECORD.encode_value(value, GROUP_METADATA_VERSION)


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> Record:
    """A committed offset, or its end."""
    key = offset_commit.RECORD.encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
    if value is None:
        return key, None
    version = OFFSET_VERSION if value.expire_timestamp < 0 else OFFSET_WITH_EXPIRY_VERSION
    return key, offset_commit.RECORD.encode_value(value, version)

"""Records of consumer groups in __consumer_offsets, in Kafka's formats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.consumer.regex import Resolved
from barnabas.coordinators.groups.records import DecodedRecord
from barnabas.coordinators.groups.topics import by_topic
from barnabas.coordinators.statemachine.decision import Decision, Record
from barnabas.wire.codec import RecordType
from barnabas.wire.generated.records import (
    consumer_group_current_member_assignment as current_assignment,
)
from barnabas.wire.generated.records import (
    consumer_group_member_metadata as member_metadata,
)
from barnabas.wire.generated.records import (
    consumer_group_metadata as metadata,
)
from barnabas.wire.generated.records import (
    consumer_group_partition_metadata as partition_metadata,
)
from barnabas.wire.generated.records import (
    consumer_group_regular_expression as regular_expression,
)
from barnabas.wire.generated.records import (
    consumer_group_target_assignment_member as target_member,
)
from barnabas.wire.generated.records import (
    consumer_group_target_assignment_metadata as target_metadata,
)
from barnabas.wire.topic_partitions import TopicIdPartition

Assigned = current_assignment.ConsumerGroupCurrentMemberAssignmentValue
Target = target_member.ConsumerGroupTargetAssignmentMemberValue


def _record(record_type: RecordType[Any, Any], key: Any, value: Any) -> Record:
    return record_type.encode_key(key), record_type.encode_value(value)


def _write(out: Decision, record_type: RecordType[Any, Any], key: Any, value: Any) -> None:
    """Write a record, and keep its message for the replay, without decoding."""
    out.write(_record(record_type, key, value), DecodedRecord(record_type.type_id, key, value))


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> Record:
    """Return the record of the group's epoch, with the hash of its topics."""
    return _record(metadata.RECORD, *_epoch(group_id, epoch, topics_hash))


def write_epoch(out: Decision, group_id: str, epoch: int, topics_hash: int) -> None:
    """Write `epoch_record`, replayed without decoding."""
    _write(out, metadata.RECORD, *_epoch(group_id, epoch, topics_hash))


def _epoch(
    group_id: str, epoch: int, topics_hash: int
) -> tuple[metadata.ConsumerGroupMetadataKey, metadata.ConsumerGroupMetadataValue]:
    key = metadata.ConsumerGroupMetadataKey(group_id=group_id)
    return key, metadata.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)


def epoch_tombstone(group_id: str) -> Record:
    """Return the tombstone of the group."""
    return metadata.RECORD.encode_key(metadata.ConsumerGroupMetadataKey(group_id=group_id)), None


def partition_metadata_tombstone(group_id: str) -> Record:
    """Return the tombstone of the partition metadata of Kafka before 4.1, which is now a hash."""
    key = partition_metadata.ConsumerGroupPartitionMetadataKey(group_id=group_id)
    return partition_metadata.RECORD.encode_key(key), None


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    """Return the record of the group epoch of the target."""
    key = target_metadata.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = target_metadata.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return target_metadata.RECORD.encode_key(key), target_metadata.RECORD.encode_value(value)


def target_epoch_tombstone(group_id: str) -> Record:
    """Return the tombstone of the target assignment's epoch."""
    key = target_metadata.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return target_metadata.RECORD.encode_key(key), None


def target_record(group_id: str, member_id: str, topic_partitions: Iterable[TopicIdPartition]) -> Record:
    """Return the record of a member's target partitions."""
    value = Target(
        topic_partitions=[
            Target.TopicPartition(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(topic_partitions)
        ]
    )
    return _target_key(group_id, member_id), target_member.RECORD.encode_value(value)


def _target_key(group_id: str, member_id: str) -> bytes:
    key = target_member.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return target_member.RECORD.encode_key(key)


def member_record(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of a member's metadata."""
    return _record(member_metadata.RECORD, _member_key(group_id, member.id), member.metadata())


def write_member(out: Decision, group_id: str, member: ConsumerMember) -> None:
    """Write `member_record`, replayed without decoding."""
    _write(out, member_metadata.RECORD, _member_key(group_id, member.id), member.metadata())


def _member_key(group_id: str, member_id: str) -> member_metadata.ConsumerGroupMemberMetadataKey:
    return member_metadata.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def current_record(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of a member's current assignment."""
    return _record(current_assignment.RECORD, _current_key(group_id, member.id), _current(member))


def write_current(out: Decision, group_id: str, member: ConsumerMember) -> None:
    """Write `current_record`, replayed without decoding."""
    _write(out, current_assignment.RECORD, _current_key(group_id, member.id), _current(member))


def _current(member: ConsumerMember) -> Assigned:
    return Assigned(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )


def _current_key(group_id: str, member_id: str) -> current_assignment.ConsumerGroupCurrentMemberAssignmentKey:
    return current_assignment.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def _with_epochs(topic_partitions: Mapping[TopicIdPartition, int]) -> list[Assigned.TopicPartitions]:
    return [
        Assigned.TopicPartitions(
            topic_id=topic_id,
            partitions=partitions,
            assignment_epochs=[topic_partitions[topic_id, partition] for partition in partitions],
        )
        for topic_id, partitions in by_topic(topic_partitions)
    ]


def partitions_with_epochs(
    topics: Iterable[Assigned.TopicPartitions], unknown_epoch: int
) -> dict[TopicIdPartition, int]:
    """Return the partitions of a record with epochs; those without an epoch count as assigned in `unknown_epoch`."""
    topic_partitions = {}
    for topic in topics:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [unknown_epoch] * len(topic.partitions)
        topic_partitions.update(
            {(topic.topic_id, p): e for p, e in zip(topic.partitions, epochs, strict=True)}
        )
    return topic_partitions


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Return the tombstones of a member: its assignments first, its metadata last."""
    return [
        (current_assignment.RECORD.encode_key(_current_key(group_id, member_id)), None),
        (_target_key(group_id, member_id), None),
        (member_metadata.RECORD.encode_key(_member_key(group_id, member_id)), None),
    ]


def regex_record(group_id: str, regex: str, resolved: Resolved) -> Record:
    """Return the record of the topics that an expression matched."""
    value = regular_expression.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.at_ms
    )
    return _regex_key(group_id, regex), regular_expression.RECORD.encode_value(value)


def regex_tombstone(group_id: str, regex: str) -> Record:
    """Return the tombstone of a regular expression that no member subscribes to."""
    return _regex_key(group_id, regex), None


def _regex_key(group_id: str, regex: str) -> bytes:
    key = regular_expression.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return regular_expression.RECORD.encode_key(key)

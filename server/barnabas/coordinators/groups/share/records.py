"""Records of share groups in __consumer_offsets, in Kafka's formats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.coordinators.groups.share.topic_states import Partitions, TopicStates
from barnabas.coordinators.groups.topics import by_topic
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire.generated.records import share_group_current_member_assignment as current_assignment
from barnabas.wire.generated.records import share_group_member_metadata as member_metadata
from barnabas.wire.generated.records import share_group_metadata as metadata
from barnabas.wire.generated.records import share_group_state_partition_metadata as known_topics
from barnabas.wire.generated.records import share_group_target_assignment_member as target_member
from barnabas.wire.generated.records import share_group_target_assignment_metadata as target_metadata
from barnabas.wire.topic_partitions import TopicIdPartition

Assigned = current_assignment.ShareGroupCurrentMemberAssignmentValue
Target = target_member.ShareGroupTargetAssignmentMemberValue
Known = known_topics.ShareGroupStatePartitionMetadataValue

STABLE = 0
"""The only state of a member: none has partitions to revoke, since members share."""


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> Record:
    """Return the record of the group's epoch, with the hash of its topics."""
    value = metadata.ShareGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
    return _epoch_key(group_id), metadata.RECORD.encode_value(value)


def epoch_tombstone(group_id: str) -> Record:
    """Return the tombstone of the group."""
    return _epoch_key(group_id), None


def _epoch_key(group_id: str) -> bytes:
    return metadata.RECORD.encode_key(metadata.ShareGroupMetadataKey(group_id=group_id))


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    """Return the record of the group epoch of the target."""
    value = target_metadata.ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return _target_epoch_key(group_id), target_metadata.RECORD.encode_value(value)


def target_epoch_tombstone(group_id: str) -> Record:
    """Return the tombstone of the target assignment's epoch."""
    return _target_epoch_key(group_id), None


def _target_epoch_key(group_id: str) -> bytes:
    key = target_metadata.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    return target_metadata.RECORD.encode_key(key)


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
    key = target_member.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return target_member.RECORD.encode_key(key)


def member_record(group_id: str, member: ShareMember) -> Record:
    """Return the record of a member's metadata."""
    value = member_metadata.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return _member_key(group_id, member.id), member_metadata.RECORD.encode_value(value)


def _member_key(group_id: str, member_id: str) -> bytes:
    key = member_metadata.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return member_metadata.RECORD.encode_key(key)


def current_record(group_id: str, member: ShareMember) -> Record:
    """Return the record of a member's current partitions."""
    value = Assigned(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            Assigned.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(member.assigned)
        ],
    )
    return _current_key(group_id, member.id), current_assignment.RECORD.encode_value(value)


def _current_key(group_id: str, member_id: str) -> bytes:
    key = current_assignment.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return current_assignment.RECORD.encode_key(key)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Return the tombstones of a member: its assignments first, its metadata last."""
    return [
        (_current_key(group_id, member_id), None),
        (_target_key(group_id, member_id), None),
        (_member_key(group_id, member_id), None),
    ]


def topic_states_record(group_id: str, topic_states: TopicStates) -> Record:
    """Return the record of the partitions that have a state."""

    def infos(topics: Mapping[bytes, Partitions]) -> list[Known.TopicPartitionsInfo]:
        return [
            Known.TopicPartitionsInfo(
                topic_id=topic_id,
                topic_name=topic_states.names.get(topic_id, ""),
                partitions=sorted(partitions),
            )
            for topic_id, partitions in sorted(topics.items())
        ]

    value = Known(
        initializing_topics=infos(topic_states.initializing),
        initialized_topics=infos(topic_states.initialized),
        deleting_topics=[
            Known.TopicInfo(topic_id=topic_id, topic_name=topic_states.names.get(topic_id, ""))
            for topic_id in sorted(topic_states.deleting)
        ],
    )
    return _known_key(group_id), known_topics.RECORD.encode_value(value)


def known_tombstone(group_id: str) -> Record:
    """Return the tombstone of the partitions' states."""
    return _known_key(group_id), None


def _known_key(group_id: str) -> bytes:
    key = known_topics.ShareGroupStatePartitionMetadataKey(group_id=group_id)
    return known_topics.RECORD.encode_key(key)


def topic_states_of(value: Known) -> TopicStates:
    """Return the states of partitions in a record."""
    return TopicStates(
        {info.topic_id: frozenset(info.partitions) for info in value.initializing_topics},
        {info.topic_id: frozenset(info.partitions) for info in value.initialized_topics},
        frozenset(info.topic_id for info in value.deleting_topics),
        {info.topic_id: info.topic_name for info in (*value.initializing_topics, *value.initialized_topics)}
        | {info.topic_id: info.topic_name for info in value.deleting_topics},
    )

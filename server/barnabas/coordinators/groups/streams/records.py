"""Records of streams groups in __consumer_offsets, in Kafka's formats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.coordinators.groups.epoch_member import MemberState
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.tasks import ACTIVE, ROLES, STANDBY, WARMUP, Task, of_role
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire.generated.records import streams_group_current_member_assignment as current
from barnabas.wire.generated.records import streams_group_member_metadata as member_metadata
from barnabas.wire.generated.records import streams_group_metadata as metadata
from barnabas.wire.generated.records import streams_group_target_assignment_member as target_member
from barnabas.wire.generated.records import streams_group_target_assignment_metadata as target_metadata
from barnabas.wire.generated.records import streams_group_topology as topology

Current = current.StreamsGroupCurrentMemberAssignmentValue
Target = target_member.StreamsGroupTargetAssignmentMemberValue

STATES = {
    MemberState.STABLE: 1,
    MemberState.UNREVOKED: 2,
    MemberState.UNRELEASED: 3,
    MemberState.UNKNOWN: 127,
}


def epoch_record(
    group_id: str, epoch: int, topics_hash: int, validated_epoch: int, settings: Mapping[str, str]
) -> Record:
    """Return the record of the group's epoch, with the hash of its topics, and whether the topology fitted them."""
    value = metadata.StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=topics_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[
            metadata.StreamsGroupMetadataValue.LastAssignmentConfig(key=key, value=text)
            for key, text in sorted(settings.items())
        ],
    )
    return _epoch_key(group_id), metadata.RECORD.encode_value(value)


def _epoch_key(group_id: str) -> bytes:
    return metadata.RECORD.encode_key(metadata.StreamsGroupMetadataKey(group_id=group_id))


def topology_record(group_id: str, value: topology.StreamsGroupTopologyValue) -> Record:
    """Return the record of the application's topology."""
    return _topology_key(group_id), topology.RECORD.encode_value(value)


def _topology_key(group_id: str) -> bytes:
    return topology.RECORD.encode_key(topology.StreamsGroupTopologyKey(group_id=group_id))


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    """Return the record of the group epoch of the target."""
    value = target_metadata.StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return _target_epoch_key(group_id), target_metadata.RECORD.encode_value(value)


def _target_epoch_key(group_id: str) -> bytes:
    return target_metadata.RECORD.encode_key(
        target_metadata.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    )


def target_record(group_id: str, member_id: str, tasks: Iterable[Task]) -> Record:
    """Return the record of a member's target tasks."""
    tasks = list(tasks)
    active, standby, warmup = (
        [Target.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in of_role(role, tasks)]
        for role in ROLES
    )
    value = Target(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
    return _target_key(group_id, member_id), target_member.RECORD.encode_value(value)


def _target_key(group_id: str, member_id: str) -> bytes:
    return target_member.RECORD.encode_key(
        target_member.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    )


def member_record(group_id: str, member: StreamsMember) -> Record:
    """Return the record of a member's description."""
    return _member_key(group_id, member.id), member_metadata.RECORD.encode_value(member.metadata())


def _member_key(group_id: str, member_id: str) -> bytes:
    return member_metadata.RECORD.encode_key(
        member_metadata.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    )


def current_record(group_id: str, member: StreamsMember) -> Record:
    """Return the record of the tasks that a member runs."""
    value = Current(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STATES[member.state],
        active_tasks=_with_epochs(ACTIVE, member.assigned),
        standby_tasks=_with_epochs(STANDBY, member.assigned),
        warmup_tasks=_with_epochs(WARMUP, member.assigned),
        active_tasks_pending_revocation=_with_epochs(ACTIVE, member.revoking),
        standby_tasks_pending_revocation=_with_epochs(STANDBY, member.revoking),
        warmup_tasks_pending_revocation=_with_epochs(WARMUP, member.revoking),
    )
    return _current_key(group_id, member.id), current.RECORD.encode_value(value)


def _current_key(group_id: str, member_id: str) -> bytes:
    return current.RECORD.encode_key(
        current.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    )


def _with_epochs(role: str, tasks: Mapping[Task, int]) -> list[Current.TaskIds]:
    return [
        Current.TaskIds(
            subtopology_id=name,
            partitions=numbers,
            assignment_epochs=[tasks[role, name, number] for number in numbers],
        )
        for name, numbers in of_role(role, tasks)
    ]


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Return the tombstones of a member: its tasks first, its description last."""
    return [
        (_current_key(group_id, member_id), None),
        (_target_key(group_id, member_id), None),
        (_member_key(group_id, member_id), None),
    ]


def group_tombstones(group_id: str) -> list[Record]:
    """Return the tombstones of a group, to follow those of its members."""
    return [
        (_target_epoch_key(group_id), None),
        (_topology_key(group_id), None),
        (_epoch_key(group_id), None),
    ]

"""Replay of the records of streams groups. Pure.

The rule: a value creates its group unless one of this kind exists; a tombstone of a missing entry is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.coordinators.groups.epoch_member import MemberState, changed
from barnabas.coordinators.groups.replaying import Replay, replay_members, replay_target_epoch
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.records import STATES, Current
from barnabas.coordinators.groups.streams.tasks import ROLES, Task, read_tasks
from barnabas.wire.generated.records import streams_group_current_member_assignment as current
from barnabas.wire.generated.records import streams_group_member_metadata as member_metadata
from barnabas.wire.generated.records import streams_group_metadata as metadata
from barnabas.wire.generated.records import streams_group_target_assignment_member as target_member
from barnabas.wire.generated.records import streams_group_target_assignment_metadata as target_metadata
from barnabas.wire.generated.records import streams_group_topology as topology

_STATES_BY_NUMBER = {number: state for state, number in STATES.items()}


def _epoch(group: StreamsGroup, _: Any, written: Any) -> None:
    group.epoch, group.topics_hash = written.epoch, written.metadata_hash
    group.validated_epoch = written.validated_topology_epoch
    group.settings_used = {entry.key: entry.value for entry in written.last_assignment_configs or ()}


def _topology(group: StreamsGroup, _: Any, written: Any) -> None:
    group.topology = written
    group.configured = group.topics_seen = None


def _target(group: StreamsGroup, where: Any, written: Any) -> None:
    if written is None:
        group.target.pop(where.member_id, None)
    else:
        tasks = read_tasks(written.active_tasks, written.standby_tasks, written.warmup_tasks)
        group.target[where.member_id] = tasks


def _current(member: StreamsMember, written: Any) -> StreamsMember:
    epoch = written.member_epoch
    return changed(
        member,
        epoch=epoch,
        previous_epoch=written.previous_member_epoch,
        state=_STATES_BY_NUMBER.get(written.state, MemberState.UNKNOWN),
        assigned=_tasks_with_epochs(
            (written.active_tasks, written.standby_tasks, written.warmup_tasks), epoch
        ),
        revoking=_tasks_with_epochs(
            (
                written.active_tasks_pending_revocation,
                written.standby_tasks_pending_revocation,
                written.warmup_tasks_pending_revocation,
            ),
            epoch,
        ),
    )


def _tasks_with_epochs(lists: Iterable[Iterable[Current.TaskIds]], unknown_epoch: int) -> dict[Task, int]:
    """Return the tasks of a record with epochs; those without an epoch count as assigned in `unknown_epoch`."""
    tasks: dict[Task, int] = {}
    for role, entries in zip(ROLES, lists, strict=True):
        for entry in entries:
            epochs = entry.assignment_epochs or []
            if len(epochs) != len(entry.partitions):
                epochs = [unknown_epoch] * len(entry.partitions)
            for partition, epoch in zip(entry.partitions, epochs, strict=True):
                tasks[role, entry.subtopology_id, partition] = epoch
    return tasks


replay: Replay[StreamsGroup] = Replay(
    metadata.RECORD,
    [
        (metadata.RECORD, _epoch),
        (topology.RECORD, _topology),
        (target_metadata.RECORD, replay_target_epoch(nothing=-1)),
        (target_member.RECORD, _target),
        *replay_members(
            StreamsMember,
            (member_metadata.RECORD, StreamsMember.with_metadata),
            (current.RECORD, _current),
        ),
    ],
)
"""Replays a record, if it is one of a streams group."""

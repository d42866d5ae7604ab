"""Target assignments of groups with member epochs, and their records, in one decision or in parts. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from barnabas.coordinators.groups.epoch_group import EpochGroup
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Record

K = TypeVar("K", bound=Hashable)
L = TypeVar("L", contravariant=True)


class TargetRecords(Protocol[L]):
    """The records of a kind of group: its module `records`."""

    def target_record(self, group_id: str, member_id: str, assigned: Iterable[L], /) -> Record:
        """Return the record of a member's target."""

    def target_epoch_record(self, group_id: str, epoch: int, now_ms: int) -> Record:
        """Return the record of the group epoch of the target."""


def write_target(
    group: EpochGroup[Any, K],
    epoch: int,
    target: Mapping[str, frozenset[K]],
    records: TargetRecords[K],
    context: EventContext,
    before: dict[str, frozenset[K]] | None = None,
) -> None:
    """Write the changes of a target assignment, and its epoch.

    `before` is the previous target, if the event has moved a member's target to another member.
    """
    _write_members(group.id, group.target if before is None else before, target.items(), records, context)
    context.out.records.append(records.target_epoch_record(group.id, epoch, context.now_ms))


def write_part(
    group: EpochGroup[Any, K],
    epoch: int,
    part: Iterable[tuple[str, frozenset[K]]],
    records: TargetRecords[K],
    context: EventContext,
) -> bool:
    """Write the changes of a part of a target that was computed outside an event; return whether the group still needs it.

    Until `target_computed` has written the epoch, members stay in the one before.
    """
    if not group.epoch == epoch > group.assignment_epoch:
        return False
    of_members = ((id_, assignment) for id_, assignment in part if id_ in group.members)
    _write_members(group.id, group.target, of_members, records, context)
    return True


def target_computed(
    group: EpochGroup[Any, K],
    epoch: int,
    target: Mapping[str, frozenset[K]] | None,
    records: TargetRecords[K],
    context: EventContext,
) -> None:
    """Write a target that was computed outside an event, unless it is outdated: then the next heartbeat requests another.

    `target` is None if it could not be computed.
    """
    if group.assigning_epoch == epoch:
        group.assigning_epoch = 0
    if (
        target is not None
        and group.epoch == epoch > group.assignment_epoch
        and target.keys() == group.members.keys()
    ):
        write_target(group, epoch, target, records, context)


def _write_members(
    group_id: str,
    current: dict[str, frozenset[K]],
    part: Iterable[tuple[str, frozenset[K]]],
    records: TargetRecords[K],
    context: EventContext,
) -> None:
    for member_id, assigned in part:
        before = current.get(member_id)
        if before is assigned:
            continue
        if before == assigned:
            # the same objects from now on, so that the next comparison is short
            current[member_id] = assigned
        else:
            context.out.records.append(records.target_record(group_id, member_id, assigned))

"""The step of one member towards its target. Pure.

The rule: a partition is assigned to a member only when no other member has it, and counts as revoked only when its owner
no longer reports it. A member takes its steps alone; only members that are to get its partitions wait for it.

Partitions of consumer groups and tasks of streams groups move alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.coordinators.groups.epoch_member import EpochMember, MemberState
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

M = TypeVar("M", bound=EpochMember[Any])


@dataclass(slots=True)
class Step:
    """Partitions or tasks that a member keeps, must revoke, and can be assigned now, with the epochs of those that it has.

    `reported` are those in its request, None if the request has none.
    """

    kept: dict[Any, int]
    revoking: dict[Any, int]
    free: list[Any]
    reported: frozenset[Any] | None

    @property
    def has_to_revoke(self) -> bool:
        """True while the member has not reported the revocation of all that it must revoke."""
        return bool(self.revoking) and (self.reported is None or not self.reported.isdisjoint(self.revoking))


Adjust = Callable[[Step, Any, frozenset[Any], int], None]
"""Changes a step of a member towards a target of an epoch: (step, member, target, target epoch)."""


def reconcile(
    member: M,
    target_epoch: int,
    target: frozenset[Any],
    taken: Collection[Any],
    reported: frozenset[Any] | None,
    adjust: Adjust | None = None,
) -> M:
    """Return the member after the largest possible step; the same object if no step is possible.

    `taken` are partitions or tasks that cannot be assigned now; `reported` are those in its request, None if the request
    has none. `adjust` may change the step, for groups in which a member can have a task in several roles. Raises
    FENCED_MEMBER_EPOCH for a member in an unknown state.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    match member.state:
        case MemberState.UNREVOKED:
            if reported is None or not reported.isdisjoint(member.revoking):
                return member
            # all is revoked: the member has done its part for the next epoch
            return _step(member, member.epoch + 1, target_epoch, target, taken, reported, adjust)
        case MemberState.UNKNOWN:
            if reported is None or reported:
                raise RequestError(
                    ErrorCode.FENCED_MEMBER_EPOCH, "the member must give up all and join again"
                )
            return _step(member, target_epoch, target_epoch, target, taken, reported, adjust)
        case _:
            return _step(member, member.epoch, target_epoch, target, taken, reported, adjust)


def _step(
    member: M,
    epoch: int,
    target_epoch: int,
    target: frozenset[Any],
    taken: Collection[Any],
    reported: frozenset[Any] | None,
    adjust: Adjust | None,
) -> M:
    kept = {
        topic_partition: since
        for topic_partition, since in member.assigned.items()
        if topic_partition in target
    }
    revoking = {
        topic_partition: since
        for topic_partition, since in member.assigned.items()
        if topic_partition not in target
    }
    missing = [topic_partition for topic_partition in target if topic_partition not in kept]
    free = [topic_partition for topic_partition in missing if topic_partition not in taken]
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED
    step = Step(kept, revoking, free, reported)
    if adjust is not None:
        adjust(step, member, target, target_epoch)
    if step.has_to_revoke:
        return _moved(member, MemberState.UNREVOKED, epoch, kept, revoking)
    kept.update(dict.fromkeys(step.free, target_epoch))
    return _moved(member, state, target_epoch, kept, {})


def _moved(
    member: M, state: MemberState, epoch: int, assigned: dict[Hashable, int], revoking: dict[Hashable, int]
) -> M:
    """Return the member after the step, or the same object: its previous epoch must not be lost without need."""
    unchanged = (member.state, member.epoch, member.assigned, member.revoking)
    if unchanged == (state, epoch, assigned, revoking):
        return member
    return member.moved_to(state, epoch, assigned, revoking)

"""The step of one member towards its target. Pure.

The rule: a slot is given to a member only when nobody has it, and counts as given up only when its owner no longer
reports it. A member moves on alone; nobody waits for it except those who want what it must give up.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.errors import RequestError
from barnabas.groups.consumer.member import ConsumerMember, MemberState
from barnabas.groups.topics import Slot, Slots
from barnabas.wire.generated.errors import ErrorCode


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Slots,
    taken: Collection[Slot],
    reported: Slots | None,
) -> ConsumerMember:
    """The member after as large a step as is possible now; the same one if there is none.

    `taken` are the slots that any member has; `reported` is what this one says it has, None if it says nothing.
    Raises FENCED_MEMBER_EPOCH for a member in a state that is not known here.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    match member.state:
        case MemberState.UNREVOKED:
            if reported is None or not reported.isdisjoint(member.revoking):
                return member
            # All is given up: it has done what its next epoch needs.
            return _step(member, member.epoch + 1, target_epoch, target, taken, reported)
        case MemberState.UNKNOWN:
            if reported is None or reported:
                raise RequestError(
                    ErrorCode.FENCED_MEMBER_EPOCH, "the member must give up all and join again"
                )
            return _step(member, target_epoch, target_epoch, target, taken, reported)
        case _:
            return _step(member, member.epoch, target_epoch, target, taken, reported)


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Slots,
    taken: Collection[Slot],
    reported: Slots | None,
) -> ConsumerMember:
    kept = {slot: since for slot, since in member.assigned.items() if slot in target}
    revoking = {slot: since for slot, since in member.assigned.items() if slot not in target}
    if revoking and (reported is None or not reported.isdisjoint(revoking)):
        return _moved(member, MemberState.UNREVOKED, epoch, kept, revoking)
    wanted = [slot for slot in target if slot not in kept]
    free = [slot for slot in wanted if slot not in taken]
    kept.update(dict.fromkeys(free, target_epoch))
    state = MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED
    return _moved(member, state, target_epoch, kept, {})


def _moved(
    member: ConsumerMember,
    state: MemberState,
    epoch: int,
    assigned: dict[Slot, int],
    revoking: dict[Slot, int],
) -> ConsumerMember:
    """The member after the step, or the same one: its previous epoch must not be forgotten without need."""
    unchanged = (member.state, member.epoch, member.assigned, member.revoking)
    if unchanged == (state, epoch, assigned, revoking):
        return member
    return member.moved_to(state, epoch, assigned, revoking)

"""Members with their own epochs: the common part of consumer and streams groups. Pure.

The rule: a member is immutable; the replay of its record replaces it by a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, Generic, Self, TypeVar

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

LEAVE_EPOCH = -1
"""Epoch with which a member leaves."""
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""Epoch with which a static member leaves temporarily, and its epoch until it returns."""

K = TypeVar("K", bound=Hashable)


class MemberState(IntEnum):
    """State of a member on its way to its target, with the numbers that Kafka writes for consumers."""

    STABLE = 0
    UNREVOKED = 1
    """The member must revoke partitions before it can enter the next epoch."""
    UNRELEASED = 2
    """The member waits for partitions that others must revoke."""
    UNKNOWN = 127
    """Written by a broker with more states."""


@dataclass(frozen=True, slots=True)
class EpochMember(Generic[K]):
    """A member: its identity, its subscription, and its partitions or tasks.

    `assigned` and `revoking` have the member epoch in which each was assigned (KIP-1251). Entries of `revoking` belong
    to the member until it reports them as revoked.
    """

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Mapping[K, int] = field(default_factory=dict)
    revoking: Mapping[K, int] = field(default_factory=dict)

    @property
    def stale_epoch_error(self) -> ErrorCode:
        """The error code for a request with an outdated epoch."""
        return ErrorCode.STALE_MEMBER_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has all of its target in this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def check_epoch(self, epoch: int, reported: Set[K] | None) -> None:
        """Check the epoch of a heartbeat. Raises FENCED_MEMBER_EPOCH.

        A member that lost the last answer may continue with its previous epoch, if it owns nothing beyond its
        assignment.
        """
        if epoch == self.epoch:
            return
        may_go_on = epoch == self.previous_epoch and reported is not None and reported <= self.assigned.keys()
        if epoch > self.epoch or not may_go_on:
            raise RequestError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"the member is in epoch {self.epoch}, not {epoch}: it must give up all and join again",
            )

    def moved_to(
        self, state: MemberState, epoch: int, assigned: Mapping[K, int], revoking: Mapping[K, int]
    ) -> Self:
        """Return the member after a step; its last epoch becomes the previous one."""
        return changed(
            self,
            state=state,
            epoch=epoch,
            previous_epoch=self.epoch,
            assigned=assigned,
            revoking=revoking,
        )

    def away(self) -> Self:
        """Return the member after a static leave: it keeps its partitions, except revoked ones.

        After its return it may commit for them in any of its epochs.
        """
        return changed(
            self,
            epoch=LEAVE_FOR_A_WHILE_EPOCH,
            state=MemberState.STABLE,
            assigned=dict.fromkeys(self.assigned, 0),
            revoking={},
        )

    def without_assignment(self) -> Self:
        """Return the member after the tombstone of its current assignment."""
        return changed(self, assigned={}, revoking={}, epoch=-1, previous_epoch=-1)


E = TypeVar("E", bound=EpochMember[Any])

_slots: dict[type, tuple[tuple[str, Callable[[Any], Any], Callable[[Any, Any], None]], ...]] = {}
"""The fields of a class of members, each with its getter and setter."""


def changed(member: E, **values: Any) -> E:
    """Return a member with some fields replaced: like `dataclasses.replace`, in half the time.

    Raises TypeError for an unknown field.
    """
    kind = type(member)
    slots = _slots.get(kind)
    if slots is None:
        descriptors = [(each.name, getattr(kind, each.name)) for each in fields(kind)]
        slots = _slots[kind] = tuple((name, slot.__get__, slot.__set__) for name, slot in descriptors)
    new = object.__new__(kind)
    for name, read, write in slots:
        write(new, values.pop(name) if name in values else read(member))
    if values:
        raise TypeError(f"{kind.__name__} has no field {', '.join(values)}")
    return new

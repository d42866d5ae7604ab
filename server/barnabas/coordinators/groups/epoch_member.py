"""Members with epochs of their own, of consumer and streams groups: what they have in common. Pure.

The rule: a member never changes; a new one takes its place, when the record that says so is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final, Generic, Self, TypeVar

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

LEAVE_EPOCH = -1
"""Sent by a member that leaves."""
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""Sent by a static member that will come back, and its epoch until then."""

K = TypeVar("K", bound=Hashable)


class MemberState(IntEnum):
    """State of a member on its way to its target, with the numbers that Kafka writes for consumers."""

    STABLE = 0
    UNREVOKED = 1
    """It must give up partitions before it can enter the next epoch."""
    UNRELEASED = 2
    """It waits for partitions that others must give up."""
    UNKNOWN = 127
    """Written by a broker that knows more states."""


@dataclass(frozen=True, slots=True)
class EpochMember(Generic[K]):
    """A member: its identity, its subscription, and the partitions or tasks that it has.

    `assigned` and `revoking` give for each of them the member epoch in which it was assigned (KIP-1251). Those in
    `revoking` are still the member's until it reports them as revoked.
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
        """The error code for a request with another epoch."""
        return ErrorCode.STALE_MEMBER_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def check_epoch(self, epoch: int, reported: Set[K] | None) -> None:
        """Check the epoch of a heartbeat. Raises FENCED_MEMBER_EPOCH.

        A member that is behind by an answer that was lost may go on, if it has nothing that it should not have.
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
        """Return the member after a step; the epoch before the current one is remembered."""
        return changed(
            self,
            state=state,
            epoch=epoch,
            previous_epoch=self.epoch,
            assigned=assigned,
            revoking=revoking,
        )

    def away(self) -> Self:
        """Return the member after a static leave: it keeps its partitions, and has given up the revoked ones.

        Once it is back it counts as the one that has always had that: it may commit for it in any of its epochs.
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
"""The fields of a class of members, each with what reads and what writes it."""


def changed(member: E, **values: Any) -> E:
    """Return a member with other values in some of its fields: as `dataclasses.replace`, in half of its time.

    Raises TypeError for a field that there is not.
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

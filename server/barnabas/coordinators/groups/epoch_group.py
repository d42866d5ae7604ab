"""The common part of groups with member epochs, which change only by replay. Pure.

    Empty -> Assigning (the epoch is ahead of the target) -> Reconciling (members are behind the target) -> Stable

The rule: the state here changes only when a record is replayed. An event decides on records and changes nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from barnabas.cluster.metadata.image import TopicInfo
from barnabas.coordinators.groups.epoch_member import EpochMember, MemberState
from barnabas.coordinators.groups.group import OffsetRetention
from barnabas.coordinators.groups.member import MANY_MEMBERS
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision, Record
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

M = TypeVar("M")
E = TypeVar("E", bound=EpochMember[Any])
K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)

CLOCK_STEP_MS = 10_000
"""A time that lies further in the future was taken from a clock that has been set back since.

What a request that has waited takes for now lies behind it by less."""


@dataclass(slots=True)
class EpochGroup(ABC, Generic[M, K]):
    """One group of members M to which partitions or tasks K are assigned.

    Lifecycle: made by the first record of it, gone with the tombstone of its epoch.
    """

    kind: ClassVar[str]

    id: str
    settings: GroupSettings
    epoch: int = 0
    topics_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, M] = field(default_factory=dict)
    target: dict[str, frozenset[K]] = field(default_factory=dict)
    topics_seen: Mapping[str, TopicInfo] | None = field(default=None, compare=False)
    """The topics for which the hash was last compared: only another mapping needs another look."""
    assigned_ms: int = 0
    """When the target was made; 0 if that is not known."""
    assigning_epoch: int = field(default=0, compare=False)
    """The epoch for which an assignment is being computed aside, 0 for none."""

    @property
    def protocol_type(self) -> str:
        """Protocol type of the group: the name of its kind."""
        return self.kind

    @property
    def is_unused(self) -> bool:
        """True while the group has no members."""
        return not self.members

    @property
    def is_written(self) -> bool:
        """True if records of the group are in the log, as they always are: nothing is known of it otherwise."""
        return True

    def member(self, member_id: str) -> M:
        """Return a member. Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of {self.id!r}")
        return member

    def was_assigned_within(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether the last assignment is less than that ago.

        One that seems to be far in the future is not: the clock has been set back since.
        """
        since_ms = now_ms - self.assigned_ms
        return bool(interval_ms and self.assigned_ms) and -CLOCK_STEP_MS < since_ms < interval_ms

    def size_for(self, member_id: str) -> int:
        """Return about how many topics and partitions a heartbeat or the end of a member goes through."""
        return self.topic_count + self.assigned_count(member_id) + len(self.target.get(member_id, ()))

    @abstractmethod
    def is_at_rest(self, member_id: str, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether a member has what it is to have, and the group has seen these topics."""

    @property
    @abstractmethod
    def topic_count(self) -> int:
        """About how many topics the members want, as far as that is known without going through them."""

    @abstractmethod
    def assigned_count(self, member_id: str) -> int:
        """Return how many partitions or tasks a member has."""

    def check_empty(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members."""
        if self.members:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id!r} has members")

    def check_room(self, size_max: int, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if a member that is not known is one more than may be in."""
        if len(self.members) >= size_max and member_id not in self.members:
            raise RequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {size_max} members, which is the most"
            )

    def put_target(self, member_id: str, assigned: frozenset[K]) -> None:
        """Replace what a member is to have."""
        self.target[member_id] = assigned

    def drop_target(self, member_id: str) -> None:
        """Remove what a member is to have."""
        self.target.pop(member_id, None)

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Return what ends the group, with its members, in the order that replay needs."""

    def end(self, out: Decision) -> None:
        """Write the tombstones of the group and its members."""
        out.records += self.tombstones()


@dataclass(slots=True)
class ReconciledGroup(EpochGroup[E, K]):
    """A group in which everything has one owner, and members move to the target step by step (`reconciliation`)."""

    static_ids: dict[str, str] = field(default_factory=dict)
    """The member that has an instance id."""

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if anything can be assigned."""
        return True

    @property
    def state_name(self) -> str:
        """The state, with the name that clients see."""
        if not self.members:
            return "Empty"
        if not self.is_ready:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_at_rest(self, member_id: str, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether a member has what it is to have, and the group has seen these topics."""
        member = self.members.get(member_id)
        return (
            self.epoch == self.assignment_epoch
            and self.topics_seen is topics
            and member is not None
            and member.epoch == self.epoch
            and member.state is MemberState.STABLE
        )

    def assigned_count(self, member_id: str) -> int:
        """Return how many partitions or tasks a member has, and is to give up."""
        member = self.members.get(member_id)
        return 0 if member is None else len(member.assigned) + len(member.revoking)

    def static_member(self, instance_id: str, member_id: str) -> E:
        """Return the member that has an instance id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        owner_id = self.static_ids.get(instance_id)
        if owner_id is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"the instance id {instance_id!r} is not known")
        if owner_id != member_id:
            raise RequestError(
                ErrorCode.FENCED_INSTANCE_ID, f"the instance id {instance_id!r} belongs to {owner_id!r}"
            )
        return self.members[owner_id]

    def known_member(self, instance_id: str | None, member_id: str) -> E:
        """Return the member with these ids. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        return self.member(member_id) if instance_id is None else self.static_member(instance_id, member_id)

    def replaced_by(self, member: E) -> str | None:
        """Return the id of the member from which this one has taken over its instance id, if there is one."""
        holder = self.static_ids.get(member.instance_id) if member.instance_id is not None else None
        return None if holder == member.id else holder

    def was_another(self, member: E) -> bool:
        """Return whether a member that replaces a static one was in the group by itself: as such it has left."""
        return member.id in self.members and self.replaced_by(member) is not None

    def target_of(self, member: E) -> frozenset[K]:
        """Return a member's target; a member that replaces a static one takes over the target of that one."""
        replaced = self.replaced_by(member)
        return self.target.get(member.id if replaced is None else replaced, frozenset())

    def target_with(self, member: E) -> dict[str, frozenset[K]]:
        """Return the target with this member in it, and without the one that it replaces."""
        target = self.target.copy()
        replaced = self.replaced_by(member)
        if replaced is not None:
            target[member.id] = target.pop(replaced, frozenset())
        return target

    def members_with(self, member: E) -> list[E]:
        """Return all members, with this one as it is now, and without the one that it replaces."""
        after = self.members.copy()
        replaced = self.replaced_by(member)
        if replaced is not None:
            del after[replaced]
        after[member.id] = member
        return list(after.values())

    @abstractmethod
    def subscribed_topics(self) -> set[str]:
        """Return the topics of all members."""

    # --- offsets --------------------------------------------------------------------------------------------

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check a fetch of committed offsets. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise RequestError(member.stale_epoch_error)

    def check_offset_deletion(self) -> None:
        """Offsets may be deleted, except those of topics that members are subscribed to."""

    def offset_retention(self) -> OffsetRetention | None:
        """Return which offsets may expire: those of topics that no member is subscribed to."""
        return OffsetRetention(self.subscribed_topics())

    # --- time -----------------------------------------------------------------------------------------------

    def watch_revocation(self, member: E, context: EventContext) -> None:
        """A member that must give something up has its rebalance timeout to do so."""
        waits = member.state is MemberState.UNREVOKED
        due_ms = context.now_ms + member.rebalance_timeout_ms if waits else None
        context.out.timers["revocation", self.id, member.id] = due_ms

    def overdue_member(self, timer: str, member_id: str) -> E | None:
        """Return the member that a timer has found to be too late, None if it is gone or has done its part."""
        member = self.members.get(member_id)
        if member is not None and timer == "revocation" and member.state is not MemberState.UNREVOKED:
            return None
        return member

    # --- replaying records ----------------------------------------------------------------------------------

    @abstractmethod
    def add_assigned(self, member: E) -> None:
        """Count what a member has, and is to give up, as its."""

    @abstractmethod
    def remove_assigned(self, member: E) -> None:
        """Take back what `add_assigned` has done."""

    def put_member(self, member: E) -> None:
        """Add a member, or replace its earlier state."""
        self._release(member.id)
        self.members[member.id] = member
        self.add_assigned(member)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id

    def drop_member(self, member_id: str) -> None:
        """Remove a member, if it is there."""
        self._release(member_id)
        self.members.pop(member_id, None)

    def _release(self, member_id: str) -> None:
        """Take away what a member has, and its instance id."""
        member = self.members.get(member_id)
        if member is None:
            return
        self.remove_assigned(member)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]


def uncount(counter: Counter[T], items: Iterable[T]) -> None:
    """Decrement these counts, and drop those that become 0."""
    for item in items:
        if counter[item] == 1:
            del counter[item]
        else:
            counter[item] -= 1


def watch_each(
    members: Collection[M], watch: Callable[[M, EventContext], None], context: EventContext
) -> None:
    """Have `watch` set the timers of each of these; where they are many, after the event."""
    if len(members) < MANY_MEMBERS:
        for member in members:
            watch(member, context)
        return
    everybody = tuple(members)

    def timers() -> Iterator[tuple[Hashable, int | None]]:
        for member in everybody:
            of_one = EventContext(context.image, context.now_ms, Decision())
            watch(member, of_one)
            yield from of_one.out.timers.items()

    context.out.many_timers.append(timers())

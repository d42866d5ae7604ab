"""The common part of groups with member epochs, which only the replay of records changes. Pure.

    Empty -> Assigning (the epoch is ahead of the target) -> Reconciling (members are behind the target) -> Stable

The rule: only the replay of a record changes the state here. An event decides on records and changes nothing else.
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
"""A time further in the future than this comes from a clock that has been set back.

The time of a delayed request is behind by less.
"""


@dataclass(slots=True)
class EpochGroup(ABC, Generic[M, K]):
    """One group of members M to which partitions or tasks K are assigned.

    Lifecycle: created by its first record, ended by the tombstone of its epoch.
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
    """The topics at the last comparison of the hash: only another mapping is compared again."""
    assigned_ms: int = 0
    """Time of the last target; 0 if unknown."""
    assigning_epoch: int = field(default=0, compare=False)
    """The epoch for which an assignment is being computed outside an event, 0 for none."""

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
        """True: a group with epochs exists only by its records."""
        return True

    def member(self, member_id: str) -> M:
        """Return a member. Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of {self.id!r}")
        return member

    def was_assigned_within(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether the last assignment is less than that ago.

        A time far in the future does not count: the clock has been set back since.
        """
        since_ms = now_ms - self.assigned_ms
        return bool(interval_ms and self.assigned_ms) and -CLOCK_STEP_MS < since_ms < interval_ms

    def size_for(self, member_id: str) -> int:
        """Return about how many topics and partitions a heartbeat, or the removal of a member, visits."""
        return self.topic_count + self.assigned_count(member_id) + len(self.target.get(member_id, ()))

    @abstractmethod
    def is_at_rest(self, member_id: str, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether a member has its whole target, and the group has seen these topics."""

    @property
    @abstractmethod
    def topic_count(self) -> int:
        """Approximate number of topics that members subscribe to, without visiting them."""

    @abstractmethod
    def assigned_count(self, member_id: str) -> int:
        """Return how many partitions or tasks a member has."""

    def check_empty(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members."""
        if self.members:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id!r} has members")

    def check_room(self, size_max: int, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if an unknown member would exceed the limit."""
        if len(self.members) >= size_max and member_id not in self.members:
            raise RequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {size_max} members, which is the most"
            )

    def put_target(self, member_id: str, assigned: frozenset[K]) -> None:
        """Replace a member's target."""
        self.target[member_id] = assigned

    def drop_target(self, member_id: str) -> None:
        """Remove a member's target."""
        self.target.pop(member_id, None)

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Return the tombstones of the group and its members, in the order that replay needs."""

    def end(self, out: Decision) -> None:
        """Write the tombstones of the group and its members."""
        out.records += self.tombstones()


@dataclass(slots=True)
class ReconciledGroup(EpochGroup[E, K]):
    """A group with one owner of each partition or task; members move to the target in steps (`reconciliation`)."""

    static_ids: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if the group has anything to assign."""
        return True

    @property
    def state_name(self) -> str:
        """The state, as clients see its name."""
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
        """Return whether a member has its whole target, and the group has seen these topics."""
        member = self.members.get(member_id)
        return (
            self.epoch == self.assignment_epoch
            and self.topics_seen is topics
            and member is not None
            and member.epoch == self.epoch
            and member.state is MemberState.STABLE
        )

    def assigned_count(self, member_id: str) -> int:
        """Return how many partitions or tasks a member has, including those that it must revoke."""
        member = self.members.get(member_id)
        return 0 if member is None else len(member.assigned) + len(member.revoking)

    def static_member(self, instance_id: str, member_id: str) -> E:
        """Return the member with an instance id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
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
        """Return the id of the former member, if this one has taken over its instance id; else None."""
        holder = self.static_ids.get(member.instance_id) if member.instance_id is not None else None
        return None if holder == member.id else holder

    def was_another(self, member: E) -> bool:
        """Return whether a member that replaces a static one was a member itself before: that one has left."""
        return member.id in self.members and self.replaced_by(member) is not None

    def target_of(self, member: E) -> frozenset[K]:
        """Return a member's target; a member that replaces a static one takes over its target."""
        replaced = self.replaced_by(member)
        return self.target.get(member.id if replaced is None else replaced, frozenset())

    def target_with(self, member: E) -> dict[str, frozenset[K]]:
        """Return the target with this member, and without the one that it replaces."""
        target = self.target.copy()
        replaced = self.replaced_by(member)
        if replaced is not None:
            target[member.id] = target.pop(replaced, frozenset())
        return target

    def members_with(self, member: E) -> list[E]:
        """Return all members, with this one updated, and without the one that it replaces."""
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
        """Accept: offsets may be deleted, except those of subscribed topics."""

    def offset_retention(self) -> OffsetRetention | None:
        """Return which offsets may expire: those of topics without subscribers."""
        return OffsetRetention(self.subscribed_topics())

    # --- time -----------------------------------------------------------------------------------------------

    def watch_revocation(self, member: E, context: EventContext) -> None:
        """Start the rebalance timeout of a member that must revoke something."""
        waits = member.state is MemberState.UNREVOKED
        due_ms = context.now_ms + member.rebalance_timeout_ms if waits else None
        context.out.timers["revocation", self.id, member.id] = due_ms

    def overdue_member(self, timer: str, member_id: str) -> E | None:
        """Return the member of an expired timer, None if it has left, or has revoked in time."""
        member = self.members.get(member_id)
        if member is not None and timer == "revocation" and member.state is not MemberState.UNREVOKED:
            return None
        return member

    # --- replaying records ----------------------------------------------------------------------------------

    @abstractmethod
    def add_assigned(self, member: E) -> None:
        """Record a member's partitions or tasks, including those that it must revoke, as its own."""

    @abstractmethod
    def remove_assigned(self, member: E) -> None:
        """Undo `add_assigned`."""

    def put_member(self, member: E) -> None:
        """Add a member, or replace its earlier state."""
        self._release(member.id)
        self.members[member.id] = member
        self.add_assigned(member)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id

    def drop_member(self, member_id: str) -> None:
        """Remove a member, if the group has it."""
        self._release(member_id)
        self.members.pop(member_id, None)

    def _release(self, member_id: str) -> None:
        """Release a member's partitions or tasks, and its instance id."""
        member = self.members.get(member_id)
        if member is None:
            return
        self.remove_assigned(member)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]


def uncount(counter: Counter[T], items: Iterable[T]) -> None:
    """Decrement these counts, and remove those that become 0."""
    for item in items:
        if counter[item] == 1:
            del counter[item]
        else:
            counter[item] -= 1


def watch_each(
    members: Collection[M], watch: Callable[[M, EventContext], None], context: EventContext
) -> None:
    """Call `watch` to set the timers of each member; if they are many, after the event."""
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

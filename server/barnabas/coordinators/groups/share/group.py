"""A share group: its members, their target, and the partitions with a state at the share coordinator. Pure.

    Empty (no members) -> Stable

The rule: only the replay of a record changes the state here. An event decides on records and changes nothing else. A
share group stays until it is deleted, with or without members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from barnabas.cluster.metadata.image import TopicInfo
from barnabas.coordinators.groups.epoch_group import EpochGroup, uncount
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.share import records
from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.coordinators.groups.share.topic_states import NO_TOPIC_STATES, TopicStates
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Record
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions


@dataclass(slots=True)
class ShareGroup(EpochGroup[ShareMember, TopicIdPartition]):
    """One share group."""

    kind: ClassVar[str] = "share"

    topic_states: TopicStates = NO_TOPIC_STATES
    topics: Counter[str] = field(default_factory=Counter)
    """Number of members that are subscribed to a topic."""
    copies: Counter[TopicIdPartition] = field(default_factory=Counter)
    """Number of members with a partition in their target."""
    settled: tuple[object, ...] = field(default=(), compare=False)
    """Topics, states and epoch when target and states were last found complete; see `membership`."""
    complete: tuple[object, ...] = field(default=(), compare=False)
    """Topics and states when all partitions of all topics last had a state; see `membership`."""
    begun_ms: dict[bytes, int] = field(default_factory=dict, compare=False)
    """Time of the last request to the share coordinator to initialize a topic's partitions."""

    @property
    def state_name(self) -> str:
        """The state, as clients see its name."""
        return "Stable" if self.members else "Empty"

    @property
    def is_unused(self) -> bool:
        """False: a share group ends only when it is deleted."""
        return False

    def is_settled(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether the target is known to cover all partitions that have a state."""
        return _are_same((topics, self.topic_states, self.assignment_epoch), self.settled)

    def is_complete(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether all partitions of all topics are known to have a state."""
        return _are_same((topics, self.topic_states), self.complete)

    def is_at_rest(self, member_id: str, topics: Mapping[str, TopicInfo]) -> bool:
        """Return whether a member has its whole target, and no state is to be initialized."""
        member = self.members.get(member_id)
        return (
            self.topics_seen is topics
            and member is not None
            and member.epoch == self.epoch == self.assignment_epoch
            and self.is_settled(topics)
            and self.is_complete(topics)
        )

    @property
    def topic_count(self) -> int:
        """Number of subscribed topics, plus the topics and partitions in `topic_states`."""
        return len(self.topics) + self.topic_states.size

    def assigned_count(self, member_id: str) -> int:
        """Return how many partitions a member has."""
        member = self.members.get(member_id)
        return 0 if member is None else len(member.assigned)

    def subscribed_topics(self) -> set[str]:
        """Return the topics of all members."""
        return set(self.topics)

    def topics_with(self, member: ShareMember) -> Set[str]:
        """Return the topics of all members, with this one as it is now."""
        before = self.members.get(member.id)
        had = before.topics if before is not None else frozenset[str]()
        if had == member.topics:
            return self.topics.keys()
        gone = {name for name in had - member.topics if self.topics[name] == 1}
        return (self.topics.keys() - gone) | member.topics

    def topics_without(self, member: ShareMember) -> Set[str]:
        """Return the topics of all other members."""
        return self.topics.keys() - {name for name in member.topics if self.topics[name] == 1}

    # --- replaying records ----------------------------------------------------------------------------------

    def put_member(self, member: ShareMember) -> None:
        """Add a member, or replace its earlier state."""
        before = self.members.get(member.id)
        self.members[member.id] = member
        if before is None or before.topics != member.topics:
            self._count_topics(before, member)

    def drop_member(self, member_id: str) -> None:
        """Remove a member, if the group has it."""
        self._count_topics(self.members.pop(member_id, None), None)

    def _count_topics(self, before: ShareMember | None, after: ShareMember | None) -> None:
        if before is not None:
            uncount(self.topics, before.topics)
        if after is not None:
            self.topics.update(after.topics)
        self.complete = ()

    def put_target(self, member_id: str, assigned: TopicIdPartitions) -> None:
        """Replace a member's target."""
        self.drop_target(member_id)
        self.target[member_id] = assigned
        self.copies.update(assigned)

    def drop_target(self, member_id: str) -> None:
        """Remove a member's target."""
        uncount(self.copies, self.target.pop(member_id, NO_PARTITIONS))

    # --- offsets: a share group has none --------------------------------------------------------------------

    def check_commit(self, committer: Committer, context: EventContext) -> NoReturn:
        """Refuse commits: share groups have no committed offsets. Raises GROUP_ID_NOT_FOUND."""
        del committer, context
        self.check_offset_deletion()

    def check_offset_deletion(self) -> NoReturn:
        """Refuse the deletion of offsets: share groups have none. Raises GROUP_ID_NOT_FOUND."""
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.id!r} is a share group")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Accept any fetch of offsets: share groups have none."""

    def offset_retention(self) -> None:
        """Return that no offset expires."""

    def tombstones(self) -> list[Record]:
        """Return the tombstones of the group and its members, in the order that replay needs."""
        out: list[Record] = []
        for member_id in self.members.keys() | self.target.keys():
            out += records.member_tombstones(self.id, member_id)
        out.append(records.target_epoch_tombstone(self.id))
        out.append(records.known_tombstone(self.id))
        out.append(records.epoch_tombstone(self.id))
        return out


def _are_same(now: tuple[object, ...], before: tuple[object, ...]) -> bool:
    """Return whether these are identical objects, one by one."""
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))

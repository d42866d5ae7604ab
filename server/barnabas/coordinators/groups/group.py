"""Interface of every kind of group: classic, consumer, share and streams groups. Pure.

The rule: describing, listing, deleting and expiring groups, and committing offsets, use this interface; each kind of
group implements the differences.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import ClassVar, NamedTuple, Protocol

from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.topic_partitions import TopicPartition

LAST_WITHOUT_MEMBER_EPOCHS, FIRST_WITH_MEMBER_EPOCHS = 8, 9
"""The last version of OffsetCommit with generations only, and the first that may have member epochs."""


class Committer(NamedTuple):
    """Member or client that commits offsets, with the partitions and the version of OffsetCommit.

    `generation` is the member epoch in groups with epochs, and -1 for a client that is no member. A transaction's
    commits count as the last version of OffsetCommit without member epochs, or as the first with them (KIP-1319).
    """

    member_id: str
    generation: int
    instance_id: str | None = None
    topic_partitions: Collection[TopicPartition] = ()
    api_version: int = LAST_WITHOUT_MEMBER_EPOCHS
    transactional: bool = False


class OffsetRetention(NamedTuple):
    """Committed offsets of a group that may expire now (KIP-211): those in topics that no member reads."""

    topics_in_use: Set[str] = frozenset()
    empty_since_ms: int = 0
    """Time at which its last member left; no offset's retention begins earlier."""


class Group(Protocol):
    """A group of any kind."""

    kind: ClassVar[str]
    id: str

    @property
    def state_name(self) -> str:
        """The state, as clients see its name."""

    @property
    def protocol_type(self) -> str:
        """Protocol type of the group, such as `consumer`."""

    @property
    def is_unused(self) -> bool:
        """True if the group may end, or become a group of another kind: it has no members, and none about to join."""

    @property
    def is_written(self) -> bool:
        """True if records of the group are in the log."""

    def check_commit(self, committer: Committer, context: EventContext) -> None:
        """Raise a RequestError if this committer may not commit offsets."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise a RequestError if this member may not fetch committed offsets."""

    def check_offset_deletion(self) -> None:
        """Raise a RequestError if no offset at all may be deleted (OffsetDelete)."""

    def subscribed_topics(self) -> Set[str] | None:
        """Return the topics of all members, None if they may be subscribed to anything."""

    def offset_retention(self) -> OffsetRetention | None:
        """Return which offsets may expire, None if all are kept."""

    def end(self, out: Decision) -> None:
        """Write the tombstones of the group and its members, and cancel the timers of members that are about to join."""

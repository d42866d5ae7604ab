"""A share group: what is known of it, and of the state of the partitions that it reads. Pure.

    Empty (nobody is in it) -> Stable

The rule: the state here changes only when a record is replayed. What is decided meanwhile is records and nothing else.
A share group stays until it is deleted, whether or not anybody is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from barnabas.errors import RequestError
from barnabas.groups.epoch_group import EpochGroup
from barnabas.groups.group import Committer
from barnabas.groups.share import records
from barnabas.groups.share.known import NOTHING_KNOWN, KnownTopics
from barnabas.groups.share.member import ShareMember
from barnabas.statemachine.context import EventContext
from barnabas.statemachine.decision import Record
from barnabas.topic_partitions import TopicIdPartition
from barnabas.wire.generated.errors import ErrorCode


@dataclass(slots=True)
class ShareGroup(EpochGroup[ShareMember, TopicIdPartition]):
    """One group."""

    kind: ClassVar[str] = "share"

    known: KnownTopics = NOTHING_KNOWN
    assigned_ms: int = field(default=0, compare=False)
    """When the target was made; 0 if that is not known."""
    begun_ms: dict[bytes, int] = field(default_factory=dict, compare=False)
    """When the share coordinator was last asked to begin the state of a topic's partitions."""

    @property
    def state_name(self) -> str:
        """The state, with the name that clients see."""
        return "Stable" if self.members else "Empty"

    @property
    def is_unused(self) -> bool:
        """Whether it may end: only when it is deleted."""
        return False

    def subscribed_topics(self) -> set[str]:
        """Return the topics of all members."""
        return set().union(*(member.topics for member in self.members.values()))

    # --- offsets: a share group has none --------------------------------------------------------------------

    def check_commit(self, committer: Committer, context: EventContext) -> NoReturn:
        """Nobody commits offsets here. Raises GROUP_ID_NOT_FOUND."""
        del committer, context
        self.check_offset_deletion()

    def check_offset_deletion(self) -> NoReturn:
        """There are no offsets. Raises GROUP_ID_NOT_FOUND."""
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.id!r} is a share group")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Let anybody see that there are no offsets."""

    def offset_retention(self) -> None:
        """Let no offset expire."""

    def tombstones(self) -> list[Record]:
        """Return what ends the group, with its members, in the order that replay needs."""
        out: list[Record] = []
        for member_id in self.members.keys() | self.target.keys():
            out += records.member_tombstones(self.id, member_id)
        out.append(records.target_epoch_tombstone(self.id))
        out.append(records.known_tombstone(self.id))
        out.append(records.epoch_tombstone(self.id))
        return out

"""A share group: what is known of it, and of the state of the partitions that it reads. Pure.

    Empty (nobody is in it) -> Stable

The rule: the state here changes only when a record is replayed. What is decided meanwhile is records and nothing else.
A share group stays until it is deleted, whether or not anybody is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from barnabas.cluster.image import TopicInfo
from barnabas.errors import RequestError
from barnabas.groups.member_lookup import member_of
from barnabas.groups.settings import GroupSettings
from barnabas.groups.share import records
from barnabas.groups.share.known import NOTHING_KNOWN, KnownTopics
from barnabas.groups.share.member import ShareMember
from barnabas.statemachine.decision import Record
from barnabas.topic_partitions import TopicIdPartitions
from barnabas.wire.generated.errors import ErrorCode


@dataclass(slots=True)
class ShareGroup:
    """One group. Lifecycle: made by the first record of it, gone with the tombstone of its epoch."""

    kind: ClassVar[str] = "share"

    id: str
    settings: GroupSettings
    epoch: int = 0
    topics_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, TopicIdPartitions] = field(default_factory=dict)
    known: KnownTopics = NOTHING_KNOWN
    topics_seen: Mapping[str, TopicInfo] | None = field(default=None, compare=False)
    """The topics for which the hash was last compared: only another mapping needs another look."""
    begun_ms: dict[bytes, int] = field(default_factory=dict, compare=False)
    """When the share coordinator was last asked to begin the state of a topic's partitions."""

    @property
    def state_name(self) -> str:
        """The state, as clients are told."""
        return "Stable" if self.members else "Empty"

    @property
    def protocol_type(self) -> str:
        """What the members do with the group."""
        return "share"

    def member(self, member_id: str) -> ShareMember:
        """A member. Raises UNKNOWN_MEMBER_ID."""
        return member_of(self.id, self.members, member_id)

    def check_empty(self) -> None:
        """Raise NON_EMPTY_GROUP if somebody is in the group."""
        if self.members:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id!r} has members")

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        topic_partitions: Iterable[object],
        api_version: int,
        *,
        transactional: bool = False,
    ) -> NoReturn:
        """Nobody commits offsets here. Raises GROUP_ID_NOT_FOUND."""
        del member_id, epoch, topic_partitions, api_version, transactional
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.id!r} is a share group")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """There are no committed offsets here, and anybody may be told so."""

    def tombstones(self) -> list[Record]:
        """What ends the group, with its members, in the order that replay needs."""
        out: list[Record] = []
        for member_id in self.members.keys() | self.target.keys():
            out += records.member_tombstones(self.id, member_id)
        out.append(records.target_epoch_tombstone(self.id))
        out.append(records.known_tombstone(self.id))
        out.append(records.epoch_tombstone(self.id))
        return out

"""The members of a classic group, the states of the group, and what a JoinGroup request brings. Pure.

The rule: what a request asks about all members is counted as they change. A thousand members may join at once, and none of
their requests may look at each of the others.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue


class State(Enum):
    """The states, with the names that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class Member:
    """One member. A waiter is the number of a request that is not answered yet, None where there is none.

    `protocols` and `join_waiter` are changed through `Members`, which counts them. `is_new` until its first generation
    begins: nobody knows yet whether its client still waits for that.
    """

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    join_waiter: int | None = None
    sync_waiter: int | None = None
    is_new: bool = False

    def metadata_for(self, protocol: str) -> bytes:
        """What the member said for a protocol; empty if it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self, protocol: str) -> GroupMetadataValue.MemberMetadata:
        """What must be remembered of it, with what it said for the chosen protocol."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=self.assignment,
        )

    @classmethod
    def restored(cls, entry: GroupMetadataValue.MemberMetadata, protocol: str) -> Member:
        """The member as it was when this was written; of its protocols, only the chosen one is known."""
        return cls(
            id=entry.member_id,
            instance_id=entry.group_instance_id,
            client_id=entry.client_id,
            client_host=entry.client_host,
            session_timeout_ms=entry.session_timeout,
            rebalance_timeout_ms=(
                entry.rebalance_timeout if entry.rebalance_timeout >= 0 else entry.session_timeout
            ),
            protocols=[(protocol, entry.subscription)],
            assignment=entry.assignment,
        )


@dataclass(slots=True)
class Joining:
    """A JoinGroup request with what the handler knows beyond its fields."""

    request: JoinGroupRequest
    client_id: str
    client_host: str
    waiter: int
    new_member_id: str
    known_id_required: bool
    can_skip_assignment: bool

    @property
    def new_bare_id(self) -> str:
        """The random part of the new id alone, in Kafka's text, as members of consumer groups have it."""
        digits = self.new_member_id[-36:].replace("-", "")
        try:
            return urlsafe_b64encode(bytes.fromhex(digits)).decode().rstrip("=")
        except ValueError:
            return self.new_member_id


class Members(dict[str, Member]):
    """The members by id, in the order in which they came."""

    __slots__ = ("_lists", "_votes", "joining_count")

    def __init__(self) -> None:
        super().__init__()
        self._votes: Counter[str] = Counter()  # how many members know a protocol
        self._lists: Counter[tuple[str, ...]] = Counter()  # and how many know just these, in this order
        self.joining_count = 0
        """How many wait for the answer to a JoinGroup request."""

    def __setitem__(self, member_id: str, member: Member) -> None:
        if member_id in self:
            self._count(self[member_id], -1)
        super().__setitem__(member_id, member)
        self._count(member, 1)

    def __delitem__(self, member_id: str) -> None:
        self._count(self[member_id], -1)
        super().__delitem__(member_id)

    def take(self, member_id: str) -> Member:
        """Remove a member and return it."""
        member = self[member_id]
        del self[member_id]
        return member

    def await_join(self, member: Member, waiter: int | None) -> None:
        """The member waits for that JoinGroup request to be answered, or for none."""
        self.joining_count += (waiter is not None) - (member.join_waiter is not None)
        member.join_waiter = waiter

    def learn(self, member: Member, protocols: list[tuple[str, bytes]]) -> None:
        """The member knows these protocols now."""
        self._vote(member, -1)
        member.protocols = protocols
        self._vote(member, 1)

    def shares(self, protocols: Iterable[str]) -> bool:
        """Whether one of these is known to all members."""
        count = len(self)
        return any(self._votes[name] == count for name in protocols)

    def choose_protocol(self) -> str:
        """Of the protocols that all know, the one that most members prefer."""
        shared = {name for name, count in self._votes.items() if count == len(self)}
        assert shared, "members without a protocol in common are not let in"
        votes: Counter[str] = Counter()
        for names, count in self._lists.items():
            votes[next(name for name in names if name in shared)] += count
        return votes.most_common(1)[0][0]

    def end_joins(self) -> list[tuple[int, str]]:
        """Nobody waits any more for the answer to a JoinGroup request; return who did: (waiter, member id)."""
        waiting = [
            (member.join_waiter, member.id) for member in self.values() if member.join_waiter is not None
        ]
        for member in self.values():
            member.join_waiter = None
        self.joining_count = 0
        return waiting

    def end_syncs(self) -> list[tuple[int, str]]:
        """Nobody waits any more for the answer to a SyncGroup request; return who did: (waiter, member id)."""
        waiting = [
            (member.sync_waiter, member.id) for member in self.values() if member.sync_waiter is not None
        ]
        for member in self.values():
            member.sync_waiter = None
        return waiting

    def _count(self, member: Member, change: int) -> None:
        self.joining_count += change * (member.join_waiter is not None)
        self._vote(member, change)

    def _vote(self, member: Member, change: int) -> None:
        names = tuple([name for name, _ in member.protocols])
        for name in set(names):
            self._votes[name] += change
        self._lists[names] += change
        if not self._lists[names]:
            del self._lists[names]

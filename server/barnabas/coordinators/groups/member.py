"""The members of a classic group, the states of the group, and the content of a JoinGroup request. Pure.

The rule: totals over all members are counted as members change. A thousand members may join at once, and none of their
requests may visit all the others.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, KeysView, Sequence
from enum import Enum
from typing import Final, TypeVar

from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue

K = TypeVar("K", bound=Hashable)
MANY_MEMBERS: Final = 500
"""From this number of members on, work for each of them is done in slices, or in a thread."""


class State(Enum):
    """The states, with their names for clients."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Member:
    """A member of a classic group. It is immutable; a new one replaces it when the member joins with other metadata.

    `joined_in` is the generation of the group when it joined: in that generation it is not known whether its client
    still waits for the next.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "joined_in",
        "protocol_names",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: list[tuple[str, bytes]],
        joined_in: int = -1,
    ) -> None:
        self.id = id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.protocol_names = tuple([name for name, _ in protocols])
        """The supported protocols, the preferred first."""
        self.joined_in = joined_in

    def again(
        self,
        member_id: str,
        protocols: list[tuple[str, bytes]],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> Member:
        """Return the same member after it has joined again with other values."""
        return Member(
            member_id, self.instance_id, self.client_id, self.client_host,
            session_timeout_ms, rebalance_timeout_ms, protocols, self.joined_in,
        )  # fmt: skip

    def metadata_for(self, protocol: str) -> bytes:
        """Return the metadata that the member sent for a protocol; empty if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def record(self, protocol: str, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        """Return the member's part of the group's record, with its metadata for the chosen protocol."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )

    @classmethod
    def restored(cls, entry: GroupMetadataValue.MemberMetadata, protocol: str) -> Member:
        """Return the member of a record, of which only the chosen protocol is known."""
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
        )


class Joining:
    """A JoinGroup request, with further facts from the handler. `new_member_id` is for a member without an id."""

    __slots__ = (
        "can_skip_assignment",
        "client_host",
        "client_id",
        "known_id_required",
        "new_member_id",
        "request",
        "waiter",
    )

    def __init__(
        self,
        request: JoinGroupRequest,
        client_id: str,
        client_host: str,
        waiter: int,
        new_member_id: str,
        *,
        known_id_required: bool,
        can_skip_assignment: bool,
    ) -> None:
        self.request = request
        self.client_id = client_id
        self.client_host = client_host
        self.waiter = waiter
        self.new_member_id = new_member_id
        self.known_id_required = known_id_required
        self.can_skip_assignment = can_skip_assignment

    @property
    def new_bare_id(self) -> str:
        """The random part of the new id, in Kafka's text, as ids of members of consumer groups."""
        digits = self.new_member_id[-36:].replace("-", "")
        try:
            return urlsafe_b64encode(bytes.fromhex(digits)).decode().rstrip("=")
        except ValueError:
            return self.new_member_id


class Members:
    """The members by id, in the order in which they joined, and their unanswered requests.

    A waiter is the number of such a request.
    """

    __slots__ = ("_by_id", "_lists", "_timeouts", "_votes", "joining", "syncing")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._votes: dict[str, int] = {}  # number of members that support a protocol
        self._lists: dict[tuple[str, ...], int] = {}  # and how many know just these, in this order
        self._timeouts: dict[int, int] = {}  # how many have a rebalance timeout, in ms
        self.joining: dict[str, int] = {}
        """The waiters of JoinGroup requests by member."""
        self.syncing: dict[str, int] = {}
        """The waiters of SyncGroup requests by member."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        """Return a member, or None."""
        return self._by_id.get(member_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def keys(self) -> KeysView[str]:
        """Return the ids of all members."""
        return self._by_id.keys()

    def first_id(self) -> str | None:
        """Return the id of the member that joined first."""
        return next(iter(self._by_id), None)

    def values(self) -> tuple[Member, ...]:
        """Return the members."""
        return tuple(self._by_id.values())

    def put(self, member: Member) -> None:
        """Add a member, or replace the one with its id."""
        before = self._by_id.get(member.id)
        if before is not None:
            self._count(before.protocol_names, before.rebalance_timeout_ms, -1)
        self._by_id[member.id] = member
        self._count(member.protocol_names, member.rebalance_timeout_ms, 1)

    def take(self, member_id: str) -> Member:
        """Remove a member, with its waiters, and return it."""
        member = self._by_id.pop(member_id)
        self._count(member.protocol_names, member.rebalance_timeout_ms, -1)
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        return member

    def drop(self, members: Sequence[Member]) -> None:
        """Remove very many members without waiting requests."""
        alike = Counter((member.protocol_names, member.rebalance_timeout_ms) for member in members)
        for (names, timeout_ms), count in alike.items():
            self._count(names, timeout_ms, -count)
        for member in members:
            del self._by_id[member.id]

    @property
    def longest_rebalance_ms(self) -> int:
        """The longest rebalance timeout; 0 without members."""
        return max(self._timeouts, default=0)

    def shares(self, protocols: Iterable[str]) -> bool:
        """Return whether all members support one of these protocols."""
        count = len(self._by_id)
        return any(self._votes.get(name, 0) == count for name in protocols)

    def choose_protocol(self, current: str | None = None) -> str:
        """Return the most preferred of the protocols that all members support; `current` if it is among them."""
        if len(self._lists) == 1:  # nearly always: all members support the same, in the same order
            return next(iter(self._lists))[0]
        anybody = next(iter(self._by_id.values()))
        shared = {name for name in anybody.protocol_names if self._votes[name] == len(self)}
        assert shared, "members without a protocol in common cannot join"
        votes: Counter[str] = Counter()
        for names, count in self._lists.items():
            votes[next(name for name in names if name in shared)] += count
        protocol, most = votes.most_common(1)[0]
        return current if current is not None and votes[current] == most else protocol

    def end_joins(self) -> dict[str, int]:
        """Remove and return the waiters of JoinGroup requests, by member."""
        waiting, self.joining = self.joining, {}
        return waiting

    def end_syncs(self) -> dict[str, int]:
        """Remove and return the waiters of SyncGroup requests, by member."""
        waiting, self.syncing = self.syncing, {}
        return waiting

    def _count(self, names: tuple[str, ...], timeout_ms: int, change: int) -> None:
        for name in names if len(names) == 1 else set(names):
            _add(self._votes, name, change)
        _add(self._lists, names, change)
        _add(self._timeouts, timeout_ms, change)


def _add(counts: dict[K, int], key: K, change: int) -> None:
    """Change a count, and remove it at 0."""
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]

"""The members of a classic group, the states of the group, and what a JoinGroup request brings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
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
    DEAD = "Dead"


@dataclass(slots=True)
class Member:
    """One member. A waiter is the number of a request that is not answered yet, None where there is none.

    `is_new` until its first generation begins: nobody knows yet whether its client still waits for that.
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
    synced: bool = False
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
            synced=True,
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


def shared_protocols(members: Collection[Member]) -> set[str]:
    """The protocols that all members know."""
    votes = Counter(name for member in members for name in {name for name, _ in member.protocols})
    return {name for name, count in votes.items() if count == len(members)}


def chosen_protocol(members: Collection[Member]) -> str:
    """Of the protocols that all know, the one that most members prefer."""
    shared = shared_protocols(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in shared) for member in members if shared
    )
    assert votes, "members without a protocol in common are not let in"
    return votes.most_common(1)[0][0]

"""State of a group of the classic protocol, its rules for offsets, and its record. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Self

from barnabas.coordinators.groups.consumer_protocol import CONSUMER, read_topics
from barnabas.coordinators.groups.group import Committer, OffsetRetention
from barnabas.coordinators.groups.member import MANY_MEMBERS, Member, Members, State
from barnabas.coordinators.groups.records import group_record, group_tombstone
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Decision, Record
from barnabas.errors import PeerError, RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue

BYTES_PER_TOPIC: Final = 32
"""Approximate bytes of a topic in a subscription."""


@dataclass(slots=True, init=False)
class ClassicState:
    """State of one group, without the handling of requests."""

    id: str
    settings: GroupSettings
    state: State
    state_since_ms: int
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: Members
    assignments: dict[str, bytes]
    """Assignment of each member in this generation; the dictionary is replaced, never mutated."""
    synced: set[str]
    """Members that have requested their assignment in this generation."""
    static_ids: dict[str, str]
    pending: set[str]
    initial_delay_left_ms: int
    new_member_added: bool
    is_initial: bool
    writing: int
    """The last generation to be encoded outside the event; 0 if there was none."""
    subscriptions: tuple[str, tuple[Member, ...], frozenset[str] | None] | None = field(compare=False)
    """Protocol, members, and the result of `subscribed_topics` for them."""

    def __init__(self, id: str, settings: GroupSettings) -> None:
        # written out: a generated __init__ is not compiled, and took a third of the event
        self.id = id
        self.settings = settings
        self.state = State.EMPTY
        self.state_since_ms = 0
        self.generation = 0
        self.protocol_type = ""
        self.protocol = None
        self.leader = None
        self.members = Members()
        self.assignments = {}
        self.synced = set()
        self.static_ids = {}
        self.pending = set()
        self.initial_delay_left_ms = 0
        self.new_member_added = False
        self.is_initial = False
        self.writing = 0
        self.subscriptions = None

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The name of the state for clients."""
        return self.state.value

    @property
    def is_unused(self) -> bool:
        """True while the group has no members, and no clients that are about to join."""
        return self.state is State.EMPTY and not self.pending

    @property
    def is_joining(self) -> bool:
        """True while members must join again."""
        return self.state is State.PREPARING_REBALANCE

    @property
    def is_written(self) -> bool:
        """True if records of the group are in the log: since its first generation."""
        return self.generation > 0

    def known_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member if member id and instance id belong together. Raises RequestError."""
        if instance_id is not None:
            owner_id = self.static_ids.get(instance_id)
            if owner_id is None:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner_id != member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} now belongs to {owner_id}")
        member = self.members.get(member_id)
        if member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def subscription_size(self) -> int:
        """Return about how many members and topics `subscribed_topics` would visit: 0 if it has the result cached."""
        members = self.members.values()
        if self.subscriptions is not None and self.subscriptions[:2] == (self.protocol, members):
            return 0
        metadata_bytes = sum([len(metadata) for member in members for _, metadata in member.protocols[:1]])
        return len(members) + metadata_bytes // BYTES_PER_TOPIC

    def subscribed_topics(self) -> Set[str] | None:
        """Return the topics that all members subscribe to, by the chosen assignor; None if they cannot be read.

        They are unknown if members are no consumers, before the first generation, or if a member's metadata has another
        format (custom assignors may write anything).
        """
        if not self.members:
            return set()
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        members = self.members.values()
        subscriptions = self.subscriptions
        if subscriptions is None or subscriptions[:2] != (self.protocol, members):
            subscriptions = self.subscriptions = (self.protocol, members, _topics_of(members, self.protocol))
        return subscriptions[2]

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(self, committer: Committer, context: EventContext) -> None:
        """Check the committer, and count the commit as a sign of life. A group without members accepts any commit.

        Old transactional producers cannot name the member for which they commit, and need not.
        """
        generation, member_id = committer.generation, committer.member_id
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation < 0 and not member_id and committer.instance_id is None:
            if committer.transactional:
                return
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; only they may commit")
        member = self.known_member(member_id, committer.instance_id)
        if generation != self.generation:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is State.COMPLETING_REBALANCE and not committer.transactional:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.watch_session(member, context.now_ms, context.out)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Accept any request for committed offsets: it does not name a member."""

    def check_offset_deletion(self) -> None:
        """Raise NON_EMPTY_GROUP if members are no consumers: their subscriptions are unknown."""
        if self.members and self.protocol_type != CONSUMER:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, "the group has members that are no consumers")

    def offset_retention(self) -> OffsetRetention | None:
        """Return which offsets may expire: all in an empty group, and those of topics that a stable group does not read."""
        if self.state is State.EMPTY:
            return OffsetRetention(empty_since_ms=self.state_since_ms if self.protocol_type else 0)
        if self.state is not State.STABLE or self.protocol_type != CONSUMER:
            return None
        in_use = self.subscribed_topics()
        return None if in_use is None else OffsetRetention(in_use)

    # --- time -----------------------------------------------------------------------------------------------

    def watch_session(self, member: Member, now_ms: int, out: Decision) -> None:
        """Restart a member's session timeout."""
        out.timers[("session", self.id, member.id)] = now_ms + member.session_timeout_ms

    def watch_sessions_of(self, members: Sequence[Member], now_ms: int, out: Decision) -> None:
        """Restart the session timeouts of these members; if they are many, after the event."""
        group_id = self.id
        timers = (
            (("session", group_id, member.id), now_ms + member.session_timeout_ms) for member in members
        )
        if len(members) >= MANY_MEMBERS:
            out.many_timers.append(timers)
        else:
            out.timers.update(timers)

    # --- what is kept ---------------------------------------------------------------------------------------

    def end(self, out: Decision) -> None:
        """Write the group's tombstone; ids given to clients that have not joined yet become invalid."""
        out.records.append(group_tombstone(self.id))
        for member_id in self.pending:
            out.timers[("session", self.id, member_id)] = None

    def record(self) -> Record:
        """Return the group's metadata record."""
        protocol, assignments = self.protocol or "", self.assignments
        members = [
            member.record(protocol, assignments.get(member.id, b"")) for member in self.members.values()
        ]
        value = self.metadata_of(self.state_since_ms, members)
        return group_record(self.id, value, self.settings.record_versions)

    def metadata_of(
        self, since_ms: int, members: list[GroupMetadataValue.MemberMetadata]
    ) -> GroupMetadataValue:
        """Return the metadata value of the generation with these members."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=since_ms,
            members=members,
        )

    @classmethod
    def restored(cls, group_id: str, settings: GroupSettings, value: GroupMetadataValue) -> Self:
        """Return the group as of its metadata record."""
        group = cls(group_id, settings)
        group.generation, group.protocol_type = value.generation, value.protocol_type
        group.protocol, group.leader = value.protocol, value.leader
        group.state_since_ms = value.current_state_timestamp
        for entry in value.members:
            group.members.put(Member.restored(entry, value.protocol or ""))
            group.assignments[entry.member_id] = entry.assignment
            if entry.group_instance_id is not None:
                group.static_ids[entry.group_instance_id] = entry.member_id
        group.state = State.STABLE if group.members else State.EMPTY
        return group


def _topics_of(members: Iterable[Member], protocol: str) -> frozenset[str] | None:
    """Return the topics in these members' metadata for a protocol; None if one is not a consumer's metadata."""
    topics: set[str] = set()
    for member in members:
        try:
            topics.update(read_topics(member.metadata_for(protocol)))
        except PeerError:
            return None
    return frozenset(topics)

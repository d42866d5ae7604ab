"""The groups of one partition of __consumer_offsets, and the offsets they have committed. Pure.

The rule: `handle_*` decide and raise; `replay` takes up what was decided, when it happens and when it is read again
after a start, so that both lead to the same state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from barnabas.errors import RequestError
from barnabas.groups.classic import ClassicGroup, State
from barnabas.groups.decision import Decision
from barnabas.groups.records import group_record, offset_record
from barnabas.groups.settings import GroupSettings
from barnabas.wire.codec import record_type_id
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import group_metadata, legacy_offset_commit, offset_commit
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue

NO_GENERATION = -1
Place = tuple[str, int]
"""Topic and partition."""


class GroupShard:
    """One shard's state: groups by id, offsets by group and place."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, dict[Place, OffsetCommitValue]] = {}

    # --- finding --------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ClassicGroup:
        """A group that must exist for its members. Raises UNKNOWN_MEMBER_ID."""
        group = self.groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    def group_or_new(self, group_id: str) -> ClassicGroup:
        """A group, made if need be."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self.settings)
        return group

    def exists(self, group_id: str) -> bool:
        """Whether anything is known of a group."""
        return group_id in self.groups or group_id in self.offsets

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        out: Decision,
    ) -> None:
        """See that whoever commits may do so. Raises RequestError."""
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise RequestError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id!r}")
            return
        if group.state is State.DEAD:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and not member_id and instance_id is None:
            if group.state is not State.EMPTY:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; only they may commit")
            return
        if group.state is State.COMPLETING_REBALANCE and group.generation == generation:
            group.heartbeat(member_id, instance_id, generation, now_ms, out)
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.heartbeat(member_id, instance_id, generation, now_ms, out)

    def commit(
        self, group_id: str, offsets: Iterable[tuple[Place, OffsetCommitValue]], out: Decision
    ) -> None:
        """Commit offsets."""
        for (topic, partition), value in offsets:
            out.records.append(offset_record(group_id, topic, partition, value))

    def delete_offsets(self, group_id: str, places: Iterable[Place], out: Decision) -> None:
        """Forget offsets."""
        known = self.offsets.get(group_id, {})
        for place in places:
            if place in known:
                out.records.append(offset_record(group_id, *place, None))

    def delete_group(self, group_id: str, out: Decision) -> None:
        """Forget a group with its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        if not self.exists(group_id):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        group = self.groups.get(group_id)
        if group is not None and group.state is not State.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        self.delete_offsets(group_id, list(self.offsets.get(group_id, ())), out)
        out.records.append(group_record(group_id, None))

    def forget_topics(self, topics: set[str], out: Decision) -> None:
        """These topics are gone, and with them the offsets in them."""
        for group_id, offsets in self.offsets.items():
            gone = [place for place in offsets if place[0] in topics]
            self.delete_offsets(group_id, gone, out)

    def expire_offsets(self, now_ms: int, out: Decision) -> None:
        """Forget the offsets of groups without members that are older than the retention (KIP-211)."""
        for group_id, offsets in self.offsets.items():
            group = self.groups.get(group_id)
            if group is not None and group.state is not State.EMPTY:
                continue
            gone = [place for place, value in offsets.items() if self._expired(group, value, now_ms)]
            self.delete_offsets(group_id, gone, out)
            if gone and len(gone) == len(offsets):
                out.records.append(group_record(group_id, None))

    def _expired(self, group: ClassicGroup | None, value: OffsetCommitValue, now_ms: int) -> bool:
        if value.expire_timestamp >= 0:
            return now_ms >= value.expire_timestamp
        since = value.commit_timestamp
        if group is not None and group.protocol_type:
            since = max(since, group.state_since_ms)
        return now_ms - since >= self.settings.offsets_retention_ms

    # --- time -----------------------------------------------------------------------------------------------

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        """A timer that a decision has set has come."""
        assert isinstance(timer, tuple)
        group = self.groups.get(timer[1])
        if group is None:
            return
        match timer[0]:
            case "session":
                group.session_expired(timer[2], now_ms, out)
            case "join":
                group.join_expired(now_ms, out)
            case "sync":
                group.sync_expired(now_ms, out)

    # --- replaying ------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
        """Take up a record; `loading` when it is read again after a start.

        Group metadata matters only then: while running, the group itself is ahead of it. Raises DecodeError.
        """
        kind = record_type_id(key)
        if kind == offset_commit.RECORD.type_id:
            place = offset_commit.RECORD.decode_key(key)
            committed = None if value is None else offset_commit.RECORD.decode_value(value)
            self._replay_offset(place.group, (place.topic, place.partition), committed)
        elif kind == legacy_offset_commit.RECORD.type_id:
            old = legacy_offset_commit.RECORD.decode_key(key)
            committed = None if value is None else offset_commit.RECORD.decode_value(value)
            self._replay_offset(old.group, (old.topic, old.partition), committed)
        elif kind == group_metadata.RECORD.type_id:
            group_id = group_metadata.RECORD.decode_key(key).group
            if value is None:
                group = self.groups.pop(group_id, None)
                if group is not None:
                    group.state = State.DEAD
            elif loading:
                metadata = group_metadata.RECORD.decode_value(value)
                self.groups[group_id] = ClassicGroup.restored(group_id, self.settings, metadata)

    def _replay_offset(self, group_id: str, place: Place, value: OffsetCommitValue | None) -> None:
        offsets = self.offsets.setdefault(group_id, {})
        if value is None:
            offsets.pop(place, None)
            if not offsets:
                del self.offsets[group_id]
        else:
            offsets[place] = value

    def loaded(self, now_ms: int, out: Decision) -> None:
        """All records have been replayed: watch over the members from now on."""
        for group in self.groups.values():
            group.watch_sessions(now_ms, out)

"""The groups of one partition of __consumer_offsets, and the offsets they have committed. Pure.

The rule: `handle_*` decide and raise; `replay` takes up what was decided, when it happens and when it is read again
after a start, so that both lead to the same state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from barnabas.errors import RequestError
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.decision import Decision
from barnabas.groups.member import Joining, State
from barnabas.groups.offsets import Place, expired_places
from barnabas.groups.pending import PendingOffsets
from barnabas.groups.records import group_record, offset_record
from barnabas.groups.settings import GroupSettings
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.codec import record_type_id
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import group_metadata, legacy_offset_commit, offset_commit
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue


class GroupShard:
    """One shard's state: groups by id, offsets by group and place."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, dict[Place, OffsetCommitValue]] = {}
        self.pending = PendingOffsets()

    # --- finding --------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ClassicGroup:
        """A group that must exist for its members. Raises UNKNOWN_MEMBER_ID."""
        group = self.groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    def exists(self, group_id: str) -> bool:
        """Whether anything is known of a group."""
        return group_id in self.groups or group_id in self.offsets

    # --- members --------------------------------------------------------------------------------------------

    def join(self, joining: Joining, now_ms: int, out: Decision) -> None:
        """A JoinGroup request; the first of a group makes it. Raises RequestError."""
        request, settings = joining.request, self.settings
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            raise RequestError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout {timeout_ms} ms is outside of "
                f"{settings.session_timeout_ms_min} to {settings.session_timeout_ms_max}",
            )
        group = self.group(request.group_id) if request.member_id else self.groups.get(request.group_id)
        if group is None:
            group = ClassicGroup(request.group_id, settings)
        group.join(joining, now_ms, out)
        self.groups[request.group_id] = group

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        out: Decision,
        *,
        transactional: bool = False,
    ) -> None:
        """See that whoever commits may do so. Raises RequestError."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_commit(member_id, instance_id, generation, now_ms, out, transactional=transactional)
        elif generation >= 0:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id!r}")

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
        if group is not None:
            for member_id in group.pending:
                out.timers[("session", group_id, member_id)] = None
        self.delete_offsets(group_id, list(self.offsets.get(group_id, ())), out)
        out.records.append(group_record(group_id, None))

    def forget_topics(self, topics: set[str], out: Decision) -> None:
        """These topics are gone, and with them the offsets in them."""
        for group_id, offsets in self.offsets.items():
            gone = [place for place in offsets if place[0] in topics]
            self.delete_offsets(group_id, gone, out)

    def expire_offsets(self, now_ms: int, out: Decision) -> None:
        """Forget the offsets that are kept too long (KIP-211), and the groups of which nothing is left."""
        for group_id in list(self.groups.keys() | self.offsets.keys()):
            group, offsets = self.groups.get(group_id), self.offsets.get(group_id, {})
            pending = self.pending.places(group_id)
            gone = [
                place
                for place in expired_places(group, offsets, self.settings.offsets_retention_ms, now_ms)
                if place not in pending
            ]
            self.delete_offsets(group_id, gone, out)
            if group is not None and len(gone) == len(offsets) and group.is_unused and not pending:
                if group.generation:
                    out.records.append(group_record(group_id, None))
                else:  # never written
                    self._end(group_id)

    def _end(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.state = State.DEAD

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

    def replay(
        self, key: bytes, value: bytes | None, *, loading: bool, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Take up a record; `loading` when it is read again after a start, `producer_id` that of a transaction.

        Group metadata matters only then: while running, the group itself is ahead of it. Raises DecodeError.
        """
        kind = record_type_id(key)
        if producer_id != NO_PRODUCER_ID:
            if kind == offset_commit.RECORD.type_id:
                where = offset_commit.RECORD.decode_key(key)
                what = None if value is None else offset_commit.RECORD.decode_value(value)
                self.pending.add(producer_id, where.group, (where.topic, where.partition), what)
            return
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
                self._end(group_id)
            elif loading:
                metadata = group_metadata.RECORD.decode_value(value)
                self.groups[group_id] = ClassicGroup.restored(group_id, self.settings, metadata)

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """A producer's transaction is at its end: what it has committed counts, or is forgotten."""
        for group_id, place, value in list(self.pending.end(producer_id)):
            if committed:
                self._replay_offset(group_id, place, value)

    def _replay_offset(self, group_id: str, place: Place, value: OffsetCommitValue | None) -> None:
        self.pending.overrule(group_id, place)
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

"""The groups of one partition of __consumer_offsets, and the offsets they have committed. Pure.

The rule: events decide, and raise RequestError; `replay` applies the records of decisions, right after they are appended
and when they are read again after a start, so that both lead to the same state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from barnabas.cluster.metadata.image import ImageSource
from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.coordinators.groups import protocols, targets
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import records as consumer_records
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.membership import Heartbeat, is_up_to_date
from barnabas.coordinators.groups.consumer.target import TargetNeeded
from barnabas.coordinators.groups.directory import G
from barnabas.coordinators.groups.epoch_group import EpochGroup
from barnabas.coordinators.groups.generation import RecordNeeded
from barnabas.coordinators.groups.group import Committer, Group
from barnabas.coordinators.groups.kinds import BY_RECORD_TYPE, KINDS, Kind
from barnabas.coordinators.groups.member import Joining
from barnabas.coordinators.groups.pending import PendingOffsets
from barnabas.coordinators.groups.records import (
    CommittedOffset,
    DecodedRecord,
    check_epoch,
    group_tombstone,
    is_whole,
    offset_record,
    offset_tombstone,
)
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.groups.share import membership as share_membership
from barnabas.coordinators.groups.share import records as share_records
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.streams import membership as streams_membership
from barnabas.coordinators.groups.streams import records as streams_records
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import (
    Decision,
    Record,
)
from barnabas.errors import RequestError
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.codec import record_type_id
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.records import group_metadata, legacy_offset_commit, offset_commit
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest
from barnabas.wire.registry import record_type_ids
from barnabas.wire.topic_partitions import TopicPartition

GROUP_NOT_FOUND_SINCE: Final = 9
"""First version of OffsetCommit with an error code for a missing group."""
OFFSETS_PER_EVENT: Final = 500
"""Offsets removed in one event: a few milliseconds."""
AnyTarget = TargetNeeded | streams_membership.TargetNeeded | share_membership.TargetNeeded
"""An assignment computed outside an event."""


class GroupShard:
    """State of one shard: groups by id, offsets by group and partition."""

    def __init__(self, settings: GroupSettings, metadata: ImageSource) -> None:
        self.settings = settings
        self.metadata = metadata
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        self.pending = PendingOffsets()
        self._begun_ms: dict[str, dict[bytes, int]] = {}
        self._new_streams: StreamsGroup | None = None

    # --- lookups --------------------------------------------------------------------------------------------

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """Return a group, None if it does not exist or is of another kind."""
        group = self.groups.get(group_id)
        # the metaclass of the protocol makes a negative isinstance 20 times slower
        return group if type(group) is kind else None

    def group(self, group_id: str) -> ClassicGroup:
        """Return a classic group. Raises UNKNOWN_MEMBER_ID."""
        group = self.find(group_id, ClassicGroup)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no classic group {group_id!r}")
        return group

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Raises GROUP_ID_NOT_FOUND."""
        return self._of_kind(group_id, ConsumerGroup)

    def new_streams_group(self, group_id: str) -> StreamsGroup:
        """Return a streams group for its first member; its first record registers it, with its unwritten state."""
        self._new_streams = StreamsGroup(group_id, self.settings)
        return self._new_streams

    def replayed_streams_group(self, group_id: str) -> StreamsGroup:
        """Return the streams group for its first record: that of `new_streams_group`, if it exists."""
        new, self._new_streams = self._new_streams, None
        return new if new is not None and new.id == group_id else StreamsGroup(group_id, self.settings)

    def streams_group(self, group_id: str) -> StreamsGroup:
        """Return a streams group. Raises GROUP_ID_NOT_FOUND."""
        return self._of_kind(group_id, StreamsGroup)

    def share_group(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises GROUP_ID_NOT_FOUND."""
        return self._of_kind(group_id, ShareGroup)

    def _of_kind(self, group_id: str, kind: type[G]) -> G:
        group = self.find(group_id, kind)
        if group is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, self.why_not(group_id, kind))
        return group

    def why_not(self, group_id: str, kind: type[Group]) -> str:
        """Return why there is no group of a kind with this id."""
        other = self.groups.get(group_id)
        if other is None and not self.exists(group_id):
            return f"there is no group {group_id!r}"
        actual_kind = ClassicGroup.kind if other is None else other.kind
        return f"group {group_id!r} is a {actual_kind} group, not a {kind.kind} group"

    def new_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group without records; its unwritten state is kept until its first record."""
        return ShareGroup(group_id, self.settings, begun_ms=self._begun_ms.setdefault(group_id, {}))

    def event_size(self, group_id: str, member_id: str, *, says_more: bool = True) -> int:
        """Return about how many topics and partitions an event of a member visits; 0 if never many.

        Also 0 for a heartbeat without changes, unless it `says_more` than that the member is alive.
        """
        group: Any = self.groups.get(group_id)
        if group is None or group.kind == ClassicGroup.kind:
            return 0
        if not says_more and group.is_at_rest(member_id, self.metadata.image.topics):
            return 0
        size: int = group.size_for(member_id)
        if group.kind == ConsumerGroup.kind and self._is_behind(group):
            size += len(self.metadata.image.topics)
        return size

    def _is_behind(self, group: ConsumerGroup) -> bool:
        """Return whether the next event of a group resolves its expressions again, as topics were created or deleted."""
        return bool(group.regexes) and group.topics_seen is not self.metadata.image.topics

    def subscription_size(self, group_id: str) -> int:
        """Return about how many entries are visited to determine the topics of a classic group's members."""
        group = self.find(group_id, ClassicGroup)
        return 0 if group is None else group.subscription_size()

    def share_state_size(self, group_id: str) -> int:
        """Return the number of topics and partitions that have a share group's state, or are about to get it."""
        group = self.find(group_id, ShareGroup)
        return 0 if group is None else group.topic_states.size

    def exists(self, group_id: str) -> bool:
        """Return whether a group exists in any form, with members or offsets."""
        return group_id in self.groups or group_id in self.offsets or self.pending.has(group_id)

    def join(self, joining: Joining, now_ms: int, out: Decision) -> None:
        """Handle a JoinGroup request; the first request creates the group. Raises RequestError."""
        protocols.join_group(self, joining, EventContext(self.metadata.image, now_ms, out))

    def is_up_to_date(self, beat: Heartbeat, now_ms: int) -> bool:
        """Return whether a heartbeat changes nothing; a `consumer_heartbeat` directly after it does not check again."""
        group = self.find(beat.request.group_id, ConsumerGroup)
        return group is not None and is_up_to_date(group, beat, self.metadata.image, now_ms)

    def has_matched(self, group_id: str, expression: str) -> bool:
        """Return whether a consumer group has resolved an expression for the present topics."""
        group = self.find(group_id, ConsumerGroup)
        return (
            group is not None
            and group.topics_seen is self.metadata.image.topics
            and expression in group.regexes
        )

    def consumer_heartbeat(
        self, beat: Heartbeat, now_ms: int, out: Decision
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a ConsumerGroupHeartbeat request; the first request creates the group. Raises RequestError."""
        return protocols.consumer_heartbeat(
            self, beat, EventContext(self.metadata.image, now_ms, out, beat.may_describe)
        )

    def write_part_of_target(
        self, needed: AnyTarget, part: Iterable[tuple[str, frozenset[Any]]], now_ms: int, out: Decision
    ) -> bool:
        """Write a part of a computed target; returns whether the rest is still needed."""
        group, records = self._assigned_aside(needed)
        if group is None:
            return False
        return targets.write_part(
            group, needed.epoch, part, records, EventContext(self.metadata.image, now_ms, out)
        )

    def target_computed(
        self, needed: AnyTarget, target: Mapping[str, frozenset[Any]] | None, now_ms: int, out: Decision
    ) -> None:
        """Handle the end of a target's computation, or its failure."""
        group, records = self._assigned_aside(needed)
        if group is not None:
            context = EventContext(self.metadata.image, now_ms, out)
            targets.target_computed(group, needed.epoch, target, records, context)

    def _assigned_aside(
        self, needed: AnyTarget
    ) -> tuple[EpochGroup[Any, Any] | None, targets.TargetRecords[Any]]:
        """Return the group that needs a target, if it still exists, and the records of its kind."""
        if isinstance(needed, share_membership.TargetNeeded):
            return self.find(needed.group_id, ShareGroup), share_records
        if isinstance(needed, streams_membership.TargetNeeded):
            return self.find(needed.group_id, StreamsGroup), streams_records
        return self.find(needed.group_id, ConsumerGroup), consumer_records

    def keep_generation(self, needed: RecordNeeded, record: Record, out: Decision) -> bool:
        """Write the encoded record of a large generation, unless it is outdated; returns whether it was written."""
        group = self.find(needed.group_id, ClassicGroup)
        if group is None or not group.is_written_as(needed.generation):
            return False
        out.records.append(record)
        return True

    def generation_kept(self, needed: RecordNeeded, code: int, now_ms: int, out: Decision) -> None:
        """Note that the record of a large generation is in the log, or why it cannot be, in `code`."""
        group = self.find(needed.group_id, ClassicGroup)
        if group is not None and code:
            group.not_assigned(needed.generation, code, now_ms, out)
        elif group is not None:
            group.assigned(needed.generation, now_ms, out)

    def streams_heartbeat(
        self, beat: streams_membership.Heartbeat, now_ms: int, out: Decision
    ) -> streams_membership.Answer:
        """Handle a StreamsGroupHeartbeat request; the first request creates the group. Raises RequestError."""
        return protocols.streams_heartbeat(self, beat, EventContext(self.metadata.image, now_ms, out))

    def share_heartbeat(
        self, beat: share_membership.Heartbeat, now_ms: int, out: Decision
    ) -> share_membership.Answer:
        """Handle a ShareGroupHeartbeat request; the first request creates the group. Raises RequestError."""
        return protocols.share_heartbeat(self, beat, EventContext(self.metadata.image, now_ms, out))

    def share_assignment_ahead(
        self, group_id: str, member_id: str
    ) -> ShareGroupHeartbeatResponse.Assignment | None:
        """Return the assignment of a member at its next heartbeat; None if it is not determined yet."""
        group = self.find(group_id, ShareGroup)
        return (
            share_membership.assignment_ahead(group, member_id, self.metadata.image)
            if group is not None
            else None
        )

    def sync(
        self,
        request: SyncGroupRequest,
        waiter: int,
        now_ms: int,
        out: Decision,
        assigned: Mapping[str, bytes] | None = None,
    ) -> None:
        """Handle a SyncGroup request, with its assignments by member if they are many. Raises RequestError."""
        protocols.sync_group(self, request, waiter, EventContext(self.metadata.image, now_ms, out), assigned)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, out: Decision) -> bool:
        """Handle a Heartbeat request; returns whether the member must join again. Raises RequestError."""
        return protocols.classic_heartbeat(self, request, EventContext(self.metadata.image, now_ms, out))

    def leave(
        self,
        group_id: str,
        members: Iterable[LeaveGroupRequest.MemberIdentity],
        now_ms: int,
        out: Decision,
    ) -> list[int]:
        """Handle a LeaveGroup request; returns the error code of each member that it names."""
        return protocols.leave_group(self, group_id, members, EventContext(self.metadata.image, now_ms, out))

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(self, group_id: str, committer: Committer, now_ms: int, out: Decision) -> None:
        """Check that the committer may commit, in this version of OffsetCommit. Raises RequestError."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_commit(committer, EventContext(self.metadata.image, now_ms, out))
        elif committer.generation >= 0 and self.exists(group_id):
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has no members")
        elif committer.generation >= 0:
            not_found = committer.api_version >= GROUP_NOT_FOUND_SINCE
            code = ErrorCode.GROUP_ID_NOT_FOUND if not_found else ErrorCode.ILLEGAL_GENERATION
            raise RequestError(code, f"there is no group {group_id!r}")

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Check that a requester may fetch offsets; only members with epochs are named in the request."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, member_epoch)

    def commit(
        self, group_id: str, offsets: Iterable[tuple[TopicPartition, OffsetCommitValue]], out: Decision
    ) -> None:
        """Commit offsets."""
        versions = self.settings.record_versions
        for topic_partition, value in offsets:
            record = offset_record(group_id, *topic_partition, value, versions)
            if is_whole(value, versions):
                out.write(record, CommittedOffset(group_id, topic_partition, value))
            else:
                out.records.append(record)

    def delete_offsets(
        self, group_id: str, topic_partitions: Iterable[TopicPartition], out: Decision
    ) -> None:
        """Remove offsets, also those of open transactions: a later commit of these does not restore them."""
        committed, pending = self.offsets.get(group_id, {}), self.pending
        for topic_partition in topic_partitions:
            if topic_partition in committed or pending.of(group_id, topic_partition):
                out.records.append(offset_tombstone(group_id, *topic_partition))

    def delete_group(self, group_id: str, out: Decision) -> bool:
        """Remove a group with its offsets, or some of many offsets; returns whether to call it again for the rest.

        Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        if not self.exists(group_id):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        group = self.groups.get(group_id)
        if group is not None and group.state_name != "Empty":
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        all_offsets = chain(self.offsets.get(group_id, {}), self.pending.each(group_id))
        self.delete_offsets(group_id, dict.fromkeys(islice(all_offsets, OFFSETS_PER_EVENT)), out)
        if next(all_offsets, None) is not None:
            return True
        if group is not None:
            group.end(out)
        else:
            out.records.append(group_tombstone(group_id))
        return False

    def end(self, group_id: str, kind: type[Group]) -> None:
        """Remove a group, if it exists and is of this kind; otherwise a group of another kind has replaced it."""
        if self.find(group_id, kind) is not None:
            del self.groups[group_id]
            self._begun_ms.pop(group_id, None)

    # --- time -----------------------------------------------------------------------------------------------

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        """Handle an expired timer."""
        assert isinstance(timer, tuple)
        group = self.groups.get(timer[1])
        if group is not None:
            KINDS[group.kind].expire(self, group, timer, EventContext(self.metadata.image, now_ms, out))

    # --- replaying ------------------------------------------------------------------------------------------

    def replay(
        self, key: bytes, value: bytes | None, *, loading: bool, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Replay a record; `loading` when it is read again after a start, `producer_id` that of a transaction.

        The metadata of classic groups is only replayed when loading: a running group is ahead of it. Raises DecodeError
        for records that no coordinator can have written, and for unknown types.
        """
        kind = record_type_id(key)
        if kind == offset_commit.RECORD.type_id:
            where = offset_commit.RECORD.decode_key(key)
            committed = None if value is None else offset_commit.RECORD.decode_value(value)
            offset = CommittedOffset(where.group, (where.topic, where.partition), committed)
            self.replay_commit(offset, producer_id)
            if committed is None and not loading:
                self._keep_empty(where.group)
        elif producer_id != NO_PRODUCER_ID:
            raise DecodeError("is not of an offset, and in a transaction", "record key", 0)
        elif kind == legacy_offset_commit.RECORD.type_id:
            old = legacy_offset_commit.RECORD.decode_key(key)
            committed = None if value is None else offset_commit.RECORD.decode_value(value)
            self._replay_offset(old.group, (old.topic, old.partition), committed)
        elif kind == group_metadata.RECORD.type_id:
            if value is None:
                self.end(group_metadata.RECORD.decode_key(key).group, ClassicGroup)
            elif loading:
                group_id = group_metadata.RECORD.decode_key(key).group
                metadata = group_metadata.RECORD.decode_value(value)
                check_epoch(metadata.generation)
                self.groups[group_id] = ClassicGroup.restored(group_id, self.settings, metadata)
        else:
            of_kind = BY_RECORD_TYPE.get(kind)
            if of_kind is not None and of_kind.replay is not None:
                self._replay_decoded(of_kind, of_kind.replay.decoded(kind, key, value))
            elif kind not in record_type_ids(OFFSETS_TOPIC):
                raise DecodeError(f"is of type {kind}, which is not known", "record key", 0)

    def _replayed(self, kind: Kind[Any], group_id: str, make: bool) -> Group | None:
        """Return the group of a record; None if it does not exist and the record must not create it."""
        group: Group | None = self.find(group_id, kind.group)
        if group is None and make and kind.make is not None:
            group = self.groups[group_id] = kind.make(self, group_id)
        return group

    def replay_decoded(self, decoded: CommittedOffset | DecodedRecord, producer_id: int) -> None:
        """Replay a decoded record; `producer_id` is that of a transaction."""
        if isinstance(decoded, CommittedOffset):
            self.replay_commit(decoded, producer_id)
        elif producer_id == NO_PRODUCER_ID:
            self._replay_decoded(BY_RECORD_TYPE[decoded.type_id], decoded)

    def _replay_decoded(self, kind: Kind[Any], decoded: DecodedRecord) -> None:
        assert kind.replay is not None
        kind.replay.apply(decoded, partial(self._replayed, kind), partial(self.end, kind=kind.group))

    def replay_commit(self, committed: CommittedOffset, producer_id: int) -> None:
        """Replay the record of an offset, which is pending while the transaction of its producer is open."""
        if producer_id != NO_PRODUCER_ID:
            self.pending.add(producer_id, *committed)
        else:
            self._replay_offset(*committed)

    def transaction_ended(self, producer_id: int, *, committed: bool, loading: bool = False) -> None:
        """End a producer's transaction: its pending offsets are committed, or dropped.

        There may be very many: whole mappings are merged, without a step of Python for each offset.
        """
        for group_id, offsets in self.pending.end(producer_id, committed=committed):
            if committed and offsets:
                self.offsets.setdefault(group_id, {}).update(offsets)
            elif not loading:
                self._keep_empty(group_id)

    def _keep_empty(self, group_id: str) -> None:
        """Keep a group that had only offsets, and has lost the last one, until unused groups are ended.

        Kafka creates it in memory with its first offset, and describes it as empty until then.
        """
        if not self.exists(group_id):
            self.groups[group_id] = ClassicGroup(group_id, self.settings)

    def _replay_offset(
        self, group_id: str, topic_partition: TopicPartition, value: OffsetCommitValue | None
    ) -> None:
        offsets = self.offsets.setdefault(group_id, {})
        if value is None:
            self.pending.forget(group_id, topic_partition)
            offsets.pop(topic_partition, None)
            if not offsets:
                del self.offsets[group_id]
        else:
            self.pending.overrule(group_id, topic_partition)
            offsets[topic_partition] = value

    def loaded(self, now_ms: int, out: Decision) -> None:
        """Start the timers of all members, once all records have been replayed."""
        context = EventContext(self.metadata.image, now_ms, out)
        for group in self.groups.values():
            KINDS[group.kind].watch(group, context)

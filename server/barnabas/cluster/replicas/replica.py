"""A topic-partition on this broker: its log, its role, and the waiters on it.

The rule: every change of a replica's end or high watermark passes through `Replica`, which wakes exactly the affected
waiters. No code polls a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.replicas.growth import Growth
from barnabas.cluster.replicas.subscribers import Subscribers
from barnabas.cluster.replicas.waiting import OffsetWaiters
from barnabas.cluster.replication.leader import UNKNOWN_BROKER_EPOCH, IsrChange, LeaderState
from barnabas.cluster.replication.read_replica import ReadReplica
from barnabas.cluster.replication.roles import Role
from barnabas.errors import RequestError, StorageError
from barnabas.records.validate import Origin
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import PartitionInfo
    from barnabas.cluster.replicas.context import ReplicaContext
    from barnabas.log.background_write import BackgroundWrite
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.results import AppendResult
    from barnabas.records.steps import Steps
    from barnabas.records.validated import ValidatedBatches

ACKS_ALL: Final = -1


class Replica:
    """A log, with its role, its leader epoch and its waiters.

    Lifecycle: created offline; `lead` and `follow` by the metadata; `close` when the topic is deleted, the replica is moved
    to another broker, or its disk has failed. When leadership is lost, waiters get the error that a new request would get.
    """

    __slots__ = (
        "_committed",
        "_context",
        "_flushed",
        "_large_appends",
        "_low_watermark",
        "_own_end_offset",
        "_state",
        "_why_closed",
        "closed",
        "growth",
        "index",
        "leader_epoch",
        "leader_id",
        "log",
        "role",
        "subscribers",
        "topic",
    )

    def __init__(self, topic: str, index: int, partition_log: PartitionLog, context: ReplicaContext) -> None:
        self.topic = topic
        self.index = index
        self.log = partition_log
        self.role = Role.OFFLINE
        self.leader_id = -1
        self.leader_epoch = -1
        self.closed = True
        """True before this broker leads the partition, and again after it has stopped."""
        self.growth = Growth()
        self.subscribers = Subscribers()
        self._context = context
        self._state: LeaderState | None = None
        self._own_end_offset = 0  # up to where this broker has the records as safe as flush.messages asks for
        self._why_closed = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._committed = OffsetWaiters()
        self._flushed = OffsetWaiters()
        self._low_watermark = OffsetWaiters()
        self._large_appends: trio.Lock | None = None

    def __repr__(self) -> str:
        return f"<{self.role.name.lower()} of {self.topic}-{self.index} in epoch {self.leader_epoch}: {self.log}>"

    # --- roles ----------------------------------------------------------------------------------------------

    def lead(self, info: PartitionInfo) -> None:
        """Begin a leader epoch. Nothing is known of the followers yet."""
        assert info.leader_epoch >= self.leader_epoch, "leader epochs never go back"
        log = self.log
        self._state = LeaderState(
            self._context.broker_id,
            leader_epoch=info.leader_epoch,
            partition_epoch=info.partition_epoch,
            replicas=info.replicas,
            isr=info.isr,
            epoch_start_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            now_ms=self._context.clock_ms(),
        )
        self._own_end_offset = log.recovery_point if log.wants_flush else log.log_end_offset
        if log.wants_flush:  # records that survived a crash, or were replicated just before
            self._context.request_flush(self)
        self._set_role(Role.LEADER, info)
        self.closed = False
        self.subscribers.changed()

    def update_isr(self, info: PartitionInfo) -> None:
        """Follow the metadata in the same leader epoch: the high watermark may advance.

        The leader of an unclean election proposes that it has recovered, with the records that it has (KIP-704).
        """
        state = self._leader_state()
        state.update(
            partition_epoch=info.partition_epoch,
            replicas=info.replicas,
            isr=info.isr,
            now_ms=self._context.clock_ms(),
        )
        self.subscribers.changed()
        change = state.propose_recovered() if info.recovering else None
        if change is not None:
            self._context.alter_partition.propose(self, change)
        self._advance()
        self._low_watermark_moved()

    def follow(self, info: PartitionInfo) -> None:
        """Follow another broker's leader, or wait for one if the partition has none."""
        assert info.leader_epoch >= self.leader_epoch, "leader epochs never go back"
        self._state = None
        self._set_role(Role.FOLLOWER, info)
        self.subscribers.role_changed(self)

    def _set_role(self, role: Role, info: PartitionInfo) -> None:
        self.role = role
        self.leader_id, self.leader_epoch = info.leader, info.leader_epoch
        log = self.log  # records between its high watermark and its end are new to readers
        is_committed = log.high_watermark == log.log_end_offset
        self.growth.restart(log.log_end_offset, 0 if is_committed else log.size_bytes)

    def close_waiters(self, why: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop leading: waiters get `why`."""
        self.closed = True
        self._state = None
        self._why_closed = why
        for waiters in (self._committed, self._flushed, self._low_watermark):
            waiters.fail(why)
        self.subscribers.role_changed(self)

    def close(self, why: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Close the replica: it is offline, or removed; requests get `why`."""
        self.role = Role.OFFLINE
        self.close_waiters(why)

    def replace_log(self, partition_log: PartitionLog) -> None:
        """Continue with a copy of the log in another log dir."""
        self.log = partition_log
        self._context.request_flush(self)  # waiters for the old one's flush wait for this one's now

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if a client believes in another epoch (KIP-320).

        -1 is not checked.
        """
        if current_leader_epoch != -1 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise RequestError(ErrorCode.FENCED_LEADER_EPOCH)
            raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def is_leader(self) -> bool:
        """True if this broker leads the partition."""
        return self._state is not None

    @property
    def is_offline(self) -> bool:
        """True if there is nothing here to read or write."""
        return self.role is Role.OFFLINE

    def _leader_state(self) -> LeaderState:
        """Return the state of a leader; raises RequestError if this replica does not lead."""
        if self._state is None:
            raise RequestError(self._why_closed)
        return self._state

    # --- appending ------------------------------------------------------------------------------------------

    @property
    def large_appends(self) -> trio.Lock:
        """The lock of appends that are written in the background, one after the other."""
        if self._large_appends is None:
            self._large_appends = trio.Lock()
        return self._large_appends

    def validation(
        self, records: memoryview, *, acks: int, api_version: int, now_ms: int
    ) -> Steps[ValidatedBatches]:
        """Return the steps that validate a producer's records, for `append`.

        Raises NOT_ENOUGH_REPLICAS; the steps raise RequestError with Kafka's code for the records.
        """
        self._check_replicas(acks)
        return self.log.validation(records, now_ms=now_ms, api_version=api_version)

    def append(self, valid: ValidatedBatches, *, acks: int, now_ms: int) -> AppendResult:
        """Append a producer's validated records as the leader.

        Raises RequestError with Kafka's code when the producer's state or the in-sync replicas do not allow it, or the
        replica leads no longer; KAFKA_STORAGE_ERROR when the disk fails or is full.
        """
        self._check_replicas(acks)
        try:
            result = self.log.append_valid(valid, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            raise self._context.storage_failed(error) from error
        self.appended(result)
        return result

    def begin_background_write(self, valid: ValidatedBatches, *, now_ms: int) -> BackgroundWrite | None:
        """Return a write of records to the log, for a thread to run before `append`; None where there is no point in it.

        Raises RequestError as `append`.
        """
        self._leader_state()
        try:
            return self.log.begin_background_write(valid, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            raise self._context.storage_failed(error) from error

    def end_background_write(self, log: PartitionLog, write: BackgroundWrite) -> None:
        """Undo bytes that were written to this log, but not appended."""
        try:
            log.end_background_write(write)
        except StorageError as error:
            self._context.storage_failed(error)

    def validate_at_once(
        self, records: memoryview, acks: int, api_version: int, now_ms: int
    ) -> ValidatedBatches | None:
        """Validate a producer's records for `append` in one step, if they are one small batch that stays unchanged.

        Otherwise, and for transactions, returns None, and nothing has changed. Raises RequestError like `validation`.
        """
        self._check_replicas(acks)
        return self.log.validate_at_once(records, now_ms=now_ms, api_version=api_version)

    def _check_replicas(self, acks: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS; the required number is at most that of the replicas, as since Apache Kafka 4.0."""
        state = self._leader_state()
        if acks != ACKS_ALL or not state.has_followers:
            return
        min_isr = self.log.config.min_insync_replicas
        if not state.has_enough_in_sync(min_isr):
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(state.isr)} of {len(state.replicas)} replicas of {self.topic}-{self.index} are in sync, "
                f"min.insync.replicas is {min_isr}",
            )

    def append_own(self, records: bytearray, *, now_ms: int) -> AppendResult:
        """Append records of this broker's own coordinators, as with acks=all. Raises RequestError, StorageError."""
        self._check_replicas(ACKS_ALL)
        try:
            result = self.log.append_as_leader(
                records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=Origin.COORDINATOR
            )
        except StorageError as error:
            self._context.storage_failed(error)
            raise
        self.appended(result)
        return result

    def appended(self, result: AppendResult) -> None:
        """Note an append to a leader: raise the high watermark as far as replicas and disk allow."""
        log, growth, subscribers = self.log, self.growth, self.subscribers
        growth.appended(result.size, result.record_count)
        if log.wants_flush:
            self._context.request_flush(self)
        else:
            self._own_end_offset = log.log_end_offset
            self._advance()
        if log.high_watermark < log.log_end_offset:
            growth.note_uncommitted(log.log_end_offset)
        subscribers.changed()
        subscribers.end_moved(self)

    def flushed(self) -> None:
        """Note a requested flush: synced records may be acknowledged."""
        recovery_point = self.log.recovery_point
        self._flushed.reached(recovery_point)
        if self._state is not None and recovery_point > self._own_end_offset:
            self._own_end_offset = recovery_point
            self._advance()

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start to `offset`.

        Raises RequestError(OFFSET_OUT_OF_RANGE) beyond the high watermark, StorageError.
        """
        self.log.delete_records_before(offset)
        self.subscribers.changed()

    # --- the high watermark ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Raise the high watermark to the smallest log end of the in-sync replicas."""
        state, context, log = self._leader_state(), self._context, self.log
        if state.has_followers:
            has_moved = state.advance_high_watermark(
                self._own_end_offset,
                min_isr=log.config.min_insync_replicas,
                live=context.live_brokers(),
                now_ms=context.clock_ms(),
                lag_max_ms=context.lag_max_ms(),
            )
        else:  # whatever `min.insync.replicas` is, as there are no more replicas
            has_moved = self._own_end_offset > state.high_watermark
            if has_moved:
                state.high_watermark = self._own_end_offset
        if has_moved:
            log.advance_high_watermark(state.high_watermark)
            self.subscribers.changed()
        self._advanced()

    def _advanced(self) -> None:
        """Wake the waiters for the high watermark, or for a last stable offset that a marker has moved."""
        log = self.log
        reached = log.high_watermark
        assert log.log_start_offset <= log.last_stable_offset <= reached <= log.log_end_offset, log
        self.growth.committed(reached, log.log_end_offset)
        if not self._committed.is_empty:
            self._committed.reached(reached)
        self.subscribers.high_watermark_moved(self)
        if self._state is None:
            self.subscribers.end_moved(self)

    # --- waiting --------------------------------------------------------------------------------------------

    async def wait_flushed(self, end_offset: int) -> None:
        """Wait for the flush that `flush.messages` asks for before the records up to `end_offset` are acknowledged.

        Returns at once where it asks for none. Raises RequestError as `wait_committed` does.
        """
        if self.log.wants_flush and self.log.recovery_point < end_offset:
            self._leader_state()
            await self._flushed.wait(end_offset)

    async def wait_synced(self) -> None:
        """Wait, as a follower, for the flush by `flush.messages` before its fetch acknowledges the appended records.

        Raises RequestError when the replica is closed meanwhile.
        """
        if self.log.wants_flush:
            self._context.request_flush(self)
            end_offset = self.log.log_end_offset
            if self.log.recovery_point < end_offset:
                await self._flushed.wait(end_offset)

    async def wait_committed(self, end_offset: int) -> None:
        """Wait until the high watermark has reached `end_offset` (the offset after the last record waited for).

        Raises RequestError when the replica leads no longer: NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR if its
        disk has failed; NOT_ENOUGH_REPLICAS_AFTER_APPEND if replicas have left the ISR meanwhile.
        """
        if self.log.high_watermark < end_offset:
            self._leader_state()
            await self._committed.wait(end_offset)
        state = self._state
        if state is not None and not state.has_enough_after_append(self.log.config.min_insync_replicas):
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"replicas of {self.topic}-{self.index} went out of sync after the append",
            )

    async def wait_low_watermark(self, offset: int) -> None:
        """Wait until all live replicas have deleted the records before `offset`. Raises RequestError as above."""
        if self.low_watermark < offset:
            await self._low_watermark.wait(offset)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas. Raises RequestError if this is no leader."""
        state = self._leader_state()
        return state.lowest_log_start_offset(self.log.log_start_offset, self._context.live_brokers())

    # --- followers ------------------------------------------------------------------------------------------

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Raise RequestError if a broker that fetches is no replica: either broker has outdated metadata.

        UNKNOWN_LEADER_EPOCH if it checks the leader epoch, NOT_LEADER_OR_FOLLOWER otherwise, as in Kafka.
        """
        if self._leader_state().follower(replica_id) is None:
            raise RequestError(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if current_leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} has no replica of {self.topic}-{self.index}",
            )

    def has_follower(self, replica_id: int) -> bool:
        """Return whether a broker has a replica of this partition, which is led here."""
        return self._state is not None and self._state.follower(replica_id) is not None

    def is_in_sync(self, replica_id: int) -> bool:
        """Return whether a broker is in the ISR of this partition, which is led here."""
        return self._state is not None and replica_id in self._state.isr

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """Note a follower's progress: it may join the ISR, and the high watermark may advance."""
        state = self._leader_state()
        is_known = state.follower_fetched(
            replica_id,
            fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=self.log.log_end_offset,
            now_ms=self._context.clock_ms(),
            broker_epoch=broker_epoch,
        )
        if not is_known:
            return
        if replica_id not in state.isr and replica_id in self._context.live_brokers():
            change = state.propose_expansion(replica_id)
            if change is not None:
                self._context.alter_partition.propose(self, change)
        self._advance()
        self._low_watermark_moved()

    def holds_back(self, replica_id: int) -> bool:
        """Return whether records must not be sent to a follower now: it is throttled and out of sync."""
        return self._context.leader_throttle.holds(self) and replica_id not in self._leader_state().isr

    def sent_to_follower(self, size: int) -> None:
        """Note the bytes sent to a follower."""
        self._context.leader_throttle.used(self, size)

    def read_replicas(self, fetch_offset: int) -> list[ReadReplica]:
        """Return the followers that a consumer could read `fetch_offset` from (KIP-392); none if this is no leader."""
        return self._state.read_replicas(fetch_offset) if self._state is not None else []

    def _low_watermark_moved(self) -> None:
        if not self._low_watermark.is_empty and self._state is not None:
            self._low_watermark.reached(self.low_watermark)

    def shrink_isr(self) -> None:
        """Propose that followers leave the ISR that have not caught up for `replica.lag.time.max.ms`."""
        state, context = self._state, self._context
        if state is None or not state.has_followers:
            return
        change = state.propose_shrink(self.log.log_end_offset, context.clock_ms(), context.lag_max_ms())
        if change is not None:
            context.alter_partition.propose(self, change)

    def isr_settled(
        self, change: IsrChange, *, partition_epoch: int | None, isr: Iterable[int] | None = None
    ) -> None:
        """Note the controller's answer: the new partition epoch, or None if the change was refused.

        `isr` is the accepted one, if it may differ from the proposal.
        """
        if self._state is not None:
            self._state.settled(
                change, partition_epoch=partition_epoch, isr=isr, now_ms=self._context.clock_ms()
            )
            self.subscribers.changed()
            self._advance()

    @property
    def is_high_watermark_behind(self) -> bool:
        """True if a new leader may have committed records above its high watermark: followers report it by fetches."""
        return self._state is not None and self._state.epoch_start_offset > self.log.high_watermark

    def follower_epoch(self, replica_id: int) -> int:
        """Return the broker epoch with which a follower fetches, -1 if that is not known (KIP-903)."""
        follower = self._state.follower(replica_id) if self._state is not None else None
        return follower.broker_epoch if follower is not None else UNKNOWN_BROKER_EPOCH

    @property
    def in_sync_replicas(self) -> frozenset[int]:
        """The ISR as the leader knows it. Raises RequestError if this is no leader."""
        return self._leader_state().isr

    # --- followers ------------------------------------------------------------------------------------------

    def replicated(self, result: AppendResult, high_watermark: int) -> None:
        """Note an append as a follower, and the high watermark derived from its leader's."""
        assert self.role is Role.FOLLOWER, self.role
        self.growth.replicated(result.size, result.record_count)
        self.log.advance_high_watermark(high_watermark)
        if self.log.high_watermark < self.log.log_end_offset and result.size:
            self.growth.note_uncommitted(self.log.log_end_offset)
        self._advanced()

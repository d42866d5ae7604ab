"""A leader's state of its followers, which determines the ISR and the high watermark. Pure.

The rule: a record is committed once every in-sync replica has it. The high watermark is the smallest log end offset of
the in-sync replicas and never decreases; a leader without followers is the case ISR = {itself}, and needs no other code. A
replica that is about to join counts already (KIP-497), so that it cannot miss records that are committed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Final, NamedTuple

from barnabas.cluster.replication.read_replica import ReadReplica

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH: Final = -1
NEVER_MS = -(2**62)
"""Long before any time that a clock shows."""


class FollowerState:
    """Progress of a follower, by its fetches. Offsets are -1 until it has fetched in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        end_offset: int = UNKNOWN_OFFSET,
        log_start_offset: int = UNKNOWN_OFFSET,
        last_fetch_ms: int = 0,
        last_fetch_leader_end_offset: int = UNKNOWN_OFFSET,
        last_caught_up_ms: int = NEVER_MS,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = last_fetch_ms
        self.last_fetch_leader_end_offset = last_fetch_leader_end_offset
        """The leader's log end offset when it last fetched."""
        self.last_caught_up_ms = last_caught_up_ms
        """The last time at which it is known to have had everything that the leader had then."""
        self.broker_epoch = broker_epoch


class IsrChange(NamedTuple):
    """A proposal to the controller: these in-sync replicas instead of those of `partition_epoch`."""

    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int


class LeaderState:
    """The state of a partition's leader in one leader epoch.

    `now_ms` is a monotonic time in ms; offsets are those of the leader's own log, which this does not own.
    """

    __slots__ = (
        "_followers", "_pending", "broker_id", "epoch_start_offset", "has_followers", "high_watermark", "isr",
        "leader_epoch", "partition_epoch", "replicas",
    )  # fmt: skip

    def __init__(
        self,
        broker_id: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        epoch_start_offset: int,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        """Begin an epoch: `epoch_start_offset` is the log end offset at its start."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self.replicas = frozenset(replicas)
        self.isr = self._in_sync(isr)
        self._pending: IsrChange | None = None
        self._followers = {
            replica: FollowerState(last_caught_up_ms=now_ms if replica in self.isr else NEVER_MS)
            for replica in self.replicas
            if replica != broker_id
        }
        self.has_followers = bool(self._followers)
        """True if any other broker has a replica."""
        self._check()

    # --- what others say ------------------------------------------------------------------------------------

    def follower(self, replica_id: int) -> FollowerState | None:
        """Return the state of a follower, None for a broker without a replica."""
        return self._followers.get(replica_id)

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        *,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> bool:
        """Note that a follower has all records below `fetch_offset`; False for a broker that is no replica.

        It has caught up if it has reached the log end of now, or that at its previous fetch.
        """
        state = self._followers.get(replica_id)
        if state is None:
            return False
        if fetch_offset >= leader_end_offset:
            state.last_caught_up_ms = now_ms
        elif fetch_offset >= state.last_fetch_leader_end_offset >= 0:
            state.last_caught_up_ms = max(state.last_caught_up_ms, state.last_fetch_ms)
        state.end_offset = fetch_offset
        state.log_start_offset = log_start_offset
        state.last_fetch_ms = now_ms
        state.last_fetch_leader_end_offset = leader_end_offset
        state.broker_epoch = broker_epoch
        return True

    def update(
        self, *, partition_epoch: int, replicas: Collection[int], isr: Collection[int], now_ms: int
    ) -> bool:
        """Apply metadata of this leader epoch; False if it is older than the present one.

        A proposal for an older partition epoch is dropped: it was accepted, or is void.
        """
        if partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.replicas = frozenset(replicas)
        self._followers = {
            replica: self._followers.get(replica) or FollowerState()
            for replica in self.replicas
            if replica != self.broker_id
        }
        self.has_followers = bool(self._followers)
        self._take_isr(isr, now_ms)
        if self._pending is not None and self._pending.partition_epoch < partition_epoch:
            self._pending = None
        self._check()
        return True

    # --- commit ---------------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The in-sync replicas, and those that are about to join."""
        return self.isr | self._pending.isr if self._pending is not None else self.isr

    def advance_high_watermark(
        self,
        leader_end_offset: int,
        *,
        min_isr: int = 1,
        live: Container[int] = (),
        now_ms: int = 0,
        lag_max_ms: int = 0,
    ) -> bool:
        """Raise the high watermark to the smallest log end of the in-sync replicas; returns whether it moved.

        It stays where it is while fewer than `min_isr` replicas are in sync (KIP-966), and while an in-sync follower has
        not fetched in this epoch. A `live` follower outside of the ISR that has caught up within `lag_max_ms` holds it
        too: it could never join a leader that continues without it.
        """
        if not self.has_enough_in_sync(min_isr):
            return False
        lowest = leader_end_offset
        if self._followers:
            maximal = self.maximal_isr
            for replica, state in self._followers.items():
                if state.end_offset < lowest and (
                    replica in maximal or (now_ms - state.last_caught_up_ms <= lag_max_ms and replica in live)
                ):
                    lowest = state.end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def lowest_log_start_offset(
        self, leader_log_start_offset: int, live: Container[int] | None = None
    ) -> int:
        """Return the smallest log start offset of all live replicas, the low watermark that DeleteRecords answers.

        All replicas count where `live` is None.
        """
        starts = [
            state.log_start_offset
            for replica, state in self._followers.items()
            if live is None or replica in live
        ]
        return min(leader_log_start_offset, *starts) if starts else leader_log_start_offset

    def has_enough_in_sync(self, min_isr: int) -> bool:
        """Return whether acks=all may be accepted: `min.insync.replicas`, but at most the number of replicas."""
        return len(self.isr) >= min_isr or len(self.isr) >= len(self.replicas)

    def has_enough_after_append(self, min_isr: int) -> bool:
        """Return whether records that all in-sync replicas have may be acknowledged to acks=all.

        Replicas that are about to join count, as they do for the high watermark.
        """
        return len(self.maximal_isr) >= min(min_isr, len(self.replicas))

    def read_replicas(self, fetch_offset: int) -> list[ReadReplica]:
        """Return the in-sync followers that have an offset (KIP-392): others would delay a consumer."""
        return [
            ReadReplica(state.end_offset, state.last_caught_up_ms, replica)
            for replica, state in self._followers.items()
            if replica in self.isr and state.log_start_offset <= fetch_offset <= state.end_offset
        ]

    # --- the in-sync replicas -------------------------------------------------------------------------------

    def propose_expansion(self, replica_id: int) -> IsrChange | None:
        """Return the change by which a follower joins the ISR, None if it may not or a change is under way.

        It may once it has reached the high watermark and the start of this leader epoch: before, it might lack committed
        records.
        """
        state = self._followers.get(replica_id)
        if self._pending is not None or state is None or replica_id in self.isr:
            return None
        if state.end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return self._propose(self.isr | {replica_id})

    def propose_recovered(self) -> IsrChange | None:
        """Return the change that ends the recovery after an unclean election (KIP-704), even with the same ISR.

        None while a change is in progress.
        """
        return self._propose(self.isr) if self._pending is None else None

    def out_of_sync(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> frozenset[int]:
        """Return the in-sync followers that have not caught up for longer than `replica.lag.time.max.ms`."""
        return frozenset(
            replica
            for replica in self.isr
            if replica != self.broker_id
            and (state := self._followers[replica]).end_offset != leader_end_offset
            and now_ms - state.last_caught_up_ms > lag_max_ms
        )

    def propose_shrink(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> IsrChange | None:
        """Return the change by which slow followers leave the ISR; None without any, or while a change is pending."""
        late = self.out_of_sync(leader_end_offset, now_ms, lag_max_ms)
        if self._pending is not None or not late:
            return None
        return self._propose(self.isr - late)

    def _propose(self, isr: frozenset[int]) -> IsrChange:
        self._pending = IsrChange(isr, self.leader_epoch, self.partition_epoch)
        return self._pending

    def settled(
        self,
        change: IsrChange,
        *,
        partition_epoch: int | None,
        isr: Iterable[int] | None = None,
        now_ms: int = NEVER_MS,
    ) -> None:
        """Note the controller's answer to a proposal: the new partition epoch, or None if it was refused.

        `isr` are the in-sync replicas, if they differ from the proposal. Until the answer, replicas that are about to
        join count, and those about to leave still do.
        """
        if self._pending is not change:
            return
        self._pending = None
        if partition_epoch is not None and partition_epoch >= self.partition_epoch:
            self.partition_epoch = partition_epoch
            self._take_isr(change.isr if isr is None else frozenset(isr), now_ms)
            self._check()

    def _take_isr(self, isr: Collection[int], now_ms: int) -> None:
        """Set the in-sync replicas; new ones have `replica.lag.time.max.ms` to catch up, as in Apache Kafka.

        They have the committed records, but perhaps not all of the leader's: otherwise they would leave again immediately.
        """
        before, self.isr = self.isr, self._in_sync(isr)
        for replica in self.isr - before:
            state = self._followers[replica]
            state.last_caught_up_ms = max(state.last_caught_up_ms, now_ms)

    def _in_sync(self, isr: Collection[int]) -> frozenset[int]:
        """Return those of an ISR that are replicas.

        At the end of a reassignment Apache Kafka's controller first sends the new replicas with the old ISR, and removes
        the dropped replicas from the ISR when they have stopped.
        """
        return frozenset(isr) & self.replicas | {self.broker_id}

    def _check(self) -> None:
        assert self.broker_id in self.isr, "a leader is in sync with itself"
        assert self.isr <= self.replicas | {self.broker_id}, "an ISR is a subset of the replicas"

"""The share partitions of one partition of __share_group_state: the persisted state of each, by group and topic. Pure.

The rule: only the newest leader of a partition, with the newest state epoch, may write. Updates contain changes; after many
of them a snapshot contains the whole state, so that a load reads few records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.share.batches import StateBatch, combine
from barnabas.coordinators.share.records import (
    UNKNOWN_OFFSET,
    ShareState,
    StateKey,
    snapshot_record,
    state_of_snapshot,
    tombstone,
    update_record,
)
from barnabas.coordinators.statemachine.decision import Decision, slices
from barnabas.errors import RequestError
from barnabas.wire.codec import record_type_id
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import share_snapshot, share_update

UNKNOWN_EPOCH = -1
"""The epoch of a requester that does not know it; its requests are not fenced."""

STATES_PER_EVENT = 500
"""States deleted in one event."""


@dataclass(frozen=True, slots=True)
class StateWrite:
    """Update of a share partition by its leader; a start offset or an epoch of -1 means no change."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int = -1
    batches: Sequence[StateBatch] = ()


class ShareStateShard:
    """One shard. `updates_max` is the number of updates that may follow a snapshot, `image` returns the newest metadata."""

    def __init__(self, updates_max: int, image: Callable[[], ClusterImage]) -> None:
        self._updates_max = updates_max
        self._image = image
        self.states: dict[StateKey, ShareState] = {}
        self.records_seen = 0
        """Number of records written and read; reset once they are redundant."""

    # --- deciding -------------------------------------------------------------------------------------------

    def initialize(
        self, key: StateKey, state_epoch: int, start_offset: int, now_ms: int, out: Decision
    ) -> None:
        """Initialize a state, also again. Raises INVALID_REQUEST, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION."""
        _check_partition(key)
        current = self.states.get(key)
        if current is not None:
            _check_state_epoch(current, state_epoch)
        self._check_exists(key)
        state = ShareState(
            snapshot_epoch=current.snapshot_epoch + 1 if current else 0,
            state_epoch=state_epoch,
            start_offset=start_offset,
            complete_count=UNKNOWN_OFFSET if start_offset == UNKNOWN_OFFSET else 0,
            created_ms=now_ms,
            written_ms=now_ms,
        )
        out.records.append(snapshot_record(key, state))

    def read(self, key: StateKey, leader_epoch: int, now_ms: int, out: Decision) -> ShareState:
        """Return the state, for a new leader: older leaders may no longer write.

        Raises INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        state = self._known(key, leader_epoch)
        self._check_exists(key)
        if leader_epoch not in (state.leader_epoch, UNKNOWN_EPOCH):
            news = StateWrite(state.state_epoch, leader_epoch, state.start_offset, state.complete_count)
            self._write(key, state, news, now_ms, out)
        return state

    def write(self, key: StateKey, write: StateWrite, now_ms: int, out: Decision) -> None:
        """Apply new states of records.

        Raises INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        state = self._known(key, write.leader_epoch)
        _check_state_epoch(state, write.state_epoch)
        self._check_exists(key)
        self._write(key, state, replace(write, leader_epoch=state.leader_epoch), now_ms, out)

    def summary(self, key: StateKey) -> ShareState | None:
        """Return the state, None if it does not exist. Raises INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION."""
        _check_partition(key)
        self._check_exists(key)
        return self.states.get(key)

    def delete(self, key: StateKey, out: Decision) -> None:
        """Delete a state, if it exists. Raises INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION."""
        _check_partition(key)
        self._check_exists(key)
        if key in self.states:
            out.records.append(tombstone(key))

    def forgetting_topics(
        self, topic_ids: frozenset[bytes]
    ) -> Iterator[Callable[[ShareStateShard, Decision], None]]:
        """Yield events that delete the states of deleted topics, some of them in each."""
        gone = [key for key in self.states if key[1] in topic_ids]
        for keys in slices(gone, STATES_PER_EVENT):
            yield partial(_forget, keys)

    def snapshot(self, keys: Iterable[StateKey], now_ms: int, out: Decision) -> None:
        """Write snapshots of these states, so that their earlier records are no longer needed."""
        for key in keys:
            state = self.states[key]
            newer = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
            out.records.append(snapshot_record(key, newer))

    def _known(self, key: StateKey, leader_epoch: int) -> ShareState:
        _check_partition(key)
        state = self.states.get(key)
        if state is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{key[0]!r} has no state of this partition yet")
        if leader_epoch != UNKNOWN_EPOCH and state.leader_epoch > leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {state.leader_epoch}")
        return state

    def _check_exists(self, key: StateKey) -> None:
        image = self._image()
        name = image.topic_name(key[1])
        if name is None or key[2] >= len(image.topics[name].partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _write(self, key: StateKey, state: ShareState, news: StateWrite, now_ms: int, out: Decision) -> None:
        start = max(news.start_offset, state.start_offset)
        complete = news.complete_count
        if news.start_offset == state.start_offset:
            complete = max(complete, state.complete_count)
        elif news.start_offset < state.start_offset:
            complete = state.complete_count
        snapshot = state.updates >= self._updates_max
        after = replace(
            state,
            snapshot_epoch=state.snapshot_epoch + snapshot,
            leader_epoch=news.leader_epoch,
            start_offset=start,
            complete_count=complete,
            batches=tuple(combine(state.batches if snapshot else (), news.batches, start)),
            created_ms=now_ms if snapshot else state.created_ms,
            written_ms=now_ms,
        )
        out.records.append((snapshot_record if snapshot else update_record)(key, after))

    # --- replaying ------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:  # noqa: ARG002
        """Replay a record. Raises DecodeError."""
        self.records_seen += 1
        kind = record_type_id(key)
        if kind == share_snapshot.RECORD.type_id:
            of = share_snapshot.RECORD.decode_key(key)
            where = (of.group_id, of.topic_id, of.partition)
            if value is None:
                self.states.pop(where, None)
            else:
                self._replay_snapshot(where, state_of_snapshot(share_snapshot.RECORD.decode_value(value)))
        elif value is None:
            raise DecodeError("is that of an update, or unknown, without a value", "record key", 0)
        else:
            about = share_update.RECORD.decode_key(key)
            self._replay_update(
                (about.group_id, about.topic_id, about.partition), share_update.RECORD.decode_value(value)
            )

    def _replay_snapshot(self, where: StateKey, state: ShareState) -> None:
        current = self.states.get(where)
        if current is not None:
            # epochs never fall, whatever the order of the writers
            state = replace(
                state,
                leader_epoch=max(state.leader_epoch, current.leader_epoch),
                state_epoch=max(state.state_epoch, current.state_epoch),
            )
        self.states[where] = state

    def _replay_update(self, where: StateKey, news: share_update.ShareUpdateValue) -> None:
        state = self.states.get(where, ShareState())
        start = state.start_offset if news.start_offset == UNKNOWN_OFFSET else news.start_offset
        batches = [
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in news.state_batches
        ]
        self.states[where] = replace(
            state,
            leader_epoch=max(state.leader_epoch, news.leader_epoch),
            start_offset=start,
            complete_count=news.delivery_complete_count,
            batches=tuple(combine(state.batches, batches, start)),
            updates=state.updates + 1,
        )

    def loaded(self, now_ms: int, out: Decision) -> None:
        """Do nothing."""

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        """Do nothing: there are no timers."""


def _forget(keys: Iterable[StateKey], shard: ShareStateShard, out: Decision) -> None:
    out.records += [tombstone(key) for key in keys if key in shard.states]


def _check_partition(key: StateKey) -> None:
    if key[2] < 0:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"partition {key[2]} is negative")


def _check_state_epoch(state: ShareState, state_epoch: int) -> None:
    if state_epoch != UNKNOWN_EPOCH and state.state_epoch > state_epoch:
        raise RequestError(ErrorCode.FENCED_STATE_EPOCH, f"the state epoch is {state.state_epoch}")

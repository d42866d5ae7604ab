"""Records of __share_group_state in Kafka's formats. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire.generated.records import share_snapshot, share_update
from barnabas.wire.generated.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from barnabas.wire.generated.records.share_update import ShareUpdateKey, ShareUpdateValue

StateKey = tuple[str, bytes, int]
"""Group id, topic id, partition."""

UNKNOWN_OFFSET = -1
"""Start offset of a state that was initialized without one."""


@dataclass(frozen=True, slots=True)
class ShareState:
    """State of a share partition. `updates` counts the records written since the last snapshot."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNKNOWN_OFFSET
    complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0
    updates: int = field(default=0, compare=False)


def snapshot_record(key: StateKey, state: ShareState) -> Record:
    """Return the record of a whole state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=[ShareSnapshotValue.StateBatch(*batch) for batch in state.batches],
    )
    return _snapshot_key(key), share_snapshot.RECORD.encode_value(value)


def update_record(key: StateKey, news: ShareState) -> Record:
    """Return the record of the changes of a state; its batches are the changed ones."""
    value = ShareUpdateValue(
        snapshot_epoch=news.snapshot_epoch,
        leader_epoch=news.leader_epoch,
        start_offset=news.start_offset,
        delivery_complete_count=news.complete_count,
        state_batches=[ShareUpdateValue.StateBatch(*batch) for batch in news.batches],
    )
    group_id, topic_id, partition = key
    encoded = share_update.RECORD.encode_key(
        ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    )
    return encoded, share_update.RECORD.encode_value(value)


def tombstone(key: StateKey) -> Record:
    """Return the tombstone of a state."""
    return _snapshot_key(key), None


def _snapshot_key(key: StateKey) -> bytes:
    group_id, topic_id, partition = key
    return share_snapshot.RECORD.encode_key(
        ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
    )


def state_of_snapshot(value: ShareSnapshotValue) -> ShareState:
    """Return the state in a snapshot."""
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in value.state_batches
        ),
        value.create_timestamp,
        value.write_timestamp,
    )

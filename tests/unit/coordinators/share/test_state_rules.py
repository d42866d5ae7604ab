"""The state of a share partition, rule by rule: what is written of it, and whose epoch counts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.records import ShareState, snapshot_record, state_of_snapshot, update_record
from barnabas.coordinators.share.state import STATES_PER_EVENT, StateWrite
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import share_snapshot, share_update
from tests.support.refusals import code_of as refusal

from .test_state import KEY, Coordinator

ALL_DIFFERENT = ShareState(11, 12, 13, 14, 15, (StateBatch(16, 17, 2, 18),), 19, 20)


def test_each_field_of_a_state_comes_back_as_itself():
    _, value = snapshot_record(KEY, ALL_DIFFERENT)
    assert value is not None
    assert state_of_snapshot(share_snapshot.RECORD.decode_value(value)) == ALL_DIFFERENT
    written = share_snapshot.RECORD.decode_value(value)
    assert (written.create_timestamp, written.write_timestamp) == (19, 20)
    key, value = update_record(KEY, ALL_DIFFERENT)
    assert value is not None
    about, news = share_update.RECORD.decode_key(key), share_update.RECORD.decode_value(value)
    assert (about.group_id, about.topic_id, about.partition) == KEY
    assert (news.snapshot_epoch, news.leader_epoch, news.start_offset, news.delivery_complete_count) == (
        11, 13, 14, 15,
    )  # fmt: skip
    assert [
        (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in news.state_batches
    ] == [(16, 17, 2, 18)]
    assert {field.name for field in fields(ShareState)} - {"updates"} == {
        "snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "complete_count", "batches",
        "created_ms", "written_ms",
    }  # fmt: skip


def begun(**more: Any) -> Coordinator:
    """A state in state epoch 5, read by a leader in epoch 3, that begins at 100."""
    coordinator = Coordinator(**more)
    coordinator.initialize(5, 100)
    coordinator.read(3)
    return coordinator


def state_of(coordinator: Coordinator) -> ShareState:
    return coordinator.shard.states[KEY]


@pytest.mark.parametrize(
    ("state_epoch", "leader_epoch", "code"),
    [
        (5, 3, 0), (6, 3, 0), (5, 4, 0), (5, 9, 0),
        (4, 3, ErrorCode.FENCED_STATE_EPOCH), (4, 9, ErrorCode.FENCED_STATE_EPOCH),
        (5, 2, ErrorCode.FENCED_LEADER_EPOCH), (9, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (-1, 3, 0), (5, -1, 0),
    ],
)  # fmt: skip
def test_each_epoch_fences_by_itself(state_epoch, leader_epoch, code):
    coordinator = begun()
    write = StateWrite(state_epoch, leader_epoch, 110)
    if code:
        assert refusal(coordinator.write, write) == code
        assert state_of(coordinator).start_offset == 100
    else:
        coordinator.write(write)
        assert (state_of(coordinator).start_offset, state_of(coordinator).leader_epoch) == (110, 3)


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(110, 2, (110, 2)), (100, 9, (100, 9)), (100, 3, (100, 7)), (90, 9, (100, 7)), (-1, 9, (100, 7))],
)
def test_what_is_complete_counts_from_the_start_offset_that_it_was_written_with(start, count, expected):
    """One who writes the same start offset may know less."""
    coordinator = begun()
    coordinator.write(StateWrite(5, 3, 100, 7))
    coordinator.write(StateWrite(5, 3, start, count))
    for shard in (coordinator.shard, coordinator.reloaded()):
        assert (shard.states[KEY].start_offset, shard.states[KEY].complete_count) == expected


def test_a_snapshot_comes_after_so_many_updates_and_says_everything():
    coordinator = begun(updates_max=3)  # the first one is of the leader that reads it
    for offset in range(100, 104):
        coordinator.write(StateWrite(5, 3, 100, -1, (StateBatch(offset, offset, 2, 1),)))
    assert coordinator.kinds == [0, 1, 1, 1, 0, 1]
    state = coordinator.reloaded().states[KEY]
    assert state == state_of(coordinator)
    assert state.batches == (StateBatch(100, 103, 2, 1),)
    assert (state.snapshot_epoch, state.updates) == (1, 1)
    assert (state.created_ms, state.written_ms) == (2000, 2000)


def test_who_reads_in_the_same_epoch_writes_nothing_and_a_newer_one_keeps_what_is_there():
    coordinator = begun()
    coordinator.write(StateWrite(5, 3, 110, 4))
    records = len(coordinator.log)
    coordinator.read(3)
    assert len(coordinator.log) == records
    coordinator.read(4)
    assert len(coordinator.log) == records + 1
    state = coordinator.reloaded().states[KEY]
    assert (state.leader_epoch, state.start_offset, state.complete_count) == (4, 110, 4)


@pytest.mark.parametrize(("epoch", "is_fenced"), [(4, True), (5, False), (6, False)])
def test_a_state_is_begun_again_in_the_same_epoch_or_a_later_one(epoch, is_fenced):
    coordinator = begun()
    coordinator.write(StateWrite(5, 3, 110, 4, (StateBatch(110, 120, 2, 1),)))
    if is_fenced:
        assert refusal(coordinator.initialize, epoch, 50) == ErrorCode.FENCED_STATE_EPOCH
        return
    coordinator.initialize(epoch, 50)
    state = coordinator.reloaded().states[KEY]
    assert (state.state_epoch, state.leader_epoch, state.start_offset, state.complete_count) == (
        epoch,
        3,
        50,
        0,
    )
    assert (state.batches, state.snapshot_epoch) == ((), 1)


@pytest.mark.parametrize(("start", "count"), [(-1, -1), (0, 0), (7, 0)])
def test_nothing_is_known_of_what_is_complete_where_nobody_knows_where_to_begin(start, count):
    coordinator = Coordinator()
    coordinator.initialize(0, start)
    assert (state_of(coordinator).start_offset, state_of(coordinator).complete_count) == (start, count)


def test_a_summary_is_all_that_is_known_and_none_where_nothing_is():
    coordinator = begun()
    assert coordinator.shard.summary(KEY) == state_of(coordinator)
    assert coordinator.shard.summary(("other", *KEY[1:])) is None
    assert refusal(coordinator.shard.summary, ("group", KEY[1], 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(coordinator.shard.summary, ("group", KEY[1], -1)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("count", [0, 1, STATES_PER_EVENT, STATES_PER_EVENT + 1])
def test_states_of_topics_that_are_gone_are_forgotten_in_parts_and_others_are_not(count):
    coordinator = begun()
    gone = b"g" * 16
    for number in range(count):
        coordinator.shard.states[f"g{number}", gone, 0] = ShareState()
    events = list(coordinator.shard.forgetting_topics(frozenset({gone})))
    assert len(events) == -(-count // STATES_PER_EVENT)
    for event in events:
        out = Decision()
        event(coordinator.shard, out)
        assert 0 < len(out.records) <= STATES_PER_EVENT
        coordinator.apply(out)
    assert coordinator.shard.states.keys() == {KEY}


def test_a_state_that_has_ended_meanwhile_is_not_forgotten_twice():
    coordinator = begun()
    events = list(coordinator.shard.forgetting_topics(frozenset({KEY[1]})))
    coordinator.shard.delete(KEY, out := Decision())
    coordinator.apply(out)
    for event in events:
        event(coordinator.shard, out := Decision())
        assert out.records == []

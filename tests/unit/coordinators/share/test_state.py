"""The share coordinator's shard: what is written of share partitions, and how it is read again."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.config import group
from barnabas.config.loading import BrokerConfig
from barnabas.coordinators.share.batches import StateBatch, combine
from barnabas.coordinators.share.records import ShareState, StateKey, snapshot_record, state_of_snapshot
from barnabas.coordinators.share.settings import OffsetReset, offset_reset
from barnabas.coordinators.share.state import ShareStateShard, StateWrite
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.codec import record_type_id
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records import share_snapshot
from tests.support.refusals import code_of

TOPIC = bytes(range(16))
KEY: StateKey = ("group", TOPIC, 1)
IMAGE = ClusterImage("cluster").apply(
    [TopicCreated(TopicInfo("topic", TOPIC, tuple(PartitionInfo(1, (1,), (1,)) for _ in range(2))))]
)


class Coordinator:
    """A shard with a log of what it has written."""

    def __init__(self, updates_max: int = 3) -> None:
        self.shard = ShareStateShard(updates_max, lambda: IMAGE)
        self.log: list[tuple[bytes, bytes | None]] = []

    def apply(self, out: Decision) -> None:
        self.log += out.records
        for key, value in out.records:
            self.shard.replay(key, value, loading=False)

    def initialize(self, state_epoch: int = 0, start: int = -1, key: StateKey = KEY) -> None:
        out = Decision()
        self.shard.initialize(key, state_epoch, start, 1000, out)
        self.apply(out)

    def write(self, write: StateWrite) -> None:
        out = Decision()
        self.shard.write(KEY, write, 2000, out)
        self.apply(out)

    def read(self, leader_epoch: int = 0) -> ShareState:
        out = Decision()
        state = self.shard.read(KEY, leader_epoch, 3000, out)
        self.apply(out)
        return state

    @property
    def kinds(self) -> list[int]:
        return [record_type_id(key) for key, _ in self.log]

    def reloaded(self) -> ShareStateShard:
        shard = ShareStateShard(3, lambda: IMAGE)
        for key, value in self.log:
            shard.replay(key, value, loading=True)
        return shard


def test_nothing_is_read_or_written_before_it_is_initialized() -> None:
    coordinator = Coordinator()
    assert code_of(coordinator.read) == ErrorCode.INVALID_REQUEST
    assert code_of(coordinator.write, StateWrite(0, 0, 5)) == ErrorCode.INVALID_REQUEST
    assert coordinator.shard.summary(KEY) is None
    coordinator.initialize()
    state = coordinator.read()
    assert (state.start_offset, state.complete_count, state.batches) == (-1, -1, ())


def test_who_begins_anew_fences_who_was_there() -> None:
    coordinator = Coordinator()
    coordinator.initialize(state_epoch=1, start=5)
    coordinator.write(StateWrite(1, 0, 7, 0, (StateBatch(8, 9, 2, 1),)))
    coordinator.initialize(state_epoch=4, start=0)
    assert code_of(coordinator.write, StateWrite(1, 0, 9)) == ErrorCode.FENCED_STATE_EPOCH
    assert code_of(coordinator.initialize, 3) == ErrorCode.FENCED_STATE_EPOCH
    state = coordinator.read()
    assert (state.state_epoch, state.start_offset, state.batches) == (4, 0, ())
    assert state.snapshot_epoch == 1


def test_only_partitions_that_exist_have_a_state() -> None:
    coordinator = Coordinator()
    assert code_of(coordinator.initialize, 0, 0, ("group", TOPIC, 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        code_of(coordinator.initialize, 0, 0, ("group", bytes(16), 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert code_of(coordinator.initialize, 0, 0, ("group", TOPIC, -1)) == ErrorCode.INVALID_REQUEST


def test_who_does_not_know_an_epoch_is_not_fenced_for_it() -> None:
    coordinator = Coordinator()
    coordinator.initialize(state_epoch=2)
    coordinator.read(leader_epoch=3)
    coordinator.write(StateWrite(-1, -1, 5))
    assert coordinator.read(leader_epoch=-1).leader_epoch == 3
    coordinator.initialize(state_epoch=-1, start=7)
    state = coordinator.read(leader_epoch=3)
    assert (state.state_epoch, state.leader_epoch, state.start_offset) == (2, 3, 7)


def test_a_state_ends_with_a_tombstone() -> None:
    coordinator = Coordinator()
    coordinator.initialize()
    out = Decision()
    coordinator.shard.delete(KEY, out)
    coordinator.apply(out)
    assert coordinator.shard.states == coordinator.reloaded().states == {}
    out = Decision()
    coordinator.shard.delete(KEY, out)
    assert not out.records


def test_snapshots_of_everything_make_the_rest_redundant() -> None:
    coordinator = Coordinator()
    coordinator.initialize(state_epoch=3)
    coordinator.write(StateWrite(3, 0, 0, 0, (StateBatch(5, 9, 2, 1),)))
    out = Decision()
    coordinator.shard.snapshot([KEY], 4000, out)
    coordinator.log.clear()
    coordinator.apply(out)
    assert coordinator.shard.states[KEY].snapshot_epoch == 1
    assert coordinator.reloaded().states == coordinator.shard.states
    assert coordinator.read().batches == (StateBatch(5, 9, 2, 1),)


@pytest.mark.parametrize(
    ("current", "news", "start", "combined"),
    [
        ([], [], -1, []),
        ([(0, 9, 0, 1)], [(3, 5, 2, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(3, 5, 2, 1)], [(0, 9, 0, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(3, 5, 2, 1)], [(0, 9, 0, 2)], -1, [(0, 9, 0, 2)]),
        ([(0, 4, 2, 1)], [(5, 9, 2, 1)], 3, [(3, 9, 2, 1)]),
        ([(0, 4, 2, 1)], [(6, 9, 2, 1)], -1, [(0, 4, 2, 1), (6, 9, 2, 1)]),
        ([(0, 4, 2, 1)], [], 5, []),
    ],
)
def test_batches_are_combined(current: list, news: list, start: int, combined: list) -> None:  # type: ignore[type-arg]
    result = combine([StateBatch(*batch) for batch in current], [StateBatch(*batch) for batch in news], start)
    assert result == combined


def test_where_groups_begin() -> None:
    assert offset_reset("Earliest") == OffsetReset("earliest")
    assert offset_reset("by_duration:P1DT1H1M1.5S") == OffsetReset("by_duration", 90_061_500)
    for bad in ("", "none", "by_duration", "by_duration:", "latest:P1D", "by_duration:1h"):
        with pytest.raises(ValueError, match="is not"):
            offset_reset(bad)


@pytest.mark.parametrize(("text", "before_ms"), [("PT1,5S", 1_500), ("PT-1H61M", 60_000), ("-PT-1S", 1_000)])
def test_what_can_be_set_for_a_group_is_where_it_begins(text: str, before_ms: int) -> None:
    own = {"share.auto.offset.reset": f"by_duration:{text}"}
    group.check(own, BrokerConfig())
    assert offset_reset(own["share.auto.offset.reset"]) == OffsetReset("by_duration", before_ms)


def test_each_field_of_a_state_survives_its_snapshot() -> None:
    state = ShareState(11, 12, 13, 14, 15, (StateBatch(16, 17, 2, 18),), 19, 20)
    _, value = snapshot_record(KEY, state)
    assert value is not None
    written = share_snapshot.RECORD.decode_value(value)
    assert state_of_snapshot(written) == state
    assert (written.create_timestamp, written.write_timestamp) == (19, 20)

"""Random requests to the share coordinator, by leaders and groups of any epoch: the model predicts how each ends.

What is known of each share partition is compared after every step, and after it was read again.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.cluster.metadata.changes import TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.share import state as states
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.state import ShareStateShard, StateWrite
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.models.share_state import Batch, ShareStates
from tests.models.transactions import RefusedError
from tests.support.effort import examples
from tests.support.slips import unnoticed

TOPIC = bytes(range(16))
ONE = PartitionInfo(1, (1,), (1,))
PARTITIONS = st.sampled_from([0] * 8 + [1] * 4 + [2, -1])
STEPS = st.sampled_from([0] * 6 + [1, 1, -1])
BATCHES = st.lists(
    st.builds(
        lambda first, more, state, deliveries: Batch(first, first + more, state, deliveries),
        st.integers(0, 12), st.integers(0, 4), st.sampled_from([0, 2, 4]), st.integers(0, 3),
    ), max_size=3,
)  # fmt: skip


class Requests(RuleBasedStateMachine):
    """Epochs are those that are known, or one more or less."""

    @initialize(updates_max=st.integers(0, 4))
    def begin(self, updates_max: int) -> None:
        self.image = ClusterImage("c").apply([TopicCreated(TopicInfo("t", TOPIC, (ONE, ONE)))])
        self.updates_max = updates_max
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 0
        self.model = ShareStates({("g", TOPIC, 0), ("g", TOPIC, 1)})
        self.restart()
        self.initialize(partition=0, step=0, start=3)

    def restart(self) -> None:
        self.shard = ShareStateShard(self.updates_max, lambda: self.image)
        for key, value in self.log:
            self.shard.replay(key, value, loading=True)

    def compare(self, event, predicted) -> None:
        """Let the shard decide and the model predict; both must end in the same way and in the same state."""
        self.now_ms += 1
        out = Decision()
        try:
            got = seen(event(out))
        except RequestError as error:
            got = ErrorCode(error.code).name
        else:
            self.log += out.records
            for key, value in out.records:
                self.shard.replay(key, value, loading=False)
        try:
            expected = predicted()
            expected = None if expected is None else expected.seen()
        except RefusedError as refusal:
            expected = str(refusal)
        if isinstance(got, tuple) and expected is not None:
            # A reader is told the state as it was before the reader's own epoch is known.
            got, expected = got[:1] + got[2:], expected[:1] + expected[2:]
        assert got == expected

    def epochs(self, partition: int, state_step: int, leader_step: int) -> tuple[int, int]:
        state = self.model.states.get(("g", TOPIC, partition))
        state_epoch, leader_epoch = (0, 0) if state is None else (state.state_epoch, state.leader_epoch)
        return max(state_epoch + state_step, -1), max(leader_epoch + leader_step, -1)

    # --- requests -------------------------------------------------------------------------------------------

    @rule(partition=PARTITIONS, step=STEPS, start=st.sampled_from([-1, 0, 5]))
    def initialize(self, partition: int, step: int, start: int) -> None:
        key = "g", TOPIC, partition
        epoch, _ = self.epochs(partition, step, 0)
        self.compare(
            lambda out: self.shard.initialize(key, epoch, start, self.now_ms, out),
            lambda: self.model.initialize(key, partition, epoch, start),
        )

    @rule(partition=PARTITIONS, step=STEPS)
    def read(self, partition: int, step: int) -> None:
        key = "g", TOPIC, partition
        _, epoch = self.epochs(partition, 0, step)
        self.compare(
            lambda out: self.shard.read(key, epoch, self.now_ms, out),
            lambda: self.model.read(key, partition, epoch),
        )

    @rule(
        partition=PARTITIONS, state_step=STEPS, leader_step=STEPS, start=st.sampled_from([-1, 0, 3, 3, 5, 8]),
        complete=st.integers(-1, 4), batches=BATCHES,
    )  # fmt: skip
    def write(self, partition, state_step, leader_step, start, complete, batches) -> None:
        key = "g", TOPIC, partition
        state_epoch, leader_epoch = self.epochs(partition, state_step, leader_step)
        write = StateWrite(state_epoch, leader_epoch, start, complete, [StateBatch(*row) for row in batches])
        self.compare(
            lambda out: self.shard.write(key, write, self.now_ms, out),
            lambda: self.model.write(key, partition, state_epoch, leader_epoch, start, complete, batches),
        )

    @rule(partition=PARTITIONS)
    def summarize(self, partition: int) -> None:
        key = "g", TOPIC, partition
        self.compare(lambda _: self.shard.summary(key), lambda: self.model.summary(key, partition))

    @rule(partition=PARTITIONS, happens=st.sampled_from([True, False, False]))
    def delete(self, partition: int, happens: bool) -> None:
        key = "g", TOPIC, partition
        if happens:
            self.compare(lambda out: self.shard.delete(key, out), lambda: self.model.delete(key, partition))

    @rule(happens=st.sampled_from([True] + [False] * 7))
    def delete_topic(self, happens: bool) -> None:
        """The topic is gone before its states are."""
        if happens and self.model.there:
            self.image = self.image.apply([TopicDeleted("t")])
            self.model.there = ()

    @rule()
    def snapshot(self) -> None:
        """All is written again: what was before that is not needed any more."""
        out = Decision()
        self.shard.snapshot(list(self.shard.states), self.now_ms, out)
        for key, value in out.records:
            self.shard.replay(key, value, loading=False)
        self.log = out.records

    @rule()
    def read_again(self) -> None:
        self.restart()

    @invariant()
    def same(self) -> None:
        if hasattr(self, "shard"):
            states = {key: state.seen() for key, state in self.model.states.items()}
            assert {key: seen(state) for key, state in self.shard.states.items()} == states


def seen(state):
    if state is None:
        return None
    records = {
        offset: (record.state, record.deliveries)
        for record in state.batches
        for offset in range(record.first, record.last + 1)
    }
    assert list(records) == sorted(records)
    return state.state_epoch, state.leader_epoch, state.start_offset, state.complete_count, records


Requests.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------

_combine, _write, _replay_snapshot = states.combine, ShareStateShard._write, ShareStateShard._replay_snapshot


def _newest_alone(before, news, start_offset):
    return _combine((), news, start_offset) or _combine(before, (), start_offset)


def _all_of_before(before, news, start_offset):
    return _combine(before, news, min(start_offset, 0))


def _start_as_said(self, key, state, news, now_ms, out):
    _write(
        self, key, replace(state, start_offset=min(state.start_offset, news.start_offset)), news, now_ms, out
    )


def _leaders_are_forgotten(self, where, state):
    self.states[where] = state


def _whoever_leads(self, key, leader_epoch):
    if key[2] < 0 or key not in self.states:
        raise RequestError(ErrorCode.INVALID_REQUEST)
    return self.states[key]


def _equal_is_old(state, state_epoch):
    if state_epoch != states.UNKNOWN_EPOCH and state.state_epoch >= state_epoch > 0:
        raise RequestError(ErrorCode.FENCED_STATE_EPOCH)


SLIPS = {
    "an older leader may write": (ShareStateShard, "_known", _whoever_leads),
    "an older group may write": (states, "_check_state_epoch", lambda state, state_epoch: None),
    "the group's own epoch is old": (states, "_check_state_epoch", _equal_is_old),
    "a topic that is gone has states": (ShareStateShard, "_check_exists", lambda self, key: None),
    "a negative partition is one": (states, "_check_partition", lambda key: None),
    "what was written before is forgotten": (states, "combine", _newest_alone),
    "what is before the start offset is kept": (states, "combine", _all_of_before),
    "the start offset goes back": (ShareStateShard, "_write", _start_as_said),
    "who begins anew lets old leaders write": (ShareStateShard, "_replay_snapshot", _leaders_are_forgotten),
}


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []

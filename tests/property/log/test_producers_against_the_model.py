"""Random batches and markers of producers, over truncations and restarts: the model predicts what the log answers.

Offsets, the last stable offset and the aborted transactions are compared after every step.
"""

from __future__ import annotations

import shutil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnabas.errors import RequestError
from barnabas.log.errors import Code
from barnabas.log.producers import NO_OFFSET, Producer, ProducerState
from barnabas.records.validate import Origin
from tests.models.producers import SEQUENCES, Batch, Log
from tests.models.transactions import RefusedError
from tests.support.effort import examples
from tests.support.logs import NOW_MS, Broker, batch, marker, quick_directory
from tests.support.slips import unnoticed

PRODUCERS = st.integers(1, 3)
STEPS = st.sampled_from([0] * 6 + [1, -1])
VERSIONS = st.sampled_from([0, 1, 2])
"""Of transactions: in version 0 producers are not verified."""


class Appends(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([400, 1_500, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.directory = quick_directory()
        self.broker = Broker(self.directory, segment_bytes=segment_bytes)
        self.log = self.broker.log()
        self.model = Log()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    def compare(self, event, predicted) -> None:
        """Let the log decide and the model predict; both must end in the same way and in the same state."""
        try:
            got = event().base_offset
        except RequestError as error:
            got = Code(error.code).name
        try:
            expected = predicted()
        except RefusedError as refusal:
            expected = {str(refusal)}
        assert got in expected
        self.same()

    def same(self) -> None:
        log, model = self.log, self.model
        assert (log.log_end_offset, log.high_watermark) == (model.end, model.high_watermark)
        assert log.last_stable_offset == model.last_stable_offset
        aborted = [
            (transaction.producer_id, transaction.first_offset, transaction.last_offset)
            for transaction in log.aborted_transactions(0, log.log_end_offset)
        ]
        assert aborted == model.aborted()

    # --- requests -------------------------------------------------------------------------------------------

    @rule(
        data=st.data(), producer=PRODUCERS, step=STEPS, count=st.integers(1, 3),
        in_transaction=st.booleans(), follows_open=st.sampled_from([True] * 5 + [False]), version=VERSIONS,
        is_refused=st.booleans(),
    )  # fmt: skip
    def produce(self, data, producer, step, count, in_transaction, follows_open, version, is_refused) -> None:
        state = self.model.known(producer)
        epoch = max((0 if state is None else state.epoch) + step, 0)
        if state is not None and state.open_since is not None and follows_open:
            in_transaction = True
        sequences = [0, SEQUENCES - 2] if state is None else [0]
        if state is not None and state.batches:
            follows = state.batches[-1].next_sequence
            sequences = [follows] * 6 + [0, (follows + 1) % SEQUENCES, (follows - 1) % SEQUENCES]
        new = Batch(producer, epoch, data.draw(st.sampled_from(sequences)), count, in_transaction)
        if in_transaction and version:
            self.expect(new, from_zero=version == 2)
            if is_refused:  # the coordinator is not there, or too few replicas are in sync
                return
        self.append(new)

    @rule(data=st.data(), producer=PRODUCERS, more=st.sampled_from([0, 0, 0, 1]))
    def repeat(self, data, producer, more) -> None:
        state = self.model.known(producer)
        if state is not None and state.batches:
            earlier = data.draw(st.sampled_from(state.batches[-7:]))
            self.append(earlier._replace(base=-1, count=earlier.count + more))

    def expect(self, new: Batch, *, from_zero: bool) -> None:
        """As a request of a producer to verify does."""
        producer = self.log.producers.get(new.producer)
        if producer is None or (
            producer.producer_epoch <= new.epoch
            and (producer.current_txn_first_offset < 0 or producer.producer_epoch != new.epoch)
        ):
            self.log.producers.expect(
                new.producer, new.epoch, new.sequence, from_zero=from_zero, now_ms=NOW_MS
            )
        self.model.expect(new, from_zero=from_zero)

    def append(self, new: Batch) -> None:
        records = batch(
            *[b"v"] * new.count, producer_id=new.producer, producer_epoch=new.epoch,
            base_sequence=new.sequence, transactional=new.in_transaction,
        )  # fmt: skip
        self.compare(
            lambda: self.log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS),
            lambda: self.model.append(new),
        )

    @rule(
        producer=PRODUCERS,
        step=STEPS,
        is_commit=st.booleans(),
        coordinator_epoch=st.sampled_from([1, 1, 1, 0, 2]),
    )
    def end_transaction(self, producer, step, is_commit, coordinator_epoch) -> None:
        state = self.model.known(producer)
        epoch = max((0 if state is None else state.epoch) + step, 0)
        records = marker(
            commit=is_commit, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator_epoch
        )
        end = Batch(producer, epoch, is_commit=is_commit, coordinator_epoch=coordinator_epoch)
        self.compare(
            lambda: self.log.append_as_leader(
                records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR
            ),
            lambda: self.model.end_transaction(end),
        )

    # --- what happens to a log ------------------------------------------------------------------------------

    def place(self, data) -> int:
        return data.draw(st.sampled_from([0, *(batch.next_offset for batch in self.model.batches[-12:])]))

    @rule(data=st.data())
    def commit(self, data) -> None:
        offset = self.place(data)
        self.log.advance_high_watermark(offset)
        self.model.high_watermark = max(self.model.high_watermark, offset)
        self.same()

    @rule(data=st.data())
    def truncate(self, data) -> None:
        offset = self.place(data)
        if offset < self.model.end:
            self.log.truncate_to(offset, now_ms=NOW_MS)
            self.model.truncate(offset)
            self.same()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """All is committed first: which ends of transactions were not yet is not kept."""
        self.log.advance_high_watermark(self.model.end)
        self.model.high_watermark = self.model.sure_from = self.model.end
        self.model.awaited.clear()
        self.broker.manager.write_checkpoints()
        self.broker.restart(clean=clean)
        self.log = self.broker.log()
        self.same()


Appends.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=50, deadline=None)
TestAppends = Appends.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------

_check, _check_sequence = ProducerState.check, ProducerState._check_sequence
_check_awaited, _expect = ProducerState._check_awaited, ProducerState.expect


def _only_the_last(self, first_sequence, last_sequence):
    return next((batch for batch in self.batches[-1:] if batch.last_sequence == last_sequence), None)


def _by_the_end_alone(self, first_sequence, last_sequence):
    return next((batch for batch in self.batches if batch.last_sequence == last_sequence), None)


def _zero_begins_anew(self, producer, header, high_watermark):
    if header.base_sequence:
        _check_sequence(self, producer, header, high_watermark)


def _outside_of_transactions(self, header, **named):
    try:
        return _check(self, header, **named)
    except RequestError as error:
        if error.code != Code.INVALID_TXN_STATE:
            raise
    return None


def _from_any(self, header, *, is_new):
    _check_awaited(self, header, is_new=False)


def _nothing_is_awaited(self, header, *, is_new):
    if is_new:
        _check_awaited(self, header, is_new=True)


def _last_awaited(self, producer_id, epoch, sequence, **options):
    self._awaited.pop(producer_id, None)
    _expect(self, producer_id, epoch, sequence, **options)


_load = ProducerState.load


def _in_any_order(self, entries, end_offset, now_ms):
    _load(self, entries, end_offset, now_ms)
    self._ongoing = dict(reversed(self._ongoing.items()))


def _one_too_early(self, high_watermark):
    self._ended = {first: last for first, last in self._ended.items() if last > high_watermark}


def _coordinators_do_not_count(self, header, marker):
    producer = self._producers.get(header.producer_id)
    if producer is not None:
        self._check_epoch(producer, header.producer_epoch)


def _any_epoch_ends(self, header, marker):
    producer = self._producers.get(header.producer_id)
    if producer is not None and marker.coordinator_epoch < producer.coordinator_epoch:
        raise RequestError(Code.TRANSACTION_COORDINATOR_FENCED)


def _epochs_alike(self, epoch):
    self.producer_epoch = epoch


_append_marker = ProducerState.append_marker


def _stays_open(self, header, marker):
    producer = self._producers.get(header.producer_id)
    first = NO_OFFSET if producer is None else producer.current_txn_first_offset
    done = _append_marker(self, header, marker)
    if producer is not None and marker.is_commit:
        producer.current_txn_first_offset = first
    return done


def _still_awaited(self, header, marker):
    awaited = self._awaited.get(header.producer_id)
    done = _append_marker(self, header, marker)
    if awaited is not None:
        self._awaited[header.producer_id] = awaited
    return done


SLIPS = {
    "only the last batch is known again": (Producer, "find", _only_the_last),
    "a batch is known by its last sequence": (Producer, "find", _by_the_end_alone),
    "sequence 0 is taken at any time": (ProducerState, "_check_sequence", _zero_begins_anew),
    "an open transaction lets others write": (ProducerState, "check", _outside_of_transactions),
    "a transaction begins with any sequence": (ProducerState, "_check_awaited", _from_any),
    "only new producers wait for an awaited batch": (ProducerState, "_check_awaited", _nothing_is_awaited),
    "the last of the awaited batches counts": (ProducerState, "expect", _last_awaited),
    "a marker leaves what is awaited": (ProducerState, "append_marker", _still_awaited),
    "open transactions of a snapshot are not in order": (ProducerState, "load", _in_any_order),
    "an end counts before it is committed": (ProducerState, "on_high_watermark", _one_too_early),
    "an older coordinator ends transactions": (ProducerState, "check_marker", _coordinators_do_not_count),
    "an older epoch ends transactions": (ProducerState, "check_marker", _any_epoch_ends),
    "sequences go on in a new epoch": (Producer, "enter_epoch", _epochs_alike),
    "a commit leaves the transaction open": (ProducerState, "append_marker", _stays_open),
}


def test_slips_are_noticed() -> None:
    assert unnoticed(Appends, SLIPS, f"{__file__}::test_slips_are_noticed") == []

"""Random requests for a transactional id, by producers of any id and epoch: the model says how each of them ends.

Outcome, state, timeout and markers are compared after every step. `SLIPS` are slips that the comparison must notice.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from barnabas.coordinators.statemachine.decision import Decision, Refused
from barnabas.coordinators.transactions import shard as shards
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.shard import ProducerIdNeededError, TransactionShard
from barnabas.coordinators.transactions.transaction import Producer, State, Transaction
from barnabas.errors import RequestError
from tests.models.transactions import FENCE_EPOCH, IDLE_MS, LAST_EPOCH, NONE, Named, TransactionalId
from tests.support.effort import examples
from tests.support.outcomes import apply, outcome
from tests.support.slips import unnoticed

ID = "t"
PLACES = st.frozensets(st.sampled_from([("a", 0), ("a", 1), ("b", 0)]), min_size=1)
TIMEOUTS = st.sampled_from([1, 10_000, 20_000, 900_000])
STEP_MS = 5_000


class Requests(RuleBasedStateMachine):
    """`issued` are the producers that the coordinator has named so far, and are taken for the next requests."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.now = 1_000
        self.model = TransactionalId(self.new_id)
        self.shard = TransactionShard(TransactionSettings())
        self.journal: dict[bytes, bytes | None] = {}
        self.timers: dict[object, int] = {}
        self.issued = [Named(1, 0)]
        self.told: list[shards.Ending] = []
        self.earliest_ms = 0
        """The time of the last restart, at which is due what was due before it."""

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    def producer(self, data: st.DataObject) -> Named:
        """Return one that was issued, often the newest, or a neighbour of it that never was."""
        newest = Named(self.model.id, self.model.epoch) if self.model.epoch != NONE else self.issued[-1]
        former = newest if self.model.former_id == NONE else Named(self.model.former_id, newest.epoch)
        before = newest._replace(epoch=self.model.last_epoch)
        producer = data.draw(st.sampled_from([newest, newest, newest, former, before, *self.issued[-4:]]))
        id_step, epoch_step = data.draw(st.sampled_from([(0, 0)] * 6 + [(0, -1), (0, 1), (1, 0), (-1, 0)]))
        return Named(max(producer.id + id_step, 0), min(max(producer.epoch + epoch_step, 0), FENCE_EPOCH))

    def compare(self, predicted, event) -> None:
        """Let the model predict and the shard decide; both must end in the same way and in the same state."""
        ids = self.ids
        expected = outcome(predicted)
        got = self.decide(event, self.ids if self.ids > ids else None)
        assert got == expected
        if isinstance(expected, Named):
            self.issued.append(expected)
        self.same()

    def decide(self, event, new_id: int | None):
        out = Decision()
        try:
            assert not (new_id is not None and self.decides_without_id(event)), (
                "it goes on with an id that is used up"
            )
            result = event(out, new_id)
        except RequestError as error:
            return error.code.name
        self.settle(out)
        if isinstance(result, Refused):
            return result.error.code.name
        return Named(*result) if isinstance(result, Producer) else result

    def decides_without_id(self, event) -> bool:
        try:
            event(Decision(), None)
        except ProducerIdNeededError:
            return False
        return True

    def settle(self, out: Decision) -> None:
        self.journal.update(out.records)
        apply(out, self.shard, self.timers)
        self.told += out.effects

    def same(self) -> None:
        """Both know the same of the id, will abort it at the same time, and have told its partitions the same."""
        model, transaction = self.model, self.shard.transactions.get(ID)
        if transaction is None:
            assert model.state == "none"
            return
        got = (
            transaction.state.title, transaction.producer_id, transaction.epoch, transaction.last_epoch,
            transaction.next_producer_id, transaction.timeout_ms, transaction.partitions,
            transaction.start_ms, transaction.update_ms,
        )  # fmt: skip
        assert got == (
            model.state, model.id, model.epoch, model.last_epoch, model.next_id, model.timeout_ms,
            model.places, model.start_ms, model.update_ms,
        )  # fmt: skip
        due = [] if model.deadline_ms is None else [max(model.deadline_ms, self.earliest_ms)]
        assert list(self.timers.values()) == due
        told = [(Named(*txn.producer), txn.commit, txn.partitions) for txn in self.told]
        assert told == [tuple(marker) for marker in model.markers]

    # --- requests -------------------------------------------------------------------------------------------

    @rule(data=st.data(), timeout_ms=TIMEOUTS | st.sampled_from([0, -1, 900_001]), goes_on=st.booleans())
    def init(self, data, timeout_ms: int, goes_on: bool) -> None:
        expected = self.producer(data) if goes_on else None
        expected_producer = None if expected is None else Producer(*expected)
        self.compare(
            lambda: self.model.init_producer_id(timeout_ms, expected, self.now),
            lambda out, new_id: self.shard.init_producer(
                ID, timeout_ms, expected_producer, new_id, self.now, out
            ),
        )

    @rule(data=st.data(), places=PLACES, version=st.sampled_from([0, 2]))
    def add(self, data, places, version: int) -> None:
        producer = self.producer(data)
        self.compare(
            lambda: self.model.add_partitions(producer, places, self.now),
            lambda out, _: self.shard.add_partitions(ID, Producer(*producer), places, version, self.now, out),
        )

    @rule(data=st.data())
    def verify(self, data) -> None:
        producer = self.producer(data)
        self.compare(
            lambda: self.model.verify(producer),
            lambda _out, _: self.shard.verify_partitions(ID, Producer(*producer)),
        )

    @rule(data=st.data(), commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, data, commit: bool, version: int) -> None:
        producer = self.producer(data)
        self.compare(
            lambda: self.model.end(producer, is_commit=commit, bumps=version == 2, now_ms=self.now),
            lambda out, new_id: self.shard.end(
                ID, Producer(*producer), commit=commit, client_version=version, new_producer_id=new_id,
                now_ms=self.now, out=out,
            ),
        )  # fmt: skip

    # --- what happens without a request ---------------------------------------------------------------------

    @precondition(lambda self: self.model.is_prepared)
    @rule()
    def partitions_know(self) -> None:
        ending = self.told[-1]
        self.compare(
            lambda: self.model.complete(self.now), lambda out, _: self.shard.complete(ending, self.now, out)
        )

    @rule(steps=st.integers(1, 3))
    def wait(self, steps: int) -> None:
        for _ in range(steps):
            self.now += STEP_MS
            self.model.pass_time(self.now)
            for timer in [timer for timer, at_ms in self.timers.items() if at_ms <= self.now]:
                del self.timers[timer]
                out = Decision()
                self.shard.expire(timer, self.now, out)
                self.settle(out)
        self.same()

    @rule(less_ms=st.sampled_from([0, 1, IDLE_MS // 2]))
    def be_idle(self, less_ms: int) -> None:
        if self.model.state == "none" or self.model.state == "Ongoing":
            return
        self.now = max(self.now, self.model.update_ms + IDLE_MS - less_ms)
        self.model.forget_if_idle(self.now)
        for event in self.shard.expiring(self.now):
            out = Decision()
            event(self.shard, out)
            self.settle(out)
        if self.model.state == "none":
            self.told = []
        self.same()

    @precondition(lambda self: self.model.state in ("Empty", "CompleteCommit", "CompleteAbort"))
    @rule()
    def use_up_the_epochs(self) -> None:
        """As if the producer had gone on for long."""
        if self.model.epoch < LAST_EPOCH - 1:
            out = Decision()
            transaction = self.shard.transactions[ID]
            self.shard._become(replace(transaction, epoch=LAST_EPOCH - 1, last_epoch=NONE), out)
            self.settle(out)
            self.model.epoch, self.model.last_epoch = LAST_EPOCH - 1, NONE

    @rule()
    def restart(self) -> None:
        self.shard = TransactionShard(TransactionSettings())
        for key, value in self.journal.items():
            self.shard.replay(key, value, loading=True)
        self.timers, self.told, self.earliest_ms = {}, [], self.now
        out = Decision()
        self.shard.loaded(self.now, out)
        self.settle(out)
        self.model.restart()
        if self.model.deadline_ms is not None and self.model.deadline_ms > self.now:
            self.earliest_ms = 0
        self.same()


Requests.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)
TestRequests = Requests.TestCase


# --- planted slips ----------------------------------------------------------------------------------------------


def _any_epoch_of_the_former_id(transaction, expected):
    return transaction.epoch == NONE or expected.id in (
        transaction.producer_id,
        transaction.previous_producer_id,
    )


_add = TransactionShard.add_partitions
_init = TransactionShard.init_producer
_prepared = Transaction.prepared


def _timeout_begins_again(shard, transactional_id, producer, topic_partitions, client_version, now_ms, out):
    _add(shard, transactional_id, producer, topic_partitions, client_version, now_ms, out)
    timeout_ms = shard._decided.get(transactional_id, shard.transactions.get(transactional_id)).timeout_ms
    out.timers[(shards.TIMEOUT, transactional_id)] = now_ms + timeout_ms


def _forgets_what_is_new(ids, now_ms, shard, out):
    for transaction in filter(None, map(shard.transactions.get, ids)):
        if (
            transaction.state is State.EMPTY
            or transaction.update_ms <= now_ms - shard.settings.id_expiration_ms
        ):
            out.records.append(shards.transaction_tombstone(transaction.id))


def _epoch_below_is_the_same(transaction, producer, *, repeated):
    return producer.epoch in (transaction.epoch, transaction.epoch - 1)


def _either_end_is_the_same(transaction, *, commit):
    return RequestError(shards.ErrorCode.CONCURRENT_TRANSACTIONS)


def _keeps_its_epoch(self, **named):
    return replace(_prepared(self, **named), epoch=self.epoch)


def _starts_with_the_update(self, topic_partitions, client_version, now_ms):
    return replace(
        self,
        state=State.ONGOING,
        partitions=self.partitions | topic_partitions,
        start_ms=now_ms,
        update_ms=now_ms,
    )


def _fences_nobody(self, now_ms):
    return replace(self, state=State.PREPARE_ABORT, update_ms=now_ms, last_epoch=self.epoch)


SLIPS = {
    "a former producer id with any epoch is known": (shards, "_is_known", _any_epoch_of_the_former_id),
    "adding partitions puts the timeout off": (TransactionShard, "add_partitions", _timeout_begins_again),
    "an id just initialised is forgotten as idle": (shards, "_expire", _forgets_what_is_new),
    "the epoch before may end a transaction of version 0": (shards, "_may_end", _epoch_below_is_the_same),
    "an abort of what is committed is told to wait": (shards, "_impossible", _either_end_is_the_same),
    "version 2 keeps the epoch": (Transaction, "prepared", _keeps_its_epoch),
    "each partition begins the transaction anew": (Transaction, "with_partitions", _starts_with_the_update),
    "a timeout fences nobody": (Transaction, "fenced", _fences_nobody),
    "any epoch adds partitions": (shards, "_check_producer", lambda transaction, producer: None),
    "a pending end is no reason to wait": (shards, "_check_not_pending", lambda transaction: None),
    "the last epoch is not the last": (
        Transaction,
        "is_exhausted",
        property(lambda self: self.epoch >= FENCE_EPOCH),
    ),
}


def test_slips_are_noticed() -> None:
    assert unnoticed(Requests, SLIPS, f"{__file__}::test_slips_are_noticed") == []

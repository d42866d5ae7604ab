"""A shard of transactional ids, event by event, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.config.features import Feature, RecordVersions
from barnabas.coordinators.statemachine.decision import Decision, Refused
from barnabas.coordinators.transactions.records import parse_key, parse_transaction, transaction_record
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.shard import Ending, ProducerIdNeededError, TransactionShard
from barnabas.coordinators.transactions.transaction import (
    EPOCH_MAX,
    EPOCH_MAX_OF_CLIENTS,
    Producer,
    State,
    Transaction,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.outcomes import apply

ID = "t"
ONE = frozenset({("a", 0)})
TWO = frozenset({("a", 0), ("b", 3)})
TIMEOUT_MS = 60_000
DEFAULT = TransactionSettings()


class Harness:
    """A shard with one transactional id; writes what is decided and can be read again from that."""

    def __init__(self, settings: TransactionSettings = DEFAULT) -> None:
        self.settings = settings
        self.shard = TransactionShard(settings)
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[object, int] = {}
        self.endings: list[Ending] = []
        self.next_id = 100
        self.now = 1_000

    def settle(self, out: Decision) -> None:
        self.journal += out.records
        apply(out, self.shard, self.timers)
        self.endings += out.effects

    def restart(self) -> None:
        self.shard = TransactionShard(self.settings)
        for key, value in self.journal:
            self.shard.replay(key, value, loading=True)
        self.timers.clear()
        self.endings.clear()
        out = Decision()
        self.shard.loaded(self.now, out)
        self.settle(out)

    def init(self, expected: Producer | None = None, timeout_ms: int = TIMEOUT_MS) -> Producer:
        out = Decision()
        try:
            result = self.shard.init_producer(ID, timeout_ms, expected, None, self.now, out)
        except ProducerIdNeededError:
            self.next_id += 1
            result = self.shard.init_producer(ID, timeout_ms, expected, self.next_id, self.now, out)
        self.settle(out)
        if isinstance(result, Refused):
            raise result.error
        return result

    def add(
        self, producer: Producer, topic_partitions: frozenset[tuple[str, int]] = ONE, version: int = 0
    ) -> None:
        out = Decision()
        self.shard.add_partitions(ID, producer, topic_partitions, version, self.now, out)
        self.settle(out)

    def end(self, producer: Producer, *, commit: bool = True, version: int = 0) -> Producer:
        for new_id in (None, self.next_id + 1):
            out = Decision()
            try:
                result = self.shard.end(
                    ID, producer, commit=commit, client_version=version, new_producer_id=new_id,
                    now_ms=self.now, out=out,
                )  # fmt: skip
            except ProducerIdNeededError:
                self.next_id += 1
                continue
            self.settle(out)
            return result
        raise AssertionError

    def complete(self) -> None:
        out = Decision()
        self.shard.complete(self.endings.pop(), self.now, out)
        self.settle(out)

    def expire(self) -> None:
        for timer, at_ms in list(self.timers.items()):
            self.now = at_ms
            del self.timers[timer]
            out = Decision()
            self.shard.expire(timer, self.now, out)
            self.settle(out)

    def put(self, **fields: object) -> None:
        """Make the transaction be in a given state."""
        values = {"id": ID, "producer_id": 7, "epoch": 3, "timeout_ms": TIMEOUT_MS, **fields}
        self.shard.transactions[ID] = Transaction(**values)  # type: ignore[arg-type]

    @property
    def transaction(self) -> Transaction:
        return self.shard.transactions[ID]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def refused(code: ErrorCode, *args: object, **kwargs: object) -> None:
    call, *rest = args
    with pytest.raises(RequestError) as failure:
        call(*rest, **kwargs)  # type: ignore[operator]
    assert failure.value.code == code


def test_a_transaction_of_version_1_keeps_its_epoch(harness):
    producer = harness.init()
    harness.add(producer, ONE)
    harness.add(producer, TWO)
    assert harness.transaction.partitions == TWO
    assert harness.timers == {("timeout", ID): harness.now + TIMEOUT_MS}
    assert harness.end(producer) == producer
    assert harness.transaction.state is State.PREPARE_COMMIT
    assert harness.endings == [Ending(ID, producer, True, TWO, 0)]
    assert harness.timers == {}
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.add, producer)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.end, producer)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.end, producer, commit=False)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.init)
    harness.complete()
    assert harness.transaction.state is State.COMPLETE_COMMIT
    assert harness.end(producer) == producer  # asked again
    refused(ErrorCode.INVALID_TXN_STATE, harness.end, producer, commit=False)
    harness.add(producer)
    assert harness.transaction.partitions == ONE


def test_version_2_bumps_the_epoch_at_each_end(harness):
    producer = harness.init()
    harness.add(producer, ONE, version=2)
    after = harness.end(producer, version=2)
    assert after == (producer.id, producer.epoch + 1)
    assert harness.endings[0].producer == after
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.end, producer, version=2)  # asked again
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.end, after, version=2)
    harness.complete()
    assert harness.end(producer, version=2) == after  # asked again
    refused(ErrorCode.INVALID_TXN_STATE, harness.end, producer, commit=False, version=2)
    refused(ErrorCode.INVALID_TXN_STATE, harness.end, after, version=2)
    refused(ErrorCode.PRODUCER_FENCED, harness.add, producer, ONE, 2)
    harness.add(after, ONE, version=2)


def test_the_last_epoch_of_version_2_leads_to_a_new_id(harness):
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS)
    old = harness.transaction.producer
    harness.add(old, ONE, version=2)
    after = harness.end(old, version=2)
    assert after == (101, 0)
    assert harness.endings[0].producer == (7, EPOCH_MAX)
    harness.complete()
    assert harness.transaction.producer == after
    assert harness.transaction.previous_producer_id == 7
    assert harness.end(old, version=2) == after  # asked again
    harness.add(after, ONE, version=2)


def test_nobody_ends_anything_in_the_epoch_kept_for_fencing(harness):
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS)
    old = harness.transaction.producer
    harness.add(old, ONE, version=2)
    harness.expire()
    harness.complete()
    told = harness.end(old, commit=False, version=2)  # counts as asked again
    assert told == (7, EPOCH_MAX)
    refused(ErrorCode.PRODUCER_FENCED, harness.end, told, commit=False, version=2)
    assert harness.init() == (101, 0)


def test_nobody_adds_partitions_in_the_epoch_kept_for_fencing(harness):
    """There is no higher one that would keep it out when another instance begins."""
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS)
    old = harness.transaction.producer
    harness.add(old, ONE, version=2)
    harness.expire()
    harness.complete()
    told = harness.end(old, commit=False, version=2)
    before = harness.transaction
    refused(ErrorCode.PRODUCER_FENCED, harness.add, told, ONE, version=2)
    assert harness.transaction == before


def test_producer_fenced_in_its_last_epoch_gets_a_new_id(harness):
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS)
    old = harness.transaction.producer
    harness.add(old, ONE)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.init)
    harness.complete()
    assert harness.transaction.producer == (7, EPOCH_MAX)
    refused(ErrorCode.PRODUCER_FENCED, harness.init, Producer(7, EPOCH_MAX_OF_CLIENTS - 1))
    assert harness.init(old) == (101, 0)
    assert harness.init(old) == (101, 0)  # asked again
    refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, harness.add, old)
    harness.add(Producer(101, 0))


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT, State.ONGOING])
@pytest.mark.parametrize("added", [frozenset(), ONE])
def test_added_partitions_are_idempotent_while_open(state: State, added: frozenset[tuple[str, int]]) -> None:
    """A request may name no partition: it begins a transaction all the same."""
    h = Harness()
    h.put(state=state, partitions=ONE if state is State.ONGOING else frozenset())
    before, written = h.transaction, len(h.journal)
    h.add(before.producer, added)
    if state is State.ONGOING:
        assert (h.transaction, len(h.journal), h.timers) == (before, written, {})
    else:
        assert (h.transaction.state, h.transaction.partitions) == (State.ONGOING, added)
        assert h.timers == {("timeout", ID): h.now + h.transaction.timeout_ms}


def test_resuming_producer_aborts_its_open_transaction(harness):
    producer = harness.init()
    harness.add(producer, TWO)
    refused(ErrorCode.CONCURRENT_TRANSACTIONS, harness.init, producer)
    harness.complete()
    assert harness.init(producer) == (producer.id, 1)


def test_producer_of_version_2_resumes_after_a_timeout(harness):
    producer = harness.init()
    harness.add(producer, ONE, version=2)
    harness.expire()
    harness.complete()
    refused(ErrorCode.PRODUCER_FENCED, harness.add, producer, ONE, 2)
    assert harness.init(producer) == (producer.id, producer.epoch + 1)


def test_restart_resumes_open_and_ending_transactions(harness):
    producer = harness.init()
    harness.add(producer, TWO)
    due = dict(harness.timers)
    harness.restart()
    assert harness.timers == due
    assert harness.transaction.partitions == TWO
    harness.end(producer)
    ending = harness.endings[0]
    harness.restart()
    assert harness.endings == [ending]
    harness.complete()
    harness.restart()
    assert (harness.transaction.state, harness.endings, harness.timers) == (State.COMPLETE_COMMIT, [], {})


def test_unused_ids_are_forgotten_and_open_ones_are_not(harness):
    producer = harness.init()
    harness.add(producer)
    harness.now += 8 * 86_400_000

    def expired():
        out = Decision()
        for event in harness.shard.expiring(harness.now):
            event(harness.shard, out)
        return out

    assert expired().records == []
    harness.expire()
    harness.complete()
    harness.now += 8 * 86_400_000
    harness.settle(expired())
    assert harness.shard.transactions == {}
    harness.restart()
    assert harness.shard.transactions == {}


def test_listing_filters(harness):
    producer = harness.init()
    harness.add(producer)
    now = harness.now + 5_000

    def found(*args: object) -> bool:
        return any(txn.matches(*args, now) for txn in harness.shard.transactions.values())  # type: ignore[arg-type]

    assert found(set(), set(), -1)
    assert found({"Ongoing"}, {producer.id}, 4_999)
    assert not found(set(), set(), 5_000)
    assert not found({"Empty"}, set(), -1)
    assert not found(set(), {producer.id + 1}, -1)


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_ids_are_written_in_the_version_of_the_feature(level, version):
    record_version = RecordVersions().of_transactions([Feature("transaction.version", 0, 2, level)])
    assert record_version == version
    harness = Harness(TransactionSettings(record_version=lambda: record_version))
    producer = harness.init()
    harness.add(producer, TWO)
    harness.end(producer, version=min(level, 1) * 2)
    assert {int.from_bytes(value[:2], "big") for _, value in harness.journal} == {version}
    before = harness.transaction
    harness.restart()
    after = harness.transaction
    assert (after.state, after.partitions, after.epoch) == (before.state, before.partitions, before.epoch)


def test_feature_change_changes_the_next_records_version():
    level = [0]
    harness = Harness(TransactionSettings(record_version=lambda: level[0]))
    producer = harness.init()
    level[0] = 1
    harness.add(producer, TWO)
    assert [int.from_bytes(value[:2], "big") for _, value in harness.journal] == [0, 1]
    harness.restart()
    assert harness.transaction.partitions == TWO


@pytest.mark.parametrize("version", [0, 1])
def test_every_state_can_be_written_in_every_version(version):
    """Version 0 is what brokers read that know version 1 of transactions alone; what it has no room for is left out."""
    full = Transaction(
        "id", 7, epoch=3, previous_producer_id=5, next_producer_id=9, timeout_ms=1, client_version=2,
        partitions=frozenset({("t", 0)}), start_ms=1, update_ms=2,
    )  # fmt: skip
    for state in State:
        key, value = transaction_record(replace(full, state=state), version)
        read = parse_transaction(parse_key(key), value)
        assert (read.producer_id, read.epoch, read.state) == (7, 3, state)
        kept = (read.previous_producer_id, read.next_producer_id, read.client_version)
        assert kept == ((5, 9, 2) if version else (-1, -1, 0))


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
@pytest.mark.parametrize("start_ms", [-1, 1_000])
@pytest.mark.parametrize("longer_than_ms", [-2, -1, 0, 499, 500, 501, 1_500, 1_501, 1_502, 2**63 - 1])
def test_how_long_ago_it_began_counts_in_every_state(state, start_ms, longer_than_ms):
    """As Apache Kafka 4.3 and 3.9 answer ListTransactions: -1 is when what has not begun began."""
    transaction = Transaction(ID, 7, 0, state=state, start_ms=start_ms)
    began_ms_ago = 1_500 - start_ms
    expected = longer_than_ms < 0 or began_ms_ago > longer_than_ms
    assert transaction.matches(set(), set(), longer_than_ms, 1_500) is expected
    assert not replace(transaction, state=State.DEAD).matches(set(), set(), longer_than_ms, 1_500)

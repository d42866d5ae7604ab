"""A transactional id is taken over only by its producers, and obeys the clock: one shard, event by event."""

from __future__ import annotations

from dataclasses import fields

import pytest

from barnabas.coordinators.statemachine.decision import Decision
from barnabas.coordinators.transactions.records import parse_key, parse_transaction, transaction_record
from barnabas.coordinators.transactions.transaction import EPOCH_MAX_OF_CLIENTS, Producer, State, Transaction
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.transaction_log import RECORD

from .test_shard import DEFAULT, ID, ONE, TIMEOUT_MS, TWO, Harness, refused

TIMER = ("timeout", ID)


def with_a_new_id() -> tuple[Harness, Producer]:
    """A shard with a producer that has used up the epochs of id 7, and resumes with another id."""
    harness = Harness()
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS)
    old = harness.transaction.producer
    harness.add(old, ONE, version=2)
    new = harness.end(old, version=2)
    harness.complete()
    assert harness.transaction.previous_producer_id == old.id
    return harness, new


@pytest.mark.parametrize("epoch", [0, 1, EPOCH_MAX_OF_CLIENTS - 1])
def test_former_producer_id_needs_its_last_epoch(epoch):
    """An instance from before the id was changed may have had any epoch, also the one that counts now."""
    harness, new = with_a_new_id()
    harness.init(new)  # epoch 1 of the new id, after epoch 0
    before = harness.transaction
    refused(ErrorCode.PRODUCER_FENCED, harness.init, Producer(7, epoch))
    assert harness.transaction == before


def test_a_former_producer_id_may_go_on_with_its_last_epoch():
    harness, new = with_a_new_id()
    assert harness.init(Producer(7, EPOCH_MAX_OF_CLIENTS)) == new


def test_repeated_init_before_the_last_epoch_gets_the_last():
    harness = Harness()
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS - 1)
    producer = harness.transaction.producer
    assert harness.init(producer) == harness.init(producer) == Producer(7, EPOCH_MAX_OF_CLIENTS)


def test_foreign_producer_id_is_fenced_in_any_epoch():
    harness, _ = with_a_new_id()
    refused(ErrorCode.PRODUCER_FENCED, harness.init, Producer(8, EPOCH_MAX_OF_CLIENTS))


def test_retried_end_of_the_former_id_returns_the_new_one():
    harness, new = with_a_new_id()
    old = Producer(7, EPOCH_MAX_OF_CLIENTS)
    assert harness.end(old, version=2) == new  # asked again
    for producer, version in ((Producer(8, old.epoch), 2), (Producer(7, old.epoch - 1), 2), (old, 0)):
        refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, harness.end, producer, version=version)
    harness.add(new, ONE, version=2)
    harness.end(new, version=2)
    harness.complete()
    assert harness.transaction.epoch == 1
    refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, harness.end, old, version=2)


@pytest.mark.parametrize("version", [0, 2])
def test_added_partitions_do_not_extend_the_timeout(version):
    harness = Harness()
    producer = harness.init()
    harness.add(producer, ONE, version)
    begun = harness.now
    for partition in range(5):
        harness.now += TIMEOUT_MS // 10
        harness.add(producer, frozenset({("b", partition)}), version)
        assert harness.timers == {TIMER: begun + TIMEOUT_MS}
        assert (harness.transaction.start_ms, harness.transaction.update_ms) == (begun, harness.now)
    harness.restart()
    assert harness.timers == {TIMER: begun + TIMEOUT_MS}


def test_timeout_during_a_restart_aborts_immediately():
    harness = Harness()
    harness.add(harness.init(), ONE)
    harness.now += 2 * TIMEOUT_MS
    harness.restart()
    assert harness.timers == {TIMER: harness.now}


@pytest.mark.parametrize("state", [state for state in State if state is not State.ONGOING])
def test_a_timer_that_comes_too_late_ends_nothing(state):
    harness = Harness()
    harness.put(state=state)
    before = harness.transaction
    out = Decision()
    harness.shard.expire(TIMER, harness.now, out)
    harness.shard.expire(("timeout", "forgotten"), harness.now, out)
    assert (out.records, out.effects, harness.transaction) == ([], [], before)


def forgotten(harness: Harness) -> bool:
    out = Decision()
    for event in harness.shard.expiring(harness.now):
        event(harness.shard, out)
    return bool(out.records)


def initialised_first(harness: Harness) -> None:
    harness.init()


def initialised_again(harness: Harness) -> None:
    harness.put(epoch=4, update_ms=harness.now - 2 * DEFAULT.id_expiration_ms)
    harness.init()


def initialised_with_another_id(harness: Harness) -> None:
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS, update_ms=harness.now - 2 * DEFAULT.id_expiration_ms)
    harness.init()
    assert harness.transaction.producer_id != 7


def committed(harness: Harness) -> None:
    producer = harness.init()
    harness.now += DEFAULT.id_expiration_ms
    harness.add(producer)
    harness.end(producer)
    harness.complete()


@pytest.mark.parametrize(
    "used", [initialised_first, initialised_again, initialised_with_another_id, committed]
)
def test_an_id_is_idle_from_its_last_use_on(used):
    harness = Harness()
    harness.now = 10 * DEFAULT.id_expiration_ms
    used(harness)
    assert not forgotten(harness)
    harness.now += DEFAULT.id_expiration_ms - 1
    assert not forgotten(harness)
    harness.now += 1
    assert forgotten(harness)


@pytest.mark.parametrize("state", [State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_an_id_whose_transaction_is_not_at_its_end_is_never_idle(state):
    harness = Harness()
    harness.put(state=state, update_ms=harness.now)
    harness.now += 10 * DEFAULT.id_expiration_ms
    assert not forgotten(harness)


@pytest.mark.parametrize("timeout_ms", [1, DEFAULT.timeout_ms_max])
def test_the_bounds_of_a_timeout_are_allowed(timeout_ms):
    harness = Harness()
    harness.add(harness.init(timeout_ms=timeout_ms), ONE)
    assert harness.transaction.timeout_ms == timeout_ms
    assert harness.timers == {TIMER: harness.now + timeout_ms}


def test_who_goes_on_has_the_timeout_that_it_asks_for_now():
    harness, new = with_a_new_id()
    harness.init(new, timeout_ms=77)
    assert (harness.transaction.timeout_ms, harness.transaction.update_ms) == (77, harness.now)
    harness.put(epoch=EPOCH_MAX_OF_CLIENTS)
    harness.init(harness.transaction.producer, timeout_ms=78)
    assert (harness.transaction.timeout_ms, harness.transaction.update_ms) == (78, harness.now)
    assert harness.transaction.last_epoch == EPOCH_MAX_OF_CLIENTS


def test_duration_filter_counts_milliseconds():
    harness = Harness()
    harness.add(harness.init(), ONE)
    assert not harness.transaction.matches(set(), set(), 0, harness.now)
    assert harness.transaction.matches(set(), set(), 0, harness.now + 1)
    assert harness.transaction.matches(set(), set(), -1, harness.now)
    assert harness.transaction.matches(set(), set(), -1, harness.now - 10), (
        "a clock that was set back hides nothing"
    )


def test_a_transactional_id_that_is_dead_is_not_listed():
    harness = Harness()
    harness.put(state=State.DEAD)
    assert not harness.transaction.matches(set(), set(), -1, harness.now)
    assert not harness.transaction.matches({"Dead"}, {7}, -1, harness.now)


# --- what is written --------------------------------------------------------------------------------------------

ALL_DIFFERENT = Transaction(
    "id", 11, epoch=12, last_epoch=13, previous_producer_id=14, next_producer_id=15, timeout_ms=16,
    state=State.PREPARE_COMMIT, partitions=TWO, start_ms=17, update_ms=18, client_version=19,
)  # fmt: skip


def test_each_field_of_a_transaction_comes_back_as_itself():
    """All of them differ, so that none can take another's place, neither in writing nor in reading."""
    key, value = transaction_record(ALL_DIFFERENT, 1)
    read = parse_transaction(parse_key(key), value)
    differing = {
        field.name
        for field in fields(Transaction)
        if getattr(read, field.name) != getattr(ALL_DIFFERENT, field.name)
    }
    assert differing == {"last_epoch"}  # Kafka's record has no place for it


def test_transaction_record_has_kafkas_fields():
    _, value = transaction_record(ALL_DIFFERENT, 1)
    assert value is not None
    written = RECORD.decode_value(value)
    assert (
        written.producer_id, written.producer_epoch, written.previous_producer_id, written.next_producer_id,
        written.transaction_timeout_ms, written.transaction_status,
        written.transaction_start_timestamp_ms, written.transaction_last_update_timestamp_ms,
        written.client_transaction_version,
    ) == (11, 12, 14, 15, 16, 2, 17, 18, 19)  # fmt: skip
    assert {(topic.topic, tuple(topic.partition_ids)) for topic in written.transaction_partitions} == {
        ("a", (0,)),
        ("b", (3,)),
    }

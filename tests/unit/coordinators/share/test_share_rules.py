"""A share partition, rule by rule, where two of them are easily taken for one: each case has one of them alone decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.cluster.metadata.image import GROUP, ClusterImage
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.inflight import ACQUIRED, AVAILABLE, InFlight, RecordState, Run
from barnabas.coordinators.share.settings import OffsetReset, ShareSettings
from barnabas.wire.generated.errors import ErrorCode

from .test_partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    ack,
    acquire_request,
    code_of,
    decide,
    partition,
)

LOCK_MS = 30_000

# --- runs ---------------------------------------------------------------------------------------------------------

RUN = Run(0, 4, ACQUIRED, 2, (0, 9), "a", 77, None)


@pytest.mark.parametrize(
    "change",
    [
        {"state": AVAILABLE}, {"deliveries": 3}, {"batch": (5, 9)}, {"member": "b"}, {"lock_due_ms": 78},
        {"target": RecordState.ACKNOWLEDGED},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_neighbours_that_differ_in_one_thing_stay_apart(change):
    for first, second in ((RUN, replace(RUN, **change)), (replace(RUN, **change), RUN)):
        flight = InFlight()
        flight.append(replace(first))
        flight.append(replace(second, first=5, last=9))
        flight.close_up()
        assert [(run.first, run.last) for run in flight] == [(0, 4), (5, 9)]


def test_neighbours_that_do_not_differ_are_joined_and_cut_where_that_is_needed():
    flight = InFlight()
    for first in (0, 5, 10):
        flight.append(replace(RUN, first=first, last=first + 4))
    flight.close_up()
    assert [(run.first, run.last) for run in flight] == [(0, 14)]
    assert [(run.first, run.last) for run in flight.cut(3, 11)] == [(3, 11)]
    assert [(run.first, run.last) for run in flight] == [(0, 2), (3, 11), (12, 14)]
    assert [(run.first, run.last) for run in flight.cut(2, 3)] == [(2, 2), (3, 3)]
    assert flight.cut(5, 4) == []
    assert [run.first for run in flight.between(2, 3)] == [2, 3]
    for outside in ((-5, -1), (15, 20), (30, 40)):
        assert flight.cut(*outside) == [], "what is not in flight"
    assert [(run.first, run.last) for run in flight.cut(-5, 1)] == [(0, 1)]
    assert [(run.first, run.last) for run in flight.cut(14, 99)] == [(14, 14)]
    flight.drop_before(12)
    assert (flight.first, flight.last, len(list(flight))) == (12, 14, 2)
    flight.drop_before(13)
    assert (flight.first, flight.last) == (13, 14)
    flight.drop_before(15)
    assert not flight


# --- what is read again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [(0, AVAILABLE), (1, AVAILABLE), (2, ACKNOWLEDGED), (3, ARCHIVED), (4, ARCHIVED), (9, AVAILABLE)],
)
def test_each_state_that_is_written_has_its_meaning_when_it_is_read(state, expected):
    """Locks end with the leader that gave them."""
    shared = partition(0, StateBatch(5, 9, state, 3))
    runs = [(run.first, run.last, run.state, run.deliveries, run.batch) for run in shared.flight]
    assert runs == [(0, 4, AVAILABLE, 0, (0, 4)), (5, 9, expected, 3, (5, 9))]


def test_what_is_complete_at_the_beginning_is_passed_over_when_it_is_read():
    shared = partition(5, StateBatch(0, 7, ACKNOWLEDGED, 1), StateBatch(8, 9, AVAILABLE, 2))
    assert (shared.start_offset, shared.next_offset, shared.end) == (8, 8, 10)
    shared = partition(8, StateBatch(0, 7, AVAILABLE, 1), StateBatch(3, 9, AVAILABLE, 2))
    assert [(run.first, run.last, run.deliveries) for run in shared.flight] == [(8, 9, 2)]


# --- acquiring ----------------------------------------------------------------------------------------------------


def test_what_was_never_delivered_before_what_was_comes_with_it():
    shared = partition(0, StateBatch(5, 9, 0, 1), StateBatch(15, 19, 0, 1))
    assert shared.acquire(acquire_request(), [(0, 24)], 0) == [
        (0, 4, 1), (5, 9, 2), (10, 14, 1), (15, 19, 2), (20, 24, 1),
    ]  # fmt: skip
    shared = partition(0, StateBatch(5, 9, 0, 1))
    assert shared.acquire(acquire_request(records=3), [(0, 9)], 0) == [(0, 4, 1)], (
        "a stretch is a batch by itself"
    )
    assert shared.acquire(acquire_request(records=3), [(5, 9)], 0) == [(5, 9, 2)]


def test_what_was_delivered_once_and_twice_of_one_batch_is_described_apart():
    shared = partition(deliveries_max=9)
    shared.acquire(acquire_request("a"), [(0, 9)], 0)
    decide(shared, ack(0, 4, RELEASE))
    shared.acquire(acquire_request("b"), [(0, 4)], 0)
    decide(shared, ack(0, 4, RELEASE), member="b")
    decide(shared, ack(5, 9, RELEASE))
    assert shared.acquire(acquire_request("c"), [(0, 9)], 0) == [(0, 4, 3), (5, 9, 2)]


def test_neighbours_of_two_batches_are_described_apart():
    shared = partition()
    assert shared.acquire(acquire_request(batch_size=5), [(0, 4), (5, 9)], 0) == [(0, 4, 1), (5, 9, 1)]
    assert shared.acquire(acquire_request("b"), [(0, 9), (10, 14)], 0) == [(10, 14, 1)]


@pytest.mark.parametrize(("wanted", "acquired"), [(1, [(0, 4, 1)]), (5, [(0, 4, 1)]), (6, [(0, 9, 1)])])
def test_the_batch_that_has_the_last_record_that_is_wanted_is_the_last_one(wanted, acquired):
    assert partition().acquire(acquire_request(records=wanted), [(0, 4), (5, 9), (10, 14)], 0) == acquired


@pytest.mark.parametrize(
    ("size", "portions"),
    [
        (4, [(0, 4), (5, 9), (10, 14)]),
        (5, [(0, 4), (5, 9), (10, 14)]),
        (6, [(0, 9), (10, 14)]),
        (15, [(0, 14)]),
    ],
)
def test_a_portion_is_as_large_as_is_asked_for_and_ends_with_a_batch(size, portions):
    acquired = partition().acquire(acquire_request(batch_size=size), [(0, 4), (5, 9), (10, 14)], 0)
    assert [(first, last) for first, last, _ in acquired] == portions


def test_a_strict_limit_knows_no_portions():
    acquired = partition().acquire(acquire_request(batch_size=5, strict=True), [(0, 4), (5, 9)], 0)
    assert acquired == [(0, 9, 1)]


@pytest.mark.parametrize(("records", "batches"), [(0, [(0, 9)]), (-1, [(0, 9)]), (500, []), (0, [])])
def test_who_wants_nothing_and_who_finds_nothing_gets_nothing(records, batches):
    shared = partition()
    assert shared.acquire(acquire_request(records=records), batches, 0) == []
    assert not shared.flight


def test_two_parts_of_a_batch_between_which_another_has_something_are_described_apart():
    shared = partition()
    shared.acquire(acquire_request("a"), [(0, 9)], 0)
    decide(shared, ack(0, 2, RELEASE), ack(7, 9, RELEASE))
    assert shared.acquire(acquire_request("b"), [(0, 9)], 0) == [(0, 2, 2), (7, 9, 2)]


@pytest.mark.parametrize("strict", [False, True])
def test_each_portion_counts_towards_what_is_wanted_with_all_of_its_records(strict):
    shared = partition(deliveries_max=9)
    batches = [(first, first + 4) for first in (0, 5, 10, 15)]
    for first, last in batches:
        shared.acquire(acquire_request(), [(first, last)], 0)
    decide(shared, *[ack(first, last, RELEASE) for first, last in batches])
    acquired = shared.acquire(acquire_request(records=8, strict=strict), batches, 0)
    assert [(first, last) for first, last, _ in acquired] == [(0, 4), (5, 7 if strict else 9)]


def test_nothing_of_what_is_gone_from_the_log_is_waited_for_and_nothing_acquired_is_lost_by_it():
    shared = partition()
    shared.acquire(acquire_request("a"), [(0, 4)], 0)
    shared.acquire(acquire_request("b"), [(5, 9)], 0)
    decide(shared, ack(5, 9, RELEASE), member="b")
    assert shared.acquire(acquire_request("c"), [(8, 9)], 0) == [(8, 9, 2)]
    states = [(run.first, run.last, run.state) for run in shared.flight]
    assert states == [(0, 4, ACQUIRED), (5, 7, ARCHIVED), (8, 9, ACQUIRED)]
    assert shared.complete_count == 3


@pytest.mark.parametrize(
    ("aborted", "left"),
    [
        ([(0, 4)], [(5, 9)]),
        ([(5, 9)], [(0, 4)]),
        ([(3, 5)], [(0, 2), (6, 9)]),
        ([(9, 12)], [(0, 8)]),
        ([(0, 0), (9, 9)], [(1, 8)]),
        ([(0, 9)], []),
        ([(10, 12)], [(0, 9)]),
    ],
)
def test_only_what_is_aborted_is_hidden(aborted, left):
    shared = partition()
    acquired = shared.acquire(acquire_request(), [(0, 9)], 0, aborted)
    assert [(first, last) for first, last, _ in acquired] == left
    held = [(run.first, run.last) for run in shared.flight if run.state is ACQUIRED]
    assert held == left


def test_an_aborted_batch_hides_nothing_that_another_has_acquired():
    shared = partition()
    shared.acquire(acquire_request("a"), [(0, 4)], 0)
    assert shared.acquire(acquire_request("b"), [(5, 9)], 0, [(3, 6)]) == [(7, 9, 1)]
    assert [(run.first, run.last, run.member) for run in shared.flight if run.state is ACQUIRED] == [
        (0, 4, "a"), (7, 9, "b"),
    ]  # fmt: skip


# --- the last attempts --------------------------------------------------------------------------------------------


def failing(deliveries: int, deliveries_max: int, size: int = 16) -> Any:
    """A batch that was delivered so often, and released each time."""
    return partition(0, StateBatch(0, size - 1, 0, deliveries), deliveries_max=deliveries_max)


@pytest.mark.parametrize(
    ("deliveries", "deliveries_max", "count"),
    [
        (1, 5, 16), (2, 5, 16), (3, 5, 8), (4, 5, 1),
        (1, 2, 16), (1, 3, 16), (2, 3, 1), (4, 10, 16), (5, 10, 8), (6, 10, 4), (8, 10, 1), (9, 10, 1),
        (1, 1, 16),
    ],
)  # fmt: skip
def test_the_portions_get_smaller_towards_the_last_attempt_which_a_record_has_alone(
    deliveries, deliveries_max, count
):
    shared = failing(deliveries, deliveries_max)
    acquired = shared.acquire(acquire_request(), [(0, 15)], 0)
    assert acquired == [(0, count - 1, deliveries + 1)]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 1), (3, 1), (4, 1), (8, 2), (9, 2)])
def test_a_portion_has_a_record_however_small_its_batch_is(size, count):
    shared = failing(6, 10, size)
    assert shared.acquire(acquire_request(), [(0, size - 1)], 0) == [(0, count - 1, 7)]


@pytest.mark.parametrize(("deliveries", "is_fragile"), [(2, False), (3, True), (4, True)])
def test_what_fails_again_and_again_comes_with_nothing_else(deliveries, is_fragile):
    shared = partition(
        0, StateBatch(0, 3, 0, 1), StateBatch(4, 7, 0, deliveries), StateBatch(8, 11, 0, 1), deliveries_max=5
    )
    first = shared.acquire(acquire_request("a"), [(0, 19)], 0)
    if not is_fragile:
        assert [(one.first, one.last) for one in first] == [(0, 3), (4, 7), (8, 11), (12, 19)]
        return
    assert [(one.first, one.last) for one in first] == [(0, 3)]
    second = shared.acquire(acquire_request("b"), [(4, 19)], 0)
    assert [(one.first, one.last) for one in second] == [(4, 5 if deliveries == 3 else 4)]


# --- deciding -----------------------------------------------------------------------------------------------------


def acquired(members: str = "a", **settings: Any) -> Any:
    """Records 0 to 9, one half for each member."""
    shared = partition(**settings)
    for position, member in enumerate(members):
        shared.acquire(acquire_request(member), [(5 * position, 5 * position + 4)], 0)
    return shared


@pytest.mark.parametrize(
    ("verdict", "state"),
    [(ACCEPT, ACKNOWLEDGED), (RELEASE, AVAILABLE), (REJECT, ARCHIVED), (GAP, ARCHIVED)],
)
def test_each_verdict_has_its_state(verdict, state):
    shared = acquired("ab")
    assert decide(shared, ack(5, 9, verdict), member="b") == (StateBatch(5, 9, int(state), 1),)
    assert [(run.state, run.member, run.lock_due_ms) for run in shared.flight] == [
        (ACQUIRED, "a", LOCK_MS),
        (state, "", 0),
    ]


@pytest.mark.parametrize(
    ("verdict", "state"), [(ACCEPT, ACKNOWLEDGED), (RELEASE, ARCHIVED), (REJECT, ARCHIVED), (GAP, ARCHIVED)]
)
def test_at_the_last_delivery_only_what_would_be_free_again_is_archived_instead(verdict, state):
    shared = acquired("ab", deliveries_max=1)
    assert decide(shared, ack(5, 9, verdict), member="b") == (StateBatch(5, 9, int(state), 1),)


@pytest.mark.parametrize(("deliveries_max", "state"), [(1, ARCHIVED), (2, AVAILABLE)])
@pytest.mark.parametrize("way", ["release", "session", "lock"])
def test_after_its_last_delivery_a_record_is_archived_however_it_was_given_back(way, deliveries_max, state):
    shared = acquired("ab", deliveries_max=deliveries_max)
    if way == "release":
        written = shared.acknowledge("b", [ack(5, 9, RELEASE)], 0)
    elif way == "session":
        written = shared.release("b")
    else:
        shared.flight.between(5, 5)[0].lock_due_ms -= 1
        assert shared.expire(LOCK_MS - 2).batches == ()
        written = shared.expire(LOCK_MS - 1)
    assert written.batches == (StateBatch(5, 9, int(state), 1),)
    assert written.complete_count == (5 if state is ARCHIVED else 0)
    shared.settle(written, done=True)
    assert [(run.first, run.state, run.member) for run in shared.flight] == [
        (0, ACQUIRED, "a"),
        (5, state, ""),
    ]


def test_a_lock_that_is_renewed_lasts_a_whole_lock_from_then_on():
    shared = acquired("ab")
    assert decide(shared, ack(5, 9, RENEW), member="b", now_ms=10_000) == ()
    assert [run.lock_due_ms for run in shared.flight] == [LOCK_MS, 10_000 + LOCK_MS]
    assert shared.lock_due_ms == LOCK_MS


def test_what_is_decided_on_and_not_yet_written_is_locked_no_more_and_counts_as_it_will_be():
    shared = acquired("ab")
    written = shared.acknowledge("a", [ack(0, 4, ACCEPT)], 0)
    assert (written.start_offset, written.complete_count) == (0, 5)
    assert shared.expire(LOCK_MS).batches == (StateBatch(5, 9, 0, 1),)
    assert shared.release("a").batches == ()
    assert shared.start_offset == 0
    shared.settle(written, done=True)
    assert shared.start_offset == 5


def test_what_was_decided_together_and_is_alike_is_written_as_one():
    shared = partition(0, StateBatch(5, 9, 0, 1))
    shared.acquire(acquire_request(), [(0, 14)], 0)
    written = decide(shared, *[ack(n, n, ACCEPT) for n in range(5)], ack(5, 9, ACCEPT), ack(10, 14, REJECT))
    assert written == (StateBatch(0, 4, 2, 1), StateBatch(5, 9, 2, 2), StateBatch(10, 14, 4, 1))
    shared = acquired("aba")
    written = decide(shared, ack(0, 4, ACCEPT), ack(10, 14, ACCEPT))
    assert written == (StateBatch(0, 4, 2, 1), StateBatch(10, 14, 2, 1)), "what is between them is another's"


@pytest.mark.parametrize(
    ("first", "member", "code"),
    [
        (0, "b", ErrorCode.INVALID_RECORD_STATE),
        (5, "a", ErrorCode.INVALID_RECORD_STATE),
        (10, "a", ErrorCode.INVALID_REQUEST),
    ],
)
def test_who_decides_on_what_is_not_its_changes_nothing_at_all(first, member, code):
    shared = acquired("ab")
    own = ack(0, 4, ACCEPT) if member == "a" else ack(5, 9, ACCEPT)
    assert code_of(shared, own, ack(first, first, ACCEPT), member=member) == code
    assert [(run.first, run.state, run.target) for run in shared.flight] == [
        (0, ACQUIRED, None), (5, ACQUIRED, None),
    ]  # fmt: skip


def test_of_an_acknowledgement_only_what_the_partition_still_has_counts():
    shared = acquired("a")
    decide(shared, ack(0, 2, ACCEPT))
    assert shared.start_offset == 3
    assert decide(shared, ack(0, 4, ACCEPT)) == (StateBatch(3, 4, 2, 1),)


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("share.record.lock.duration.ms", "17", "record_lock_ms", 17),
        ("share.delivery.count.limit", "18", "deliveries_max", 18),
        ("share.partition.max.record.locks", "19", "records_in_flight_max", 19),
        ("share.renew.acknowledge.enable", "false", "renew_enabled", False),
        ("share.renew.acknowledge.enable", " TRUE ", "renew_enabled", True),
        ("share.isolation.level", "read_committed", "committed_only", True),
        ("share.isolation.level", "read_uncommitted", "committed_only", False),
        ("share.auto.offset.reset", "earliest", "reset", OffsetReset("earliest")),
        ("unrelated", "1", "", None),
    ],
)
def test_a_group_obeys_its_own_settings_and_the_brokers_for_the_rest(name, value, field, expected):
    broker = ShareSettings(record_lock_ms=1, deliveries_max=2, records_in_flight_max=3)
    image = ClusterImage("c").apply([ConfigChanged(GROUP, "g", ((name, value),))])
    own = broker.of_group(image, "g")
    assert own == (replace(broker, **{field: expected}) if field else broker)
    assert broker.of_group(image, "other") is broker

"""A share partition, rule by rule, where two of them are easily taken for one: each case has one of them alone decide."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.inflight import ACQUIRED, AVAILABLE
from barnabas.wire.generated.errors import ErrorCode

from .test_partition import ACCEPT, ARCHIVED, RELEASE, ack, acquire_request, code_of, partition

LOCK_MS = 30_000


# --- acquiring ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aborted", "visible"),
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
def test_only_what_is_aborted_is_hidden(aborted, visible):
    shared = partition()
    acquired = shared.acquire(acquire_request(), [(0, 9)], 0, aborted)
    assert [(first, last) for first, last, _ in acquired] == visible
    held = [(run.first, run.last) for run in shared.flight if run.state is ACQUIRED]
    assert held == visible


# --- the last attempts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deliveries", "is_fragile"), [(2, False), (3, True), (4, True)])
def test_what_fails_again_and_again_comes_with_nothing_else(deliveries, is_fragile):
    shared = partition(
        0, StateBatch(0, 3, 0, 1), StateBatch(4, 7, 0, deliveries), StateBatch(8, 11, 0, 1), deliveries_max=5
    )
    first = shared.acquire(acquire_request("a"), [(0, 19)], 0)
    if not is_fragile:
        assert [(batch.first, batch.last) for batch in first] == [(0, 3), (4, 7), (8, 11), (12, 19)]
        return
    assert [(batch.first, batch.last) for batch in first] == [(0, 3)]
    second = shared.acquire(acquire_request("b"), [(4, 19)], 0)
    assert [(batch.first, batch.last) for batch in second] == [(4, 5 if deliveries == 3 else 4)]


# --- deciding -----------------------------------------------------------------------------------------------------


def acquired(members: str = "a", **settings: Any) -> Any:
    """Records 0 to 9, one half for each member."""
    shared = partition(**settings)
    for position, member in enumerate(members):
        shared.acquire(acquire_request(member), [(5 * position, 5 * position + 4)], 0)
    return shared


@pytest.mark.parametrize(("deliveries_max", "state"), [(1, ARCHIVED), (2, AVAILABLE)])
@pytest.mark.parametrize("way", ["release", "session", "lock"])
def test_record_is_archived_after_its_last_delivery(way, deliveries_max, state):
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

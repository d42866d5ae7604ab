"""A share partition, case by case."""

from __future__ import annotations

import pytest

from barnabas.coordinators.share.acknowledgement import Acknowledgement, Verdict, check_acknowledgements
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.inflight import RecordState
from barnabas.coordinators.share.partition import SharePartition, Written
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW, Verdict.GAP,
)  # fmt: skip
AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


def partition(start: int = 0, *batches: StateBatch, **settings: object) -> SharePartition:
    return SharePartition.restore(ShareSettings(**settings), start, batches)  # type: ignore[arg-type]


def acquire_request(member: str = "a", records: int = 500, **more: object) -> AcquireRequest:
    return AcquireRequest(member, records, **more)  # type: ignore[arg-type]


def ack(first: int, last: int, *verdicts: Verdict) -> Acknowledgement:
    return Acknowledgement(first, last, verdicts)


def decide(
    of: SharePartition, *acks: Acknowledgement, member: str = "a", now_ms: int = 0
) -> tuple[StateBatch, ...]:
    written = of.acknowledge(member, acks, now_ms)
    of.settle(written, done=True)
    return written.batches


def code_of(of: SharePartition, *acks: Acknowledgement, member: str = "a") -> int:
    with pytest.raises(RequestError) as caught:
        of.acknowledge(member, acks, 0)
    return caught.value.code


# --- acquiring ----------------------------------------------------------------------------------------------


def test_whole_batch_is_acquired_above_the_record_limit() -> None:
    shared = partition()
    assert shared.acquire(acquire_request(records=5), [(0, 2), (3, 9), (10, 19)], 0) == [(0, 9, 1)]


def test_no_more_than_the_window_is_in_flight() -> None:
    shared = partition(records_in_flight_max=10)
    assert shared.acquire(acquire_request(), [(0, 9), (10, 19)], 0) == [(0, 9, 1)]
    assert not shared.can_acquire
    assert shared.acquire(acquire_request("b"), [(10, 19)], 0) == []
    decide(shared, ack(5, 9, RELEASE))
    assert shared.can_acquire
    assert shared.acquire(acquire_request("b"), [(0, 9), (10, 19)], 0) == [(5, 9, 2)]


@pytest.mark.parametrize(
    ("sizes", "acquired"),
    [
        ([200], 200),
        ([50] * 4, 100),
        ([60] * 4, 120),
        ([150, 150], 150),
        ([99, 200], 299),
        ([30, 200], 230),
        ([1] * 250, 100),
    ],
)
def test_the_window_ends_with_the_batch_in_which_it_is_full(sizes: list[int], acquired: int) -> None:
    """As Apache Kafka 4.2.0 and 4.3.1 answer: a client gets whole batches, so one may go beyond the limit."""
    shared, batches, first = partition(records_in_flight_max=100), [], 0
    for size in sizes:
        batches.append((first, first + size - 1))
        first += size
    assert shared.acquire(acquire_request(records=500), batches, 0) == [(0, acquired - 1, 1)]
    assert not shared.can_acquire
    assert shared.acquire(acquire_request("b", records=500), batches, 0) == []


def test_the_window_is_never_exceeded_in_strict_mode() -> None:
    shared = partition(records_in_flight_max=100)
    assert shared.acquire(acquire_request(records=80, strict=True), [(0, 199)], 0) == [(0, 79, 1)]
    assert shared.acquire(acquire_request("b", records=80, strict=True), [(0, 199)], 0) == [(80, 99, 1)]
    assert not shared.can_acquire


def test_records_compacted_away_are_archived() -> None:
    shared = partition()
    shared.acquire(acquire_request(), [(0, 4), (5, 9)], 0)
    decide(shared, ack(0, 9, RELEASE))
    assert shared.acquire(acquire_request(), [(5, 9)], 0) == [(5, 9, 2)]
    assert shared.start_offset == 5


# --- deciding -----------------------------------------------------------------------------------------------


def test_each_offset_can_have_a_verdict_of_its_own() -> None:
    shared = partition()
    shared.acquire(acquire_request(), [(0, 4)], 0)
    assert decide(shared, ack(0, 4, ACCEPT, ACCEPT, RELEASE, REJECT, GAP)) == (
        (0, 1, ACKNOWLEDGED, 1), (2, 2, AVAILABLE, 1), (3, 4, ARCHIVED, 1),
    )  # fmt: skip
    assert (shared.start_offset, shared.next_offset) == (2, 2)
    assert shared.acquire(acquire_request("b"), [(0, 4)], 0) == [(2, 2, 2)]


def test_what_is_written_tells_the_start_offset_before_it_moves() -> None:
    shared = partition()
    shared.acquire(acquire_request(), [(0, 9)], 0)
    written = shared.acknowledge("a", [ack(0, 9, ACCEPT)], 0)
    assert (written.start_offset, written.complete_count) == (0, 10)


def test_records_are_nobodys_until_the_decision_is_written() -> None:
    shared = partition()
    shared.acquire(acquire_request(), [(0, 9)], 0)
    written = shared.acknowledge("a", [ack(0, 9, RELEASE)], 0)
    assert shared.next_offset == 10
    assert code_of(shared, ack(0, 9, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert not shared.expire(1_000_000)
    shared.settle(written, done=False)
    assert code_of(shared, ack(0, 9, ACCEPT), member="b") == ErrorCode.INVALID_RECORD_STATE
    assert decide(shared, ack(0, 9, ACCEPT)) == ((0, 9, ACKNOWLEDGED, 1),)


def test_all_of_a_request_counts_or_nothing() -> None:
    shared = partition()
    shared.acquire(acquire_request("a"), [(0, 4)], 0)
    shared.acquire(acquire_request("b"), [(5, 9)], 0)
    assert code_of(shared, ack(0, 4, ACCEPT), ack(5, 6, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert code_of(shared, ack(0, 4, ACCEPT), ack(4, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert decide(shared, ack(0, 4, ACCEPT)) == ((0, 4, ACKNOWLEDGED, 1),)


def test_wrong_offsets_are_refused() -> None:
    shared = partition()
    assert code_of(shared, ack(0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    shared.acquire(acquire_request(), [(0, 9)], 0)
    assert code_of(shared, ack(5, 10, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code_of(shared, ack(10, 12, ACCEPT)) == ErrorCode.INVALID_REQUEST
    decide(shared, ack(3, 3, RELEASE))
    assert code_of(shared, ack(2, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def ended_by_release(shared: SharePartition) -> Written:
    written = shared.release("a")
    assert shared.release("a").batches == (), "is being written"
    shared.settle(written, done=True)
    return written


def ended_by_time(shared: SharePartition) -> Written:
    due_ms = shared.lock_due_ms
    assert due_ms is not None
    assert not shared.expire(due_ms - 1)
    return shared.expire(due_ms)


@pytest.mark.parametrize("end", [ended_by_release, ended_by_time])
@pytest.mark.parametrize(
    ("log_start", "batches"),
    [(10, ((0, 2, ARCHIVED, 1),)), (2, ((0, 1, ARCHIVED, 1), (2, 2, AVAILABLE, 1)))],
)
def test_that_the_log_has_moved_on_is_written_when_locks_end(end, log_start, batches) -> None:
    shared = partition(deliveries_max=2)
    shared.acquire(acquire_request("a", 3, strict=True), [(0, 9)], 0)
    shared.log_starts_at(log_start)
    assert not shared.release("another")
    written = end(shared)
    assert (written.start_offset, written.complete_count, written.batches) == (log_start, 0, batches)
    assert shared.lock_due_ms is None
    assert not shared.release("a"), "once is enough"


def test_failed_write_of_the_start_is_repeated() -> None:
    shared = partition()
    shared.acquire(acquire_request("a", 3, strict=True), [(0, 9)], 0)
    shared.log_starts_at(10)
    shared.settle(shared.release("a"), done=False)
    assert shared.lock_due_ms is not None, "its lock goes on"
    assert ended_by_time(shared).start_offset == 10


def test_records_that_no_member_has_are_lost_without_a_write() -> None:
    shared = partition()
    shared.acquire(acquire_request("a", 3, strict=True), [(0, 9)], 0)
    decide(shared, ack(0, 2, RELEASE))
    shared.log_starts_at(10)
    assert not shared.release("a")
    assert shared.lock_due_ms is None


def test_a_record_is_archived_after_its_last_delivery() -> None:
    shared = partition(deliveries_max=2)
    shared.acquire(acquire_request(), [(0, 0)], 0)
    assert decide(shared, ack(0, 0, RELEASE)) == ((0, 0, AVAILABLE, 1),)
    assert shared.acquire(acquire_request(), [(0, 0)], 0) == [(0, 0, 2)]
    assert decide(shared, ack(0, 0, RELEASE)) == ((0, 0, ARCHIVED, 2),)
    assert shared.start_offset == 1


def test_failing_records_come_in_smaller_portions() -> None:
    shared = partition(deliveries_max=5)
    portions = []
    for _ in range(7):
        taken = shared.acquire(acquire_request(), [(0, 15)], 0)
        portions.append(taken)
        for first, last, _ in taken:
            decide(shared, ack(first, last, RELEASE))
    assert portions == [
        [(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)],
        [(0, 7, 4)],  # half of the batch
        [(0, 0, 5)],  # its last chance, alone; then archived
        [(1, 1, 5)], [(2, 2, 5)],
    ]  # fmt: skip


# --- locks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False])
def test_expired_lock_write_spares_later_acknowledgements(
    done: bool,
) -> None:
    shared = partition()
    shared.acquire(acquire_request("a"), [(0, 4)], 0)
    ended = shared.expire(30_000)
    shared.acquire(acquire_request("b"), [(0, 4)], 30_000)
    accepted = shared.acknowledge("b", [ack(0, 4, ACCEPT)], 30_000)
    shared.settle(ended, done=done)
    assert shared.start_offset == 0, "what is accepted is not written yet"
    shared.settle(accepted, done=True)
    assert shared.start_offset == 5


def test_a_lock_can_be_renewed_where_the_group_allows_it() -> None:
    shared = partition(record_lock_ms=1000)
    shared.acquire(acquire_request(), [(0, 4)], 0)
    assert not shared.acknowledge("a", [ack(0, 4, RENEW)], 900)
    assert shared.lock_due_ms == 1900
    shared.settings = ShareSettings(renew_enabled=False)
    assert code_of(shared, ack(0, 4, RENEW)) == ErrorCode.INVALID_RECORD_STATE


# --- restoring ----------------------------------------------------------------------------------------------


def test_written_state_is_restored_and_the_rest_redelivered() -> None:
    shared = partition(10, StateBatch(10, 14, ACKNOWLEDGED, 1), StateBatch(20, 24, AVAILABLE, 2))
    assert (shared.start_offset, shared.end, shared.next_offset) == (15, 25, 15)
    assert shared.acquire(acquire_request(), [(10, 19), (20, 29)], 0) == [
        (15, 19, 1),
        (20, 24, 3),
        (25, 29, 1),
    ]


# --- checking -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acks", "knows_renew", "is_renew", "fits"),
    [
        ([ack(0, 4, ACCEPT), ack(5, 9, *[RELEASE] * 5)], False, False, True),
        ([ack(0, 4, ACCEPT), ack(4, 9, ACCEPT)], False, False, True),
        ([ack(0, 4, ACCEPT), ack(3, 9, ACCEPT)], False, False, False),
        ([ack(0, 9, ACCEPT), ack(5, 6, ACCEPT)], False, False, False),
        ([ack(0, 0, ACCEPT), ack(0, 0, GAP)], False, False, True),
        ([ack(3, 4, ACCEPT, RELEASE)], False, False, True),
        ([ack(4, 0, ACCEPT)], True, False, False),
        ([ack(5, 9, ACCEPT), ack(0, 4, ACCEPT)], True, False, False),
        ([ack(0, 4)], True, False, False),
        ([ack(0, 4, ACCEPT, ACCEPT)], True, False, False),
        ([Acknowledgement(0, 0, [-1])], True, False, False),
        ([Acknowledgement(0, 0, [5])], True, True, False),
        ([ack(0, 0, RENEW)], True, True, True),
        ([ack(0, 0, RENEW)], True, False, False),
        ([ack(0, 0, RENEW)], False, False, False),
    ],
)
def test_acknowledgements_must_fit_together(
    acks: list[Acknowledgement], knows_renew: bool, is_renew: bool, fits: bool
) -> None:
    if fits:
        check_acknowledgements(acks, knows_renew=knows_renew, is_renew=is_renew)
        return
    with pytest.raises(RequestError) as caught:
        check_acknowledgements(acks, knows_renew=knows_renew, is_renew=is_renew)
    assert caught.value.code == ErrorCode.INVALID_REQUEST

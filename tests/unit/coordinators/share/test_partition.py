"""A share partition, case by case."""

from __future__ import annotations

import pytest

from barnabas.coordinators.share.acknowledgement import Acknowledgement, Verdict, check_acknowledgements
from barnabas.coordinators.share.acquisition import AcquireRequest
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.dead_letters import EXCEEDED, REJECTED, DeadLetters
from barnabas.coordinators.share.inflight import RecordState
from barnabas.coordinators.share.partition import SharePartition
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW, Verdict.GAP,
)  # fmt: skip
AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
ARCHIVING = RecordState.ARCHIVING


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


def test_parts_released_apart_are_acquired_as_one_batch() -> None:
    shared, batches = partition(), [(0, 4), (5, 9)]
    shared.acquire(acquire_request(batch_size=5), batches, 0)
    for part in ((0, 4), (5, 6), (7, 9)):
        decide(shared, ack(*part, RELEASE))
    assert shared.acquire(acquire_request(batch_size=5), batches, 0) == [(0, 4, 2), (5, 9, 2)]


def test_dead_letters_are_archived_when_they_are_buried() -> None:
    shared = partition(dead_letter_topic="dlq.t", deliveries_max=2)
    shared.acquire(acquire_request(), [(0, 5)], 0)
    assert decide(shared, ack(0, 0, ACCEPT), ack(1, 5, RELEASE)) == (
        StateBatch(0, 0, ACKNOWLEDGED, 1), StateBatch(1, 5, AVAILABLE, 1),
    )  # fmt: skip
    shared.acquire(acquire_request(), [(0, 5)], 0)
    written = shared.acknowledge("a", [ack(1, 1, REJECT), ack(2, 3, RELEASE), ack(4, 4, ACCEPT)], 0)
    assert written.batches == (StateBatch(1, 3, ARCHIVING, 2), StateBatch(4, 4, ACKNOWLEDGED, 2))
    assert written.dead == (DeadLetters(1, 1, 2, REJECTED), DeadLetters(2, 3, 2, EXCEEDED))
    shared.settle(written, done=True)
    assert (shared.start_offset, shared.complete_count) == (1, 1)
    assert shared.acquire(acquire_request("b"), [(0, 4)], 0) == [], "no member gets them again"
    buried = shared.bury(written.dead[0])
    assert (buried.batches, buried.start_offset, buried.dead) == ((StateBatch(1, 1, ARCHIVED, 2),), 1, ())
    shared.settle(buried, done=True)
    assert shared.start_offset == 2
    shared.settle(shared.bury(written.dead[1]), done=True)
    assert shared.start_offset == 5


def test_lock_that_ends_at_the_last_delivery_makes_a_dead_letter() -> None:
    shared = partition(dead_letter_topic="dlq.t", deliveries_max=2, record_lock_ms=10)
    for now_ms in (0, 20):
        shared.acquire(acquire_request(), [(0, 1)], now_ms)
        written = shared.expire(now_ms + 10)
        shared.settle(written, done=False)
    assert written.dead == (DeadLetters(0, 1, 2, EXCEEDED),)
    assert shared.unfinished == written.dead
    assert shared.start_offset == 0


def test_unfinished_dead_letters_are_found_in_a_state_read() -> None:
    states = StateBatch(3, 4, ARCHIVING, 1), StateBatch(5, 5, AVAILABLE, 1), StateBatch(6, 6, ARCHIVING, 5)
    shared = partition(3, *states)
    assert shared.unfinished == (DeadLetters(3, 4, 1, REJECTED), DeadLetters(6, 6, 5, EXCEEDED))
    assert (shared.start_offset, shared.next_offset) == (3, 5)
    for letters in shared.unfinished:
        shared.settle(shared.bury(letters), done=True)
    assert (shared.start_offset, shared.unfinished) == (5, ())


def test_records_compacted_away_are_archived() -> None:
    shared = partition()
    shared.acquire(acquire_request(), [(0, 4), (5, 9)], 0)
    decide(shared, ack(0, 9, RELEASE))
    assert shared.acquire(acquire_request(), [(5, 9)], 0) == [(5, 9, 2)]
    assert shared.start_offset == 5


def test_nothing_is_acquired_without_batches() -> None:
    assert partition().acquire(acquire_request(), [], 0) == []


def test_neighbours_of_one_batch_are_acquired_and_written_as_one() -> None:
    shared = partition()
    shared.acquire(acquire_request(), [(0, 9)], 0)
    assert decide(shared, ack(0, 4, RELEASE), ack(5, 9, RELEASE)) == (StateBatch(0, 9, int(AVAILABLE), 1),)
    shared.acquire(acquire_request(records=3, strict=True), [(0, 9)], 0)
    shared.acquire(acquire_request("b", records=2, strict=True), [(0, 9)], 0)
    decide(shared, ack(0, 2, RELEASE))
    decide(shared, ack(3, 4, RELEASE), member="b")
    assert shared.acquire(acquire_request(), [(0, 9)], 0) == [(0, 4, 3), (5, 9, 2)]


# --- deciding -----------------------------------------------------------------------------------------------


def test_wrong_offsets_are_refused() -> None:
    shared = partition()
    assert code_of(shared, ack(0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    shared.acquire(acquire_request(), [(0, 9)], 0)
    assert code_of(shared, ack(5, 10, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code_of(shared, ack(10, 12, ACCEPT)) == ErrorCode.INVALID_REQUEST
    decide(shared, ack(3, 3, RELEASE))
    assert code_of(shared, ack(2, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


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

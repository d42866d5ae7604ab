"""A producer's sender: when a batch is due, what becomes of it upon each error, and how it is sent in each version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientSettings, ConnectionLostError, ProducerSettings, ResponseError
from barnabas.client.errors import TransactionAbortedError
from barnabas.client.producing.identity import EPOCH_MAX, Identity
from barnabas.client.producing.outbox import Batch, Outbox
from barnabas.client.producing.sender import Sender
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceResponse
from tests.support.members import StandinCoordinator

Answer = ProduceResponse.PartitionProduceResponse
METADATA_IS_OLD = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID,
}  # fmt: skip


class Case:
    """A sender with a producer id, partitions led by broker 1, and whatever a test puts into it."""

    def __init__(self, *, v2: bool = False, producer: Any = (7, 0), **settings: Any) -> None:
        self.settings = ProducerSettings(**settings)
        self.client: Any = StandinCoordinator(lambda _: None)
        self.client.settings = ClientSettings(
            retry_backoff_ms=100, retry_backoff_max_ms=500, request_timeout_ms=20_000
        )
        self.client.begin = self.begin
        self.needs = 0
        self.leaders = {0: 1, 1: 1, 2: 2}
        topics: Any = SimpleNamespace(need=self.need, leader=lambda _, index: self.leaders[index])
        self.identity = Identity(self.client, self.settings, lambda: None)
        self.identity.producer = producer if self.settings.is_idempotent else None
        self.identity.is_v2 = v2
        self.sender = Sender(self.client, topics, self.settings, self.identity)
        self.started: list[Any] = []
        self.sender._nursery = SimpleNamespace(start_soon=lambda _, *args: self.started.append(args))  # type: ignore[assignment]
        self.begun: list[Any] = []

    def need(self) -> None:
        self.needs += 1

    async def begin(self, request: Any, **options: Any) -> Any:
        self.begun.append((request, options))
        return "begun"

    def add(self, index: int = 0, count: int = 1, now: float = 0.0, size: int = 100) -> Batch:
        """Put records into a batch of a partition."""
        outbox = self.sender.outboxes.setdefault(("t", index), Outbox("t", index))
        for _ in range(count):
            batch = outbox.open_batch(size, self.settings.batch_bytes, now)
            batch.append(None, bytes(size), [], 1_000, 0)
            self.sender.incomplete[batch] = None
        return batch

    def sent(self, index: int = 0, count: int = 1) -> Batch:
        """Return a batch that is under way."""
        batch = self.add(index, count)
        batch.outbox.queue.remove(batch)
        batch.outbox.sending += 1
        batch.is_sending = True
        if self.identity.producer is not None:
            batch.outbox.number(batch, self.identity.producer)
        return batch

    def settle(self, batch: Batch, code: int, **fields: Any) -> None:
        self.sender.settle(batch, Answer(batch.outbox.index, code, **fields))


# --- when a batch is sent ---------------------------------------------------------------------------------------------


def test_a_batch_that_is_not_due_is_looked_at_when_it_will_be() -> None:
    case = Case(linger_ms=20, delivery_timeout_ms=5_000)
    case.add(0, now=100.0)
    case.add(2, now=100.01)
    assert case.sender.look(100.015) == pytest.approx(100.02)
    assert case.started == []
    assert case.sender.look(100.02) == pytest.approx(100.03)
    assert [(leader, [batch.outbox.index for batch in batches]) for leader, _, batches in case.started] == [
        (1, [0])
    ]
    assert case.sender.look(100.03) == pytest.approx(105.0), "when the first expires"
    assert len(case.started) == 2


def test_a_batch_that_is_larger_than_a_request_is_sent_alone() -> None:
    case = Case(linger_ms=0, request_bytes_max=10)
    case.add(0)
    case.add(1)
    case.sender.look(1.0)
    assert len(case.started[0][2]) == 1


def test_unsent_batches_are_dropped_with_their_transaction() -> None:
    case = Case()
    under_way, waiting = case.sent(0), case.add(1)
    case.identity.is_aborting = True
    case.sender.give_up_unsent()
    assert isinstance(waiting.failure, TransactionAbortedError)
    assert not under_way.is_done
    assert case.sender.first_unseen() is None
    assert not waiting.outbox.queue


def test_failed_producer_drops_batches_not_in_flight() -> None:
    case = Case()
    under_way, waiting = case.sent(0), case.add(1)
    case.identity.failure = ResponseError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "asking")
    case.sender.give_up_unsent()
    assert (under_way.is_done, waiting.is_done) == (False, True)
    assert getattr(case.sender.first_unseen(), "code", None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert case.sender.first_unseen() is None


# --- how it is sent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transactional", "v2", "version"),
    [(False, False, 12), (False, True, 12), (True, False, 11), (True, True, 12)],
)
def test_newest_produce_version_needs_transactions_v2(transactional: bool, v2: bool, version: int) -> None:
    case = Case(v2=v2, transactional_id="x" if transactional else None)
    assert case.sender.version_for(case.client) == version


# --- what becomes of it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_each_error_lets_a_batch_be_sent_again_or_fails_it(is_idempotent: bool) -> None:
    begins_anew = {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    for code in ErrorCode:
        case = Case(is_idempotent=is_idempotent)
        batch = case.sent()
        case.settle(batch, code, base_offset=50, error_message="why", log_append_time_ms=9)
        assert case.needs == (code in METADATA_IS_OLD), code
        assert not batch.is_sending, code
        assert batch.outbox.sending == 0, code
        is_done = code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        is_again = code.retriable or (is_idempotent and code in begins_anew)
        assert batch.is_done is not is_again, code
        assert list(batch.outbox.queue) == [batch] * is_again, code
        if is_done:
            assert batch.failure is None, code
            assert (batch.base_offset, batch.append_time_ms) == (-1 if code else 50, 9)
        elif not is_again:
            assert (batch.failure.code, batch.failure.message) == (code, "why")  # type: ignore[union-attr]
            assert batch.outbox.is_unresolved is is_idempotent, code
        assert (batch in case.sender.incomplete) is is_again, code
        is_refused = is_idempotent and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert case.identity.may_send(batch.outbox) is not is_refused, code


@pytest.mark.parametrize(
    ("log_start", "restarted", "transactional", "last_offset", "refuses", "restarts", "again"),
    [
        (-1, False, False, 10, False, False, True),
        (0, True, False, 10, False, False, True),
        (0, False, False, 10, True, False, True),
        (11, False, True, 10, False, True, True),
        (10, False, True, 10, False, False, False),
        (0, False, True, -1, False, True, True),
    ],
)
def test_forgotten_producer_restarts_if_nothing_can_be_lost(
    log_start: int,
    restarted: bool,
    transactional: bool,
    last_offset: int,
    refuses: bool,
    restarts: bool,
    again: bool,
) -> None:
    case = Case()
    case.identity.is_transactional = transactional
    batch = case.sent()
    batch.was_restarted, batch.outbox.last_offset = restarted, last_offset
    batch.sequence = 5
    assert case.sender.may_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start) is again
    assert case.identity.may_send(batch.outbox) is not refuses
    assert (batch.sequence == 0) is restarts


@pytest.mark.parametrize(
    ("unresolved", "restarted", "is_next", "transactional", "refuses", "again"),
    [
        (False, False, False, False, False, True),
        (False, True, True, False, False, True),
        (False, False, True, False, True, True),
        (True, True, True, False, True, True),
        (True, False, False, False, True, True),
        (False, False, True, True, False, False),
        (False, False, False, True, False, True),
        (True, False, False, True, False, False),
    ],
)
def test_a_gap_in_the_sequences_is_closed_or_needs_a_new_epoch(
    unresolved: bool, restarted: bool, is_next: bool, transactional: bool, refuses: bool, again: bool
) -> None:
    case = Case()
    case.identity.is_transactional = transactional
    batch = case.sent()
    batch.outbox.is_unresolved, batch.was_restarted = unresolved, restarted
    batch.outbox.last_acknowledged = -1 if is_next else 5
    assert case.sender.may_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1) is again
    assert case.identity.may_send(batch.outbox) is not refuses


async def test_a_batch_is_sent_again_after_longer_and_longer_pauses(
    autojump_clock: trio.testing.MockClock,
) -> None:
    case = Case()
    batch = case.sent()
    pauses = []
    for _ in range(5):
        batch.outbox.queue.clear()
        case.sender.retry(batch)
        pauses.append(round(batch.retry_at - trio.current_time(), 3))
        assert list(batch.outbox.queue) == [batch]
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]


async def test_missing_partition_in_response_is_an_error() -> None:
    case = Case()
    batches = [case.sent(index) for index in (0, 1, 2)]
    answers = [Answer(2, 0, 20), Answer(0, 0, 10)]
    response = ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse("t", partition_responses=answers)]
    )
    case.sender.settle_all(batches, response)
    assert [batch.base_offset for batch in batches] == [10, -1, 20]
    assert getattr(batches[1].failure, "code", None) == ErrorCode.UNKNOWN_SERVER_ERROR


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer", "after", "asks"),
    [((7, 3), (7, 4), False), ((7, EPOCH_MAX - 1), (7, EPOCH_MAX), False), ((7, EPOCH_MAX), (-1, -1), True)],
)
async def test_a_new_epoch_begins_where_sequences_were_refused(
    producer: Any, after: Any, asks: bool, autojump_clock: trio.testing.MockClock
) -> None:
    case = Case(producer=producer)
    outbox = case.sent().outbox
    assert case.identity.current() == producer, "nothing was refused"
    case.identity.refuse_sequences(outbox)
    case.identity.refuse_sequences(outbox)
    assert not case.identity.may_send(outbox)
    assert case.identity.may_send(Outbox("t", 9))
    assert case.identity.current() == after
    assert (outbox.producer == after) is not asks
    assert case.identity.may_send(outbox) is not asks
    attempts: list[Any] = []

    async def retrying(attempt: Any) -> Any:
        attempts.append(attempt)
        await trio.sleep_forever()

    case.client.retrying = retrying
    with trio.move_on_after(1):
        await case.identity.run()
    assert len(attempts) == asks


async def test_a_producer_id_is_asked_for_until_there_is_one(autojump_clock: trio.testing.MockClock) -> None:
    case = Case(producer=(-1, -1))
    answers: list[Any] = [ConnectionLostError("gone"), (8, 2)]

    async def retrying(_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    case.client.retrying = retrying
    refused = case.sent().outbox
    case.identity.refuse_sequences(refused)
    assert case.identity.current() == (-1, -1)
    assert not case.identity.may_send(Outbox("t", 9))
    with trio.move_on_after(1):
        await case.identity.run()
    assert (case.identity.producer, case.identity.failure, refused.producer) == ((8, 2), None, (8, 2))
    assert case.identity.may_send(refused)
    failure = ResponseError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "asking")
    case.identity.producer, answers[:] = (-1, -1), [failure]
    case.identity.current()
    with trio.move_on_after(1):
        await case.identity.run()
    assert case.identity.failure is failure
    assert not case.identity.may_send(refused)

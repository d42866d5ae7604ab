"""A producer's sender: when a batch is due, what becomes of it upon each error, and how it is sent in each version."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientSettings, ConnectionLostError, ProducerSettings, ResponseError
from barnabas.client.errors import DeliveryTimeoutError, TransactionAbortedError, UnsupportedVersionError
from barnabas.client.producing.identity import EPOCH_MAX, Identity
from barnabas.client.producing.outbox import Batch, Outbox
from barnabas.client.producing.sender import REQUEST_OVERHEAD, Sender
from barnabas.records.batch import read_header
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdResponse
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
        self.sender._nursery = SimpleNamespace(start_soon=lambda _, *given: self.started.append(given))  # type: ignore[assignment]
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
        self.sender._settle(batch, Answer(batch.outbox.index, code, **fields))


# --- when a batch is sent ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("linger_ms", "change", "due"),
    [
        (20, {}, 100.02),
        (0, {}, 100.0),
        (20, {"flushers": 1}, -math.inf),
        (20, {"full": True}, -math.inf),
        (20, {"second": True}, -math.inf),
        (20, {"scarce": True}, -math.inf),
        (20, {"retry_at": 107.0, "flushers": 1}, 107.0),
    ],
    ids=str,
)
def test_a_batch_is_due_when_it_is_full_or_old_or_wanted(
    linger_ms: int, change: dict[str, Any], due: float
) -> None:
    case = Case(linger_ms=linger_ms, batch_bytes=300)
    batch = case.add(now=100.0)
    case.sender.flushers = change.get("flushers", 0)
    batch.retry_at = change.get("retry_at", 0.0)
    if "full" in change:
        batch.body += bytes(300 - len(batch.body))
    if "second" in change:
        batch.outbox.queue.append(Batch(batch.outbox, (9,), 100.0))
    if "scarce" in change:
        case.sender.memory._waiting.append((1, trio.Event()))
    assert case.sender._due_at(batch.outbox, batch) == due


def test_a_batch_that_is_not_due_is_looked_at_when_it_will_be() -> None:
    case = Case(linger_ms=20, delivery_timeout_ms=5_000)
    case.add(0, now=100.0)
    case.add(2, now=100.01)
    assert case.sender.look(100.015) == pytest.approx(100.02)
    assert case.started == []
    assert case.sender.look(100.02) == pytest.approx(100.03)
    assert [(leader, [one.outbox.index for one in batches]) for leader, _, batches in case.started] == [
        (1, [0])
    ]
    assert case.sender.look(100.03) == pytest.approx(105.0), "when the first expires"
    assert len(case.started) == 2


def test_a_partition_without_a_leader_is_looked_at_again_after_a_pause() -> None:
    case = Case(linger_ms=0)
    case.leaders[0] = -1
    case.add(0, now=100.0)
    case.add(2, now=100.0)
    assert case.sender.look(100.0) == pytest.approx(100.1)
    assert [leader for leader, _, _ in case.started] == [2], "others do not wait for it"


@pytest.mark.parametrize(("is_busy", "in_flight", "starts"), [(False, 4, 1), (False, 5, 0), (True, 0, 0)])
def test_a_broker_has_so_many_requests_and_one_that_is_written(
    is_busy: bool, in_flight: int, starts: int
) -> None:
    case = Case(linger_ms=0)
    case.add(0)
    case.sender.look(1.0)
    case.started.clear()
    broker = case.sender._brokers[1]
    assert (broker.is_busy, broker.in_flight) == (True, 1)
    broker.is_busy, broker.in_flight = is_busy, in_flight
    case.add(1)
    case.sender.look(2.0)
    assert len(case.started) == starts


def test_a_request_takes_the_oldest_first_and_as_many_as_it_holds() -> None:
    case = Case(linger_ms=0, request_bytes_max=2 * (REQUEST_OVERHEAD + 112))
    case.leaders = dict.fromkeys(range(3), 1)
    for index, now in ((0, 3.0), (1, 1.0), (2, 2.0)):
        case.add(index, now=now)
    sizes = {len(one.body) for one in case.sender.incomplete}
    assert len(sizes) == 1
    fits = case.settings.request_bytes_max // (REQUEST_OVERHEAD + sizes.pop())
    assert fits == 2
    case.sender.look(5.0)
    ((leader, _, batches),) = case.started
    assert (leader, [one.outbox.index for one in batches]) == (1, [1, 2])
    assert case.sender._wakes.is_set(), "the other one is next"
    assert [one.is_sending for one in case.sender.incomplete] == [False, True, True]
    assert [(one.producer, one.sequence) for one in batches] == [((7, 0), 0)] * 2
    assert [len(one.queue) for one in case.sender.outboxes.values()] == [1, 0, 0]


def test_a_batch_that_is_larger_than_a_request_is_sent_alone() -> None:
    case = Case(linger_ms=0, request_bytes_max=10)
    case.add(0)
    case.add(1)
    case.sender.look(1.0)
    assert len(case.started[0][2]) == 1


@pytest.mark.parametrize(
    ("now", "expired", "next_at"), [(104.9, 0, 105.0), (105.0, 1, 106.0), (106.0, 2, math.inf)]
)
def test_batches_expire_each_at_its_time(now: float, expired: int, next_at: float) -> None:
    case = Case(delivery_timeout_ms=5_000)
    batches = [case.add(0, now=100.0), case.add(2, now=101.0)]
    assert case.sender._expire(now) == next_at
    failures = [one.failure for one in batches if one.is_done]
    assert len(failures) == expired
    assert all(isinstance(one, DeliveryTimeoutError) and "in 5 s" in str(one) for one in failures)


def test_what_was_never_sent_is_dropped_with_its_transaction_and_nobody_has_to_ask_for_it() -> None:
    case = Case()
    under_way, waiting = case.sent(0), case.add(1)
    case.identity.is_aborting = True
    case.sender._give_up_unsent()
    assert isinstance(waiting.failure, TransactionAbortedError)
    assert not under_way.is_done
    assert case.sender.first_unseen() is None
    assert not waiting.outbox.queue


def test_a_producer_that_has_failed_gives_up_all_that_is_not_under_way() -> None:
    case = Case()
    under_way, waiting = case.sent(0), case.add(1)
    case.identity.failure = ResponseError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "asking")
    case.sender._give_up_unsent()
    assert (under_way.is_done, waiting.is_done) == (False, True)
    assert getattr(case.sender.first_unseen(), "code", None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert case.sender.first_unseen() is None


# --- how it is sent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transactional", "v2", "version"),
    [(False, False, 12), (False, True, 12), (True, False, 11), (True, True, 12)],
)
def test_only_transactions_of_the_second_version_are_sent_in_the_newest(
    transactional: bool, v2: bool, version: int
) -> None:
    case = Case(v2=v2, transactional_id="x" if transactional else None)
    assert case.sender._version(case.client) == version


@pytest.mark.parametrize(
    ("compression", "newest", "is_good"),
    [("none", 2, False), ("none", 3, True), ("gzip", 3, True), ("zstd", 6, False), ("zstd", 7, True)],
)
def test_a_broker_that_is_too_old_for_the_batches_is_refused(
    compression: str, newest: int, is_good: bool
) -> None:
    case = Case(compression=compression)
    case.client.versions[0] = newest
    if is_good:
        assert case.sender._version(case.client) == newest
    else:
        with pytest.raises(UnsupportedVersionError, match=f"Produce v{newest}"):
            case.sender._version(case.client)


@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_a_request_has_the_batches_by_topic(transactional_id: str | None) -> None:
    case = Case(transactional_id=transactional_id, ack_timeout_ms=4_000)
    batches = [case.sent(0, 2), case.sent(1), case.sent(2)]
    case.sender.fail(batches[1], DeliveryTimeoutError("late"))
    assert await case.sender._begin(1, batches) == "begun"  # type: ignore[comparison-overlap]
    ((request, options),) = case.begun
    assert options == {"version": 11 if transactional_id else 12, "timeout_ms": 20_000}
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 4_000)
    (topic,) = request.topic_data
    assert (topic.name, [one.index for one in topic.partition_data]) == ("t", [0, 2])
    header = read_header(bytes(topic.partition_data[0].records))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.records_count) == (
        7,
        0,
        0,
        2,
    )
    assert header.is_transactional is (transactional_id is not None)
    assert case.client.lanes == ["records"]


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
        assert bool(case.identity._refused) is (
            is_idempotent and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ), code


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
def test_a_producer_that_the_broker_has_forgotten_begins_anew_where_nothing_can_be_lost(
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
    assert case.sender._may_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start) is again
    assert bool(case.identity._refused) is refuses
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
    assert case.sender._may_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1) is again
    assert bool(case.identity._refused) is refuses


async def test_a_batch_is_sent_again_after_longer_and_longer_pauses(
    autojump_clock: trio.testing.MockClock,
) -> None:
    case = Case()
    batch = case.sent()
    pauses = []
    for _ in range(5):
        batch.outbox.queue.clear()
        case.sender._retry(batch)
        pauses.append(round(batch.retry_at - trio.current_time(), 3))
        assert list(batch.outbox.queue) == [batch]
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(
    ("error", "again"), [(ConnectionLostError("gone"), True), (UnsupportedVersionError("old"), False)]
)
async def test_what_nobody_has_answered_is_sent_again_if_that_may_help(error: Any, again: bool) -> None:
    case = Case()
    batches = [case.sent(0), case.sent(1)]
    case.sender._brokers[1] = broker = SimpleNamespace(in_flight=1, is_busy=True)  # type: ignore[assignment]

    async def fails(*_: Any, **__: Any) -> Any:
        raise error

    case.client.begin = fails
    await case.sender._send(1, broker, batches)  # type: ignore[arg-type]
    assert [one.is_done for one in batches] == [not again] * 2
    assert [len(one.outbox.queue) for one in batches] == [again] * 2
    assert (broker.in_flight, broker.is_busy, case.needs) == (0, False, 1)


async def test_an_answer_belongs_to_its_own_partition_and_one_that_lacks_is_an_error() -> None:
    case = Case()
    batches = [case.sent(index) for index in (0, 1, 2)]
    answers = [Answer(2, 0, 20), Answer(0, 0, 10)]
    response = ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse("t", partition_responses=answers)]
    )
    case.sender._settle_all(batches, response)
    assert [one.base_offset for one in batches] == [10, -1, 20]
    assert getattr(batches[1].failure, "code", None) == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_answer_to_what_has_expired_changes_nothing() -> None:
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE):
        case = Case()
        batch = case.sent(count=2)
        case.sender.fail(batch, DeliveryTimeoutError("late"))
        case.settle(batch, code)
        assert isinstance(batch.failure, DeliveryTimeoutError)
        assert not batch.outbox.queue
        case = Case()
        batch = case.sent()
        case.sender.fail(batch, DeliveryTimeoutError("late"))
        case.sender._settle_error(batch, ConnectionLostError("gone"))
        assert not batch.outbox.queue


async def test_failures_of_single_records_are_told_by_their_places() -> None:
    case = Case()
    batch = case.sent(count=3)
    single = [
        ProduceResponse.BatchIndexAndErrorMessage(1, "bad"),
        ProduceResponse.BatchIndexAndErrorMessage(2, None),
    ]
    case.settle(batch, ErrorCode.INVALID_RECORD, record_errors=single, error_message="all")
    messages = []
    for delivery in batch.deliveries:
        with pytest.raises(ResponseError) as raised:
            delivery.result()
        messages.append((raised.value.code, raised.value.message, "a record" in raised.value.doing))
    invalid = ErrorCode.INVALID_RECORD
    assert messages == [(invalid, "all", False), (invalid, "bad", True), (invalid, "all", True)]


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer", "after", "asks"),
    [((7, 3), (7, 4), False), ((7, EPOCH_MAX - 1), (7, EPOCH_MAX), False), ((7, EPOCH_MAX), (-1, -1), True)],
)
def test_a_new_epoch_begins_where_sequences_were_refused(producer: Any, after: Any, asks: bool) -> None:
    case = Case(producer=producer)
    outbox = case.sent().outbox
    assert case.identity.current() == producer, "nothing was refused"
    case.identity.refuse_sequences(outbox)
    case.identity.refuse_sequences(outbox)
    assert not case.identity.may_send(outbox)
    assert case.identity.may_send(Outbox("t", 9))
    assert case.identity.current() == after
    assert case.identity._needed.is_set() is asks
    assert (outbox.producer == after) is not asks
    assert case.identity._refused == [outbox] * asks


async def test_a_producer_id_is_asked_for_until_there_is_one(autojump_clock: trio.testing.MockClock) -> None:
    case = Case(producer=(-1, -1))
    answers: list[Any] = [ConnectionLostError("gone"), (8, 2)]

    async def new_producer() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    case.identity._new_producer = new_producer  # type: ignore[method-assign]
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


async def test_the_answer_to_a_request_for_a_producer_id_is_its_id_and_epoch() -> None:
    case = Case()
    case.client.answer = lambda _: InitProducerIdResponse(producer_id=8, producer_epoch=2)

    async def any_connection() -> Any:
        return case.client

    async def retrying(attempt: Any) -> Any:
        return await attempt()

    case.client.any_connection, case.client.retrying = any_connection, retrying
    usual = case.client.ask
    case.client.ask = lambda request, version_max: usual(request, version=version_max)
    assert await case.identity._new_producer() == (8, 2)
    assert (case.client.asked[-1].transactional_id, case.client.asked[-1].producer_id) == (None, -1)
    case.client.answer = lambda _: InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
    with pytest.raises(ResponseError, match="NOT_COORDINATOR"):
        await case.identity._new_producer()

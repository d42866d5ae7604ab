"""A consumer's fetcher: what it asks for in each version, from which broker, and what each answer does to a partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    ClientSettings,
    ConnectionLostError,
    ConsumerSettings,
    ResponseError,
    TopicPartition,
)
from barnabas.client.consuming.fetching import BUFFERED_CHUNKS, Fetcher, _Broker
from barnabas.client.consuming.partition import Chunk, Partition
from barnabas.client.errors import DamagedRecordsError, OffsetOutOfRangeError
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchResponse
from tests.support.members import StandinCoordinator

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": b"t" * 16, "u": b"u" * 16}
Answer = FetchResponse.PartitionData
METADATA_IS_OLD = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
}  # fmt: skip


class Topics:
    """Metadata: leaders by partition, with an epoch; counts how often it is asked for anew."""

    def __init__(self) -> None:
        self.leaders = {T0: 1, T1: 2, U0: 1}
        self.epoch = 4
        self.needs = 0
        self.errors: dict[str, int] = {}
        self.ids = dict(IDS)

    def need(self) -> None:
        self.needs += 1

    def leader(self, topic: str, index: int) -> int:
        return self.leaders[TopicPartition(topic, index)]

    @property
    def infos(self) -> Any:
        info = SimpleNamespace(epoch=self.epoch, replicas=(1, 2, 3))
        return {
            name: SimpleNamespace(id=id_, partitions={0: info, 1: info}) for name, id_ in self.ids.items()
        }


class Case:
    """A fetcher of partitions that stand at offset 5, and last saw the log in epoch 4."""

    def __init__(self, *places: TopicPartition, version: int = 17, **settings: Any) -> None:
        self.response: Any = FetchResponse()
        self.client: Any = StandinCoordinator(lambda _: self.response, Fetch=version)
        self.client.settings = ClientSettings(
            request_timeout_ms=20_000,
            retry_backoff_ms=100,
            retry_backoff_max_ms=500,
            metadata_max_age_ms=60_000,
        )
        self.topics = Topics()
        self.partitions = {place: Partition(place) for place in places or (T0,)}
        for partition in self.partitions.values():
            partition.seek(5, 3)
            partition.leader_epoch = 4
        self.located = 0
        self.fetcher = Fetcher(
            self.client, self.topics, ConsumerSettings(**settings), self.partitions, self._locate
        )  # type: ignore[arg-type]
        self.started: list[Any] = []
        self.fetcher._nursery = SimpleNamespace(start_soon=lambda _, *args: self.started.append(args))  # type: ignore[assignment]

    def _locate(self) -> None:
        self.located += 1

    @property
    def one(self) -> Partition:
        return self.partitions[T0]

    def asked(self) -> Any:
        return {place: (part, part.seeks, part.fetch_offset) for place, part in self.partitions.items()}

    async def ask(self, broker: _Broker | None = None, size: int = 1000) -> Any:
        """Send a request; returns it."""
        await self.fetcher.ask(self.client, broker or _Broker(), self.asked(), size)
        return self.client.asked[-1]

    def take(self, code: int = 0, *, source: int = 1, **fields: Any) -> None:
        """Take an answer for T0."""
        part = Answer(0, code, **fields)
        topics = [FetchResponse.FetchableTopicResponse("t", partitions=[part])]
        self.fetcher.take(FetchResponse(responses=topics), {}, self.asked(), source)


def batch(first: int, count: int = 2, **options: Any) -> bytes:
    return encode_batch([Record(first + n, 1_000 + n, None, b"v") for n in range(count)], **options)


def without_records(end_offset: int, end_epoch: int) -> Chunk:
    chunk = Chunk(T0, b"", 5, None, checks_crcs=True)
    chunk.end_offset, chunk.end_epoch = end_offset, end_epoch
    return chunk


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(18))
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_a_request_has_what_the_version_has(version: int, isolation: str) -> None:
    case = Case(
        T0, U0, version=version, isolation=isolation, rack="r", fetch_wait_ms_max=333, fetch_bytes_min=2,
        partition_bytes_max=400,
    )  # fmt: skip
    case.partitions[U0].bytes_max_factor = 8
    sent = await case.ask()
    assert (sent.max_wait_ms, sent.min_bytes) == (333, 2)
    assert case.client.timeouts_ms == [20_333], "so much longer than the broker may wait"
    assert sent.isolation_level == int(isolation == "read_committed" and version >= 4)
    assert sent.max_bytes == 1000
    assert sent.rack_id == ("r" if version >= 11 else "")
    assert (sent.session_id, sent.session_epoch) == (0, 0 if version >= 7 else -1)
    names = [("", IDS["t"]), ("", IDS["u"])] if version >= 13 else [("t", bytes(16)), ("u", bytes(16))]
    assert [(entry.topic, entry.topic_id) for entry in sent.topics] == names
    epoch = 4 if version >= 9 else -1
    assert [
        (entry.partition, entry.current_leader_epoch, entry.fetch_offset, entry.partition_max_bytes)
        for topic in sent.topics
        for entry in topic.partitions
    ] == [(0, epoch, 5, 400), (0, epoch, 5, 1000)]


async def test_topics_without_an_id_are_named() -> None:
    case = Case(T0, U0)
    case.topics.ids["u"] = bytes(16)
    assert [topic.topic for topic in (await case.ask()).topics] == ["t", "u"]


@pytest.mark.parametrize("version", [7, 12, 13, 17])
async def test_a_session_names_only_what_is_new_and_what_is_gone(version: int) -> None:
    case, broker = Case(T0, T1, version=version), _Broker()
    case.response = FetchResponse(session_id=9)
    await case.ask(broker)
    again = await case.ask(broker)
    assert (again.session_id, again.session_epoch, again.topics) == (9, 1, [])
    case.one.seek(6)
    del case.partitions[T1]
    sent = await case.ask(broker)
    (topic,) = sent.topics
    assert [(partition.partition, partition.fetch_offset) for partition in topic.partitions] == [(0, 6)]
    (gone,) = sent.forgotten_topics_data
    assert (gone.topic, gone.topic_id) == (("", IDS["t"]) if version >= 13 else ("t", bytes(16)))
    assert gone.partitions == [1]


async def test_session_errors_start_a_new_session() -> None:
    of_session = {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }  # fmt: skip
    for code in ErrorCode:
        case, broker = Case(), _Broker()
        case.response = FetchResponse(session_id=9)
        await case.ask(broker)
        case.response = FetchResponse(error_code=code, session_id=9)
        outcome = 0
        try:
            await case.ask(broker)
        except ResponseError as error:
            outcome = error.code
        assert outcome == (0 if code in of_session else code), code
        assert (broker.session.id, broker.session.epoch) == ((0, 0) if code else (9, 2)), code


# --- whom to ask, and when --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "is_asked"),
    [
        ({}, True),
        ({"offset": -1}, False),
        ({"offset": 0}, True),
        ({"is_paused": True}, False),
        ({"is_revoked": True}, False),
        ({"is_under_way": True}, False),
        ({"failure": ConnectionLostError("gone")}, False),
        ({"retry_at": 100.0}, True),
        ({"retry_at": 100.5}, False),
    ],
    ids=str,
)
def test_a_partition_is_fetched_when_it_may_be(change: dict[str, Any], is_asked: bool) -> None:
    case = Case()
    for name, value in change.items():
        setattr(case.one, name, value)
    next_look = case.fetcher.look(100.0)
    assert len(case.started) == is_asked
    assert next_look == (change["retry_at"] if change.get("retry_at", 0) > 100 else float("inf"))


def test_no_more_is_fetched_of_a_partition_that_has_enough() -> None:
    for count in range(BUFFERED_CHUNKS + 1):
        case = Case()
        for _ in range(count):
            case.one.chunks.append(without_records(-1, -1))
        case.fetcher.look(0.0)
        assert len(case.started) == (count < BUFFERED_CHUNKS)


def test_failed_broker_is_paused_and_others_are_fetched_from() -> None:
    case = Case(T0, T1)
    for source, retry_at in ((1, 100.5), (2, 100.0)):
        case.fetcher._brokers[source] = _Broker()
        case.fetcher._brokers[source].retry_at = retry_at
    assert case.fetcher.look(100.0) == 100.5
    assert [(source, list(asked)) for source, _, asked, _ in case.started] == [(2, [T1])]


@pytest.mark.parametrize(
    ("fetch_epoch", "known_epoch", "source", "located", "epoch"),
    [(3, 4, 1, 0, 4), (3, 5, 1, 0, 5), (3, 3, -1, 1, 3), (0, 3, -1, 1, 3), (-1, 3, 1, 0, 4)],
)
def test_new_leader_is_fetched_from_after_validation(
    fetch_epoch: int, known_epoch: int, source: int, located: int, epoch: int
) -> None:
    case = Case()
    case.one.fetch_epoch, case.one.leader_epoch = fetch_epoch, known_epoch
    assert case.fetcher.source_of(case.one, 0.0) == source
    assert (case.located, case.one.leader_epoch) == (located, epoch)


async def test_failing_brokers_are_retried_with_growing_pauses(
    autojump_clock: trio.testing.MockClock,
) -> None:
    case, broker = Case(T0, U0), _Broker()
    case.response = ConnectionLostError("gone")
    case.one.nearby = 3
    pauses = []
    for _ in range(5):
        broker.session.id = 9
        case.fetcher._reserved_bytes, broker.is_busy, case.one.is_under_way = 700, True, True
        await case.fetcher.fetch_from(1, broker, case.asked(), 700)
        pauses.append(round(broker.retry_at - trio.current_time(), 3))
        assert (case.fetcher._reserved_bytes, broker.is_busy, case.one.is_under_way) == (0, False, False)
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert (broker.session.id, case.one.nearby, case.topics.needs) == (0, -1, 5)
    assert case.one.failure is None
    case.response = FetchResponse()
    await case.fetcher.fetch_from(1, broker, case.asked(), 0)
    assert broker.failures == 0
    assert set(case.client.lanes) == {"fetch"}


async def test_a_failure_that_does_not_pass_goes_to_the_program() -> None:
    case = Case(T0, U0)
    case.response = ResponseError(ErrorCode.UNSUPPORTED_VERSION, "fetching")
    await case.fetcher.fetch_from(1, _Broker(), case.asked(), 0)
    assert [partition.failure for partition in case.partitions.values()] == [case.response] * 2


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_each_error_of_a_partition_has_its_consequence() -> None:
    for code in ErrorCode:
        if code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            continue
        case = Case()
        case.one.nearby = 3
        case.take(code, source=3)
        may_pass = code in METADATA_IS_OLD or code.retriable
        assert case.topics.needs == may_pass, code
        assert (case.one.failure is None) is may_pass, code
        assert case.one.nearby == -1, code
        assert case.one.retry_at == pytest.approx(trio.current_time() + 0.1, abs=0.05), code
        assert case.one.offset == 5, code
        if case.one.failure is not None:
            assert getattr(case.one.failure, "code", None) == code


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@pytest.mark.parametrize("where", ["leader", "follower", "records wait"])
async def test_out_of_range_offset_is_reset_only_if_leader_says_so(reset: str, where: str) -> None:
    case = Case(offset_reset=reset)
    case.one.nearby = 3
    if where == "records wait":
        case.one.chunks.append(SimpleNamespace(size=1))  # type: ignore[arg-type]
    case.take(ErrorCode.OFFSET_OUT_OF_RANGE, source=3 if where == "follower" else 1)
    assert case.one.nearby == (-1 if where == "follower" else 3)
    is_told = where == "leader"
    assert isinstance(case.one.failure, OffsetOutOfRangeError) is (is_told and reset == "none")
    assert (case.one.reset, case.located) == ((reset, 1) if is_told and reset != "none" else ("", 0))
    assert case.topics.needs == 0


async def test_an_answer_moves_what_is_fetched_next() -> None:
    case = Case(T0, T1)
    case.one.bytes_max_factor = 4
    case.take(
        high_watermark=10, last_stable_offset=9, log_start_offset=2, preferred_read_replica=3,
        records=batch(5, leader_epoch=6),
    )  # fmt: skip
    entry = case.one
    assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (10, 9, 2)
    assert (entry.nearby, entry.nearby_until) == (3, pytest.approx(trio.current_time() + 60, abs=1))
    assert (entry.fetch_offset, entry.fetch_epoch, entry.offset, entry.bytes_max_factor) == (7, 6, 5, 1)
    assert list(case.fetcher.ready) == [entry]
    assert list(case.partitions) == [T1, T0], "who has sent something is asked for last"
    case.take(records=batch(7))
    assert list(case.fetcher.ready) == [entry], "only once"
    assert entry.fetch_offset == 9
    assert entry.nearby == 3, "an answer that prefers nobody changes nothing"


async def test_an_answer_without_records_hands_nothing_out() -> None:
    case = Case()
    arrived = case.fetcher.arrived
    case.take(high_watermark=5, records=b"")
    assert not case.fetcher.ready
    assert (case.one.high_watermark, case.one.fetch_offset) == (5, 5)
    assert arrived.is_set()
    assert not case.fetcher.arrived.is_set()


async def test_a_part_of_a_batch_is_asked_for_with_twice_the_bytes() -> None:
    case = Case()
    for factor in (2, 4):
        case.take(records=batch(5)[:40])
        assert (case.one.bytes_max_factor, case.one.fetch_offset) == (factor, 5)
    assert not case.fetcher.ready


async def test_what_is_no_batch_is_an_error_for_the_program() -> None:
    case = Case()
    case.take(records=b"\0" * 100)
    assert isinstance(case.one.failure, DamagedRecordsError)


@pytest.mark.parametrize("change", ["moved", "gone", "another"])
async def test_an_answer_for_a_position_that_has_moved_means_nothing(change: str) -> None:
    case = Case()
    asked = case.asked()
    if change == "moved":
        case.one.seek(9)
    else:
        partition = case.partitions.pop(T0)
        if change == "another":
            case.partitions[T0] = Partition(T0)
        assert partition.fetch_offset == 5
    topics = [
        FetchResponse.FetchableTopicResponse(
            "t", partitions=[Answer(0, records=batch(5)), Answer(1, records=batch(5))]
        )
    ]
    case.fetcher.take(FetchResponse(responses=topics), {}, asked, 1)
    assert not case.fetcher.ready
    assert asked[T0][0].high_watermark == -1


# --- records ----------------------------------------------------------------------------------------------------------


def test_records_before_damage_are_handed_out_then_refetched() -> None:
    damaged = bytearray(batch(5, 1) + batch(6, 1))
    damaged[-2] ^= 1
    partition = Partition(T0)
    partition.seek(5, 1)
    partition.add(Chunk(T0, bytes(damaged), 5, None, checks_crcs=True))
    first = partition.next()
    assert first is not None
    assert partition.offset == 6
    with pytest.raises(DamagedRecordsError):
        partition.next()
    assert (partition.offset, partition.fetch_offset, len(partition.chunks)) == (6, 6, 0)


def test_batch_of_records_ends_before_damage() -> None:
    damaged = bytearray(batch(5, 3) + batch(8, 1))
    damaged[-2] ^= 1
    partition = Partition(T0)
    partition.seek(5, 1)
    partition.add(Chunk(T0, bytes(damaged), 5, None, checks_crcs=True))
    records = [record for record in [partition.next()] if record is not None]
    partition.add_opened(records, 2)
    assert ([record.offset for record in records], partition.offset) == ([5, 6], 7)
    partition.add_opened(records, 10)
    assert [record.offset for record in records] == [5, 6, 7]
    assert (partition.offset, partition.fetch_offset, len(partition.chunks)) == (8, 8, 0)


def test_a_position_moves_over_what_is_not_handed_out() -> None:
    partition = Partition(T0)
    partition.seek(5, 1)
    partition.chunks.append(without_records(9, 3))
    assert partition.next() is None
    assert (partition.offset, partition.epoch, partition.done_offset) == (9, 3, 9)
    partition.done_offset = 8  # the program has a record that it is not done with
    partition.chunks.append(without_records(12, -1))
    assert partition.next() is None
    assert (partition.offset, partition.epoch, partition.done_offset) == (12, 3, 8)


@pytest.mark.parametrize(
    ("watermark", "stable", "offset", "lags"),
    [
        (10, 8, 5, (5, 3)),
        (-1, -1, 5, (None, None)),
        (0, 0, 0, (0, 0)),
        (10, 8, -1, (None, None)),
        (4, 3, 5, (0, 0)),
    ],
)
def test_a_lag_is_up_to_what_can_be_read(
    watermark: int, stable: int, offset: int, lags: tuple[Any, Any]
) -> None:
    partition = Partition(T0)
    partition.high_watermark, partition.last_stable_offset, partition.offset = watermark, stable, offset
    assert (partition.lag(is_committed_only=False), partition.lag(is_committed_only=True)) == lags

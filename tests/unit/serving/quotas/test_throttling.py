"""Requests of clients that are over their quotas: what is charged, what is answered, and for how long they are muted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.broker.quotas import broker_quotas
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.serving.context import ConnectionInfo
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.serving.request_parts import RequestParts
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.share_fetch import ShareFetchRequest
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.headers import decode_response
from tests.support.broker import NOW_MS, broker_to_ask
from tests.support.request_parts import Transport, answered, frame_of, request_parts_of

PRODUCE, FETCH, METADATA, CREATE, DELETE, GROW, SHARE_HEARTBEAT, SHARE_FETCH = 0, 1, 3, 19, 20, 37, 76, 78
EVERYBODY = QuotaEntity("")


@dataclass
class Client:
    """A connection of its own to a broker's request_parts, with a clock that stands until it is moved."""

    request_parts: RequestParts
    info: ConnectionInfo
    seconds: list[float]
    client_id: str = "app"
    sent: bytes = b""

    async def __call__(self, key: int, version: int, request: Any) -> Any:
        """Return the response, None if there is none."""
        frame, transport = frame_of(key, version, request, self.client_id), Transport()
        self.info.muted_ms = 0
        self.request_bytes = len(frame)
        assert await answered(self.request_parts, self.info, transport, frame)
        return decode_response(transport.sent[4:], key, version)[1] if transport.sent else None

    @property
    def muted_ms(self) -> int:
        return self.info.muted_ms


@dataclass
class World:
    """A broker with quotas that tests set."""

    asked: Any
    quotas: Any
    request_parts: RequestParts
    seconds: list[float]
    now: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)

    def set(self, entity: QuotaEntity = EVERYBODY, **limits: float) -> None:
        self.now = {**self.now, entity: limits}
        self.quotas.follow(self.now, [entity])

    def client(self, principal: str = "User:alice", client_id: str = "app") -> Client:
        addresses = ("127.0.0.1", 9092), ("127.0.0.1", 50_000)
        info = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", *addresses, principal=principal)
        return Client(self.request_parts, info, self.seconds, client_id)


@pytest.fixture
async def world(tmp_path):
    seconds = [1000.0]

    def clock() -> float:
        return seconds[0]

    async with broker_to_ask(tmp_path, {"num.partitions": "2"}) as asked:
        quotas = broker_quotas(asked.services.config, asked.services.served, asked.services.budget, clock)
        request_parts = request_parts_of(asked.services, asked.broker.memory, quotas=quotas)
        world = World(asked, quotas, request_parts, seconds)
        await world.client()(CREATE, 7, creation("t", partitions=2))
        yield world


def creation(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ],
        timeout_ms=5000,
        validate_only=validate_only,
    )


def produce(size: int, acks: int = 1) -> ProduceRequest:
    batch = encode_batch([Record(0, NOW_MS, None, bytes(size))])
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])],
    )


def fetch(
    offset: int = 0, *, session: tuple[int, int] = (0, -1), replica_id: int = -1, max_bytes: int = 1 << 20
) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica_id, max_bytes=max_bytes, session_id=session[0], session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])],
    )  # fmt: skip


def records_of(answer: Any) -> int:
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)


async def test_who_produces_more_than_allowed_is_told_and_muted(world):
    world.set(producer_byte_rate=1000)
    client = world.client()
    answer = await client(PRODUCE, 9, produce(20_000))
    # (observed - limit) / limit * window, with the ten windows that a new rate counts with
    expected = round((client.request_bytes / 10 - 1000) / 1000 * 10_000)
    assert answer.throttle_time_ms == client.muted_ms == expected
    assert answer.responses[0].partition_responses[0].error_code == 0
    world.seconds[0] += 11
    answer = await client(PRODUCE, 9, produce(1))
    assert answer.throttle_time_ms == client.muted_ms == 0


async def test_versions_without_the_field_and_acks_0_are_muted_too(world):
    world.set(producer_byte_rate=1000)
    client = world.client()
    await client(PRODUCE, 0, produce(20_000))
    assert client.muted_ms > 0
    assert await client(PRODUCE, 9, produce(20_000, acks=0)) is None
    assert client.muted_ms > 0


async def test_share_fetch_over_quota_is_sent_and_mutes_the_client(world):
    client = world.client()
    for _ in range(4):
        await client(PRODUCE, 9, produce(2000))
    topic_id = world.asked.services.metadata.image.topics["t"].id
    join = ShareGroupHeartbeatRequest(
        group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    assert (await client(SHARE_HEARTBEAT, 1, join)).error_code == 0
    partition = ShareFetchRequest.FetchPartition(partition_index=0)
    topic = ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    begin = ShareFetchRequest(
        group_id="s",
        member_id="m",
        share_session_epoch=0,
        max_records=9,
        max_bytes=1 << 20,
        batch_size=9,
        topics=[topic],
    )
    await client(SHARE_FETCH, 1, begin)  # the share group begins at the end of the log
    for _ in range(4):
        await client(PRODUCE, 9, produce(2000))
    world.set(consumer_byte_rate=100)
    begin.share_session_epoch, begin.topics = 1, []
    answer = await client(SHARE_FETCH, 1, begin)
    sent = len(answer.responses[0].partitions[0].records)
    assert sent > 2000, (
        "records that are acquired are locked: not to send them would keep them from all members"
    )
    assert client.muted_ms == answer.throttle_time_ms > 0
    begin.share_session_epoch = 2
    world.set(consumer_byte_rate=1e9)
    rest = await client(SHARE_FETCH, 1, begin)
    assert client.muted_ms == rest.throttle_time_ms == 0
    assert len(rest.responses[0].partitions[0].records) + sent > 8000


async def test_fetch_over_quota_is_empty_and_not_charged(world):
    client = world.client()
    for _ in range(20):
        await client(PRODUCE, 9, produce(1000))
    world.set(consumer_byte_rate=600)
    first = await client(FETCH, 12, fetch())
    assert 4500 < records_of(first) <= 6000  # what may be fetched in ten windows
    assert first.throttle_time_ms < 200  # for what is around the records
    second = await client(FETCH, 12, fetch(5))
    assert records_of(second) == 0
    assert second.responses == []
    assert second.throttle_time_ms == client.muted_ms > 0
    world.seconds[0] += 11
    third = await client(FETCH, 12, fetch(5))
    assert records_of(third) > 4500


async def test_throttled_session_starts_none_and_forgets_nothing(world):
    client = world.client()
    for _ in range(20):
        await client(PRODUCE, 9, produce(1000))
    world.set(consumer_byte_rate=600)
    first = await client(FETCH, 12, fetch(session=(0, 0)))
    assert first.session_id > 0
    again = await client(FETCH, 12, fetch(5, session=(first.session_id, 1)))
    assert (again.session_id, again.responses) == (first.session_id, [])
    assert again.throttle_time_ms > 0
    new = await client(FETCH, 12, fetch(5, session=(0, 0)))
    assert (new.session_id, new.responses) == (0, [])
    assert len(world.asked.services.fetch_sessions) == 1
    world.seconds[0] += 11
    later = await client(FETCH, 12, fetch(5, session=(first.session_id, 2)))
    assert records_of(later) > 4500


async def test_a_request_that_waits_is_not_charged_for_waiting(world):
    world.set(request_percentage=1)  # a hundredth of ten windows: 100 ms
    client = world.client()
    request = fetch()
    request.min_bytes, request.max_wait_ms = 1, 1000
    answer = await client(FETCH, 12, request)
    assert answer.throttle_time_ms == 0


class HalfDone:
    """A login that goes on, and admits everything."""

    is_done = has_failed = False

    def expects_token(self, *, is_known_api: bool) -> bool:
        return not is_known_api

    def admit(self, _api_key: int, _steady_ms: float) -> None:
        pass


async def test_nothing_is_counted_before_authentication(world):
    world.set(request_percentage=0.0000001)
    client = world.client()
    client.info.login = HalfDone()  # type: ignore[assignment]
    await client(METADATA, 9, MetadataRequest())
    assert client.muted_ms == 0


# --- changes of the cluster ---------------------------------------------------------------------------------------


def codes(answer: Any) -> list[int]:
    return [row.error_code for row in getattr(answer, "topics", None) or getattr(answer, "results", [])]


async def test_topics_over_quota_are_refused_if_the_error_is_known(world):
    world.set(controller_mutation_rate=1)  # eleven at once
    client = world.client()
    answer = await client(CREATE, 7, creation("a", "b", "c", partitions=6))
    assert codes(answer) == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms == client.muted_ms == 1000
    assert {"a", "b"} <= set(world.asked.services.metadata.image.topics)
    assert "c" not in world.asked.services.metadata.image.topics
    world.seconds[0] += 1
    assert codes(await client(CREATE, 7, creation("c"))) == [0]


async def test_older_versions_get_their_topics_and_then_throttling(world):
    world.set(controller_mutation_rate=1)
    client = world.client()
    answer = await client(CREATE, 5, creation("a", "b", "c", partitions=6))
    assert codes(answer) == [0, 0, 0]
    assert answer.throttle_time_ms == client.muted_ms == 7000


async def test_deleted_and_added_partitions_count_too(world):
    client = world.client()
    await client(CREATE, 7, creation("a", partitions=20))
    world.set(controller_mutation_rate=1)
    answer = await client(DELETE, 5, DeleteTopicsRequest(topic_names=["a"], timeout_ms=60_000))
    assert [response.error_code for response in answer.responses] == [0]
    assert answer.throttle_time_ms == 0
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)],
        timeout_ms=5000,
    )
    refused = await client(GROW, 3, grow)
    assert codes(refused) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert refused.throttle_time_ms == 9000
    grown = await client(GROW, 2, grow)
    assert codes(grown) == [0]
    assert grown.throttle_time_ms == 11_000
    answer = await client(DELETE, 5, DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000))
    assert [response.error_code for response in answer.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


async def test_topics_that_metadata_makes_are_charged(world):
    world.set(controller_mutation_rate=0.1)  # 1.1 tokens
    client = world.client()
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
    )
    answer = await client(METADATA, 9, request)
    assert "new" in world.asked.services.metadata.image.topics
    assert answer.throttle_time_ms == 9000

"""Metadata is encoded once for all who ask the same, and made again when anything of it has changed."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.apis import Api, row_of
from barnabas.broker.binding import bound
from barnabas.broker.codecs import CodecWorker
from barnabas.broker.pipeline import Pipeline
from barnabas.broker.repeated_answers import BYTES_MAX, RepeatedAnswers
from barnabas.environment.real import real_environment
from barnabas.errors import StorageError
from barnabas.requests.context import ConnectionInfo, Shared
from barnabas.requests.log_limit import LogLimit
from barnabas.security.authorizer import AllowEverything
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.headers import RequestHeader, decode_response, encode_request
from tests.support.broker import broker_to_ask

METADATA, CREATE, DELETE = 3, 19, 20
INFO = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 9092), ("127.0.0.1", 50_000))

HEADER = RequestHeader(METADATA, 9, 0, None, 0, None)


class CountedApi(Api):
    """An API whose calls are counted."""

    calls: list[int]

    def handle_with(self, services: Any) -> CountedApi:
        """Take the services from which its handler has what it needs."""
        handler = bound(super().handle, services)

        async def counted(context: Any, request: Any) -> Any:
            self.calls.append(context.correlation_id)
            return await handler(context, request)

        self.__dict__.update(handle=counted, calls=[])
        return self


class Asked:
    """A pipeline, and the correlation ids of the requests of Metadata that have come to their handler."""

    def __init__(self, asked: Any, **parts: Any) -> None:
        environment = real_environment()
        shared = Shared(asked.broker.memory, LogLimit(), AllowEverything())
        codecs = CodecWorker(environment.threads, 250_000)
        counted = CountedApi(**row_of(asked.services.served[METADATA])).handle_with(asked.services)
        self.services = asked.services._replace(served={**asked.services.served, METADATA: counted})
        self.pipeline = Pipeline(self.services, shared, codecs, now_s=environment.monotonic, **parts)
        self.made = counted.calls
        self.sent = b""

    async def ask(
        self, key: int, version: int, request: Any, info: ConnectionInfo = INFO, number: int = 1
    ) -> Any:
        """Return the response to a request with this correlation id."""
        chunks = encode_request(key, version, number, "app", request)
        frame = memoryview(bytearray(b"".join(bytes(chunk) for chunk in chunks)[4:]))
        assert await self.pipeline.answer(info, self, frame)  # type: ignore[arg-type]
        correlation_id, response = decode_response(self.sent[4:], key, version)
        assert correlation_id == number
        assert int.from_bytes(self.sent[:4], "big") == len(self.sent) - 4
        return response

    async def send(self, chunks: list[Any]) -> None:
        self.sent = b"".join(bytes(chunk) for chunk in chunks)

    async def topics(
        self, *names: str, version: int = 9, info: ConnectionInfo = INFO, number: int = 1
    ) -> Any:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        return await self.ask(METADATA, version, request, info, number)


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, {"listeners": "PLAINTEXT://:0"}) as broker:
        asked = Asked(broker)
        await create(asked, "t")
        await create(asked, "u")
        yield asked


async def create(asked: Asked, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    response = await asked.ask(CREATE, 5, CreateTopicsRequest(topics=[topic]))
    assert response.topics[0].error_code == 0


async def test_the_same_question_is_answered_from_memory_with_its_own_correlation_id(asked):
    first = await asked.topics("t", number=7)
    assert await asked.topics("t", number=8) == first
    assert await asked.topics("t", number=9) == first
    assert asked.made == [7]
    assert [one.name for one in first.topics] == ["t"]


async def test_another_question_version_or_address_has_an_answer_of_its_own(asked):
    elsewhere = ConnectionInfo(1, "PLAINTEXT", "PLAINTEXT", ("10.0.0.7", 9092), ("127.0.0.1", 50_000))
    assert (await asked.topics("t")).brokers[0].host == "127.0.0.1"
    assert (await asked.topics("t", info=elsewhere)).brokers[0].host == "10.0.0.7"
    await asked.topics("t", "u")
    await asked.topics("t", version=8)
    assert len(asked.made) == 4


async def test_a_change_of_the_cluster_is_seen_at_once(asked):
    before = await asked.ask(METADATA, 9, MetadataRequest(topics=None))
    await create(asked, "v")
    after = await asked.ask(METADATA, 9, MetadataRequest(topics=None))
    assert {one.name for one in after.topics} == {one.name for one in before.topics} | {"v"}
    gone = DeleteTopicsRequest(topic_names=["v"])
    await asked.ask(DELETE, 4, gone)
    assert await asked.ask(METADATA, 9, MetadataRequest(topics=None)) == before


async def test_a_log_that_goes_offline_is_seen_at_once(asked):
    assert (await asked.topics("t")).topics[0].partitions[0].error_code == 0
    services = asked.services
    log = services.replicas.leader("t", 0).log
    services.failures.failed(StorageError(log.log_dir, OSError(5, "it is broken")))
    partition = (await asked.topics("t")).topics[0].partitions[0]
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_an_error_is_not_kept(asked):
    for _ in range(2):
        answer = await asked.topics("unknown")
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(asked.made) == 2


async def test_what_is_kept_is_bounded(asked):
    services = asked.services
    kept = RepeatedAnswers(services.metadata, services.replicas)
    large = [b"".ljust(1 << 20)]
    for number in range(40):
        frame = memoryview(number.to_bytes(4, "big"))
        assert kept.find(INFO, HEADER, frame) is None
        kept.keep(INFO, HEADER, frame, large, {0: 1}, kept.state)
        assert kept.find(INFO, HEADER, frame) is not None
        assert kept.size_bytes <= BYTES_MAX + (2 << 20)
    kept.keep(INFO, HEADER, memoryview(b"else"), [b"".ljust(4 << 20)], {0: 1}, kept.state)
    assert kept.find(INFO, HEADER, memoryview(b"else")) is None


async def test_who_looks_into_answers_has_each_made_for_itself(tmp_path):
    async def interceptor(context: Any, request: Any, handler: Any) -> Any:
        return await handler(context, request)

    async with broker_to_ask(tmp_path) as broker:
        asked = Asked(broker, interceptor=interceptor)
        await create(asked, "t")
        for _ in range(3):
            await asked.topics("t")
        assert len(asked.made) == 3

"""A broker in the test's own process, on a disk that the test can break, and a client of bare requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.broker.app import Broker
from barnabas.broker.assembly import assembled
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.log.disk import Disk
from barnabas.records.batch import iter_batches, read_records
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire import registry
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.headers import decode_response, encode_request

NOW_MS = 1_700_000_000_000


class Client:
    """A client of a broker over real sockets, with a connection for each request."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.services = broker.services

    async def ask(self, message: Any, version: int) -> Any:
        """The response to a request."""
        key = registry.key_of(type(message).__name__.removesuffix("Request"))
        stream = await trio.open_tcp_stream(*self.broker.listeners[0].addresses[0])
        async with stream:
            await stream.send_all(b"".join(encode_request(key, version, 1, "test", message)))  # type: ignore[arg-type]
            data = b""
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                received = await stream.receive_some()
                assert received, f"{message!r} was answered by closing the connection"
                data += received
        return decode_response(data[4:], key, version)[1]

    async def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic."""
        configs = [
            CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in settings.items()
        ]
        spec = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, configs=configs
        )
        response = await self.ask(CreateTopicsRequest(topics=[spec], timeout_ms=60_000), 5)
        assert response.topics[0].error_code == 0, response

    async def produce(
        self,
        topic: str,
        partition: int,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 10_000,
        **options: Any,
    ) -> Any:
        """Produce one batch; returns the partition's part of the response."""
        data = ProduceRequest.PartitionProduceData(index=partition, records=self.batch(*values, **options))
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        response = await self.ask(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics), 8)
        return response.responses[0].partition_responses[0]

    @staticmethod
    def batch(*values: bytes, **options: Any) -> bytes:
        """A batch of records without keys."""
        return encode_batch([Record(n, NOW_MS, None, value) for n, value in enumerate(values)], **options)

    async def fetch(self, topic: str, partition: int, offset: int = 0) -> tuple[int, list[bytes | None]]:
        """Fetch once: error code and values."""
        part = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        topics = [FetchRequest.FetchTopic(topic=topic, partitions=[part])]
        response = await self.ask(FetchRequest(replica_id=-1, max_bytes=1 << 20, topics=topics), 6)
        (data,) = response.responses[0].partitions
        records = bytes(data.records or b"")
        values = [record.value for at, _ in iter_batches(records) for record in read_records(records, at)]
        return data.error_code, values


@asynccontextmanager
async def running(dirs: Sequence[object], disk: Disk | None = None, **settings: str) -> AsyncIterator[Client]:
    """Yield a client of a broker that serves until the block ends, and is then stopped cleanly."""
    values = {
        "log.dirs": ",".join(map(str, dirs)),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    async with serving(BrokerConfig(values), disk) as broker:
        yield Client(broker)


@asynccontextmanager
async def serving(config: BrokerConfig, disk: Disk | None = None) -> AsyncIterator[Broker]:
    """A broker with these settings that serves until the block ends, and is then stopped cleanly."""
    async with assembled(config, real_environment(disk)) as broker, trio.open_nursery() as nursery:
        await nursery.start(broker.serve)
        try:
            yield broker
        finally:
            broker.stop()

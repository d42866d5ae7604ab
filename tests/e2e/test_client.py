"""The client of our own against a broker of our own: leaders, coordinators, retries, and from ordinary code."""

from pathlib import Path

import pytest
import trio

from barnabas.client import ClientSettings, ConnectionLostError, ResponseError, open_client
from barnabas.client.blocking import BlockingClient
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from tests.support.brokers import Client as Raw
from tests.support.brokers import running

LATEST = -1
IMPATIENT = ClientSettings(retries=0, connect_timeout_ms=2_000)


def list_offsets(topic: str) -> ListOffsetsRequest:
    requested = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[requested])]
    )


def address_of(broker: Raw) -> str:
    host, port = broker.broker.listeners[0].addresses[0]
    return f"{host}:{port}"


async def test_leaders_and_coordinators_are_found(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker:
        await broker.create("t")
        await broker.produce("t", 0, b"one", b"two")
        async with open_client(address_of(broker)) as client:
            response = await client.ask_leader("t", 0, list_offsets("t"))
            assert response.topics[0].partitions[0].offset == 2
            (broker_id,) = client.brokers
            assert await client.leader("t", 0) == broker_id
            answer = await client.ask_coordinator("g", HeartbeatRequest(group_id="g", member_id="nobody"))
            assert answer.error_code == 25
            cluster = await client.ask_controller(DescribeClusterRequest())
            assert cluster.cluster_id == client.cluster_id


async def test_a_topic_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker, open_client(address_of(broker), IMPATIENT) as client:
        with pytest.raises(ResponseError, match="UNKNOWN_TOPIC_OR_PARTITION") as caught:
            await client.leader("missing", 0)
        assert caught.value.is_retriable


async def test_nobody_there() -> None:
    with trio.socket.socket() as sock:
        await sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with pytest.raises(ConnectionLostError):
            async with open_client(f"127.0.0.1:{port}", IMPATIENT) as client:
                await client.ask(DescribeClusterRequest())


async def test_from_ordinary_code_in_a_thread(tmp_path: Path) -> None:
    async with running([tmp_path]) as broker:
        await broker.create("t", partitions=3)

        def ordinary() -> int:
            client = BlockingClient(address_of(broker))
            try:
                client.run(lambda inner: inner.refresh(["t"]))
                return len(client.run(lambda inner: inner.topic("t")).partitions)
            finally:
                client.close()

        assert await trio.to_thread.run_sync(ordinary) == 3

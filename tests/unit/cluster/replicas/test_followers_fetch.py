"""A follower that speaks bare Fetch to a broker that leads: the high watermark, acks=all, and the ISR follow it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, PartitionChanged
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.brokers import Client, running


async def replicate(client: Client, *, leader: int | None = None, isr: tuple[int, ...] = ()) -> PartitionInfo:
    """Make `t`, and have the metadata say that broker 2 has a replica too."""
    me = client.services.broker_id
    await client.create("t")
    other = me + 1
    info = PartitionInfo(me if leader is None else leader, (me, other), isr or (me, other), 3, 4)
    endpoints = {"PLAINTEXT": ("elsewhere", 9)}
    store: Any = client.services.metadata
    store.image = store.image.apply([BrokerRegistered(BrokerInfo(other, None, endpoints))])  # none is kept
    await store.change(lambda image: [PartitionChanged("t", 0, info)])
    return info


async def fetch(
    client: Client, offset: int, *, replica: int, version: int = 12, epoch: int = -1, last: int = -1
) -> Any:
    part = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch,
        last_fetched_epoch=last, log_start_offset=0,
    )  # fmt: skip
    topic_id = client.services.metadata.image.topics["t"].id
    topic = FetchRequest.FetchTopic(topic="t", partitions=[part])
    request = FetchRequest(replica_id=replica, max_bytes=1 << 20, session_epoch=-1, topics=[topic])
    if version >= 13:
        topic.topic, topic.topic_id = "", topic_id
    if version >= 15:
        request.replica_id = -1
        request.replica_state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=-1)
    response = await client.ask(request, version)
    return response, response.responses[0].partitions[0]


@pytest.mark.parametrize("version", [4, 11, 12, 17])
async def test_acks_all_and_consumers_wait_for_the_follower(version: int) -> None:
    answers: list[Any] = []

    async def produce() -> None:
        answers.append(await client.produce("t", 0, b"x"))

    async with running(["/d"], MemoryDisk()) as client, trio.open_nursery() as nursery:
        follower = (await replicate(client)).replicas[1]
        nursery.start_soon(produce)
        log = client.services.replicas.leader("t", 0).log
        with trio.fail_after(30):
            while log.log_end_offset < 1:
                await trio.lowlevel.checkpoint()
        assert await client.fetch("t", 0) == (0, [])
        _, data = await fetch(client, 0, replica=follower, version=version)
        assert (data.error_code, data.high_watermark, len(data.records) > 0) == (0, 0, True)
        assert (log.high_watermark, answers) == (0, [])
        await fetch(client, 1, replica=follower, version=version)
        assert log.high_watermark == 1
        assert await client.fetch("t", 0) == (0, [b"x"])
    assert [answer.error_code for answer in answers] == [0]


@pytest.mark.parametrize(
    ("replica", "epoch", "error"),
    [
        (7, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (7, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, 3, 0),
    ],
)
async def test_who_may_fetch_as_a_follower(replica: int, epoch: int, error: int) -> None:
    async with running(["/d"], MemoryDisk(), node_id="1") as client:
        await replicate(client)
        _, data = await fetch(client, 0, replica=replica, epoch=epoch)
        assert data.error_code == error


async def test_other_brokers_name_the_current_leader() -> None:
    async with running(["/d"], MemoryDisk(), node_id="1") as client:
        await replicate(client, leader=2)
        for version, leader in ((15, (-1, -1)), (16, (2, 3))):
            response, data = await fetch(client, 0, replica=1, version=version)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == leader
        assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
            (2, "elsewhere", 9)
        ]
        _, data = await fetch(client, 0, replica=-1, version=10)
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        _, data = await fetch(client, 0, replica=-1, version=11)  # followers serve consumers (KIP-392)
        assert data.error_code == 0
        records = ProduceRequest.PartitionProduceData(index=0, records=client.batch(b"x"))
        topics = [ProduceRequest.TopicProduceData(name="t", partition_data=[records])]
        response = await client.ask(ProduceRequest(acks=1, timeout_ms=100, topic_data=topics), 10)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 3)
        assert [node.host for node in response.node_endpoints] == ["elsewhere"]


async def test_min_insync_replicas_is_capped_by_the_replicas() -> None:
    async with running(["/d"], MemoryDisk()) as client:
        await client.create("t", min_insync_replicas="2")
        assert (await client.produce("t", 0, b"x")).error_code == 0
        assert await client.fetch("t", 0) == (0, [b"x"])
        info = PartitionInfo(
            client.services.broker_id, (client.services.broker_id, 9), (client.services.broker_id,), 1, 1
        )
        await client.services.metadata.change(lambda image: [PartitionChanged("t", 0, info)])
        assert (await client.produce("t", 0, b"y")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await client.produce("t", 0, b"y", acks=1)).error_code == 0
        assert await client.fetch("t", 0) == (0, [b"x"])  # not committed: too few have it


async def test_session_of_an_up_to_date_follower_returns_only_news() -> None:
    """Each fetch says of every partition of the session that the follower has what it said last (KIP-227)."""
    async with running(["/d"], MemoryDisk(), node_id="1") as client:
        await replicate(client)
        replica = client.services.replicas.leader("t", 0)
        session_id = epoch = 0

        async def ask(offset: int | None, *, last: int = -1, leader_epoch: int = 3) -> list[Any]:
            nonlocal session_id, epoch
            request = FetchRequest(
                replica_id=2, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, min_bytes=0
            )
            if offset is not None:
                part = FetchRequest.FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=1 << 20,
                    current_leader_epoch=leader_epoch, last_fetched_epoch=last, log_start_offset=0,
                )  # fmt: skip
                request.topics = [FetchRequest.FetchTopic(topic="t", partitions=[part])]
            response = await client.ask(request, 12)
            assert response.error_code == 0
            session_id, epoch = response.session_id, epoch + 1
            return [data for topic in response.responses for data in topic.partitions]

        def caught_up_ms() -> int:
            (state,) = replica.read_replicas(replica.log.log_end_offset)
            return state.caught_up_ms

        assert len(await ask(0)) == 1
        before = caught_up_ms()
        with trio.fail_after(30):
            while caught_up_ms() == before:
                assert await ask(None) == []
        await client.produce("t", 0, b"x", acks=1)
        (data,) = await ask(None)
        assert (len(data.records) > 0, data.high_watermark) == (True, 0)
        (data,) = await ask(1, last=3)  # it has the record, so it is committed, and that is news
        assert (len(data.records), data.high_watermark, replica.log.high_watermark) == (0, 1, 1)
        assert await ask(None) == []
        (data,) = await ask(1, last=4)
        assert data.error_code or data.diverging_epoch.epoch >= 0
        (data,) = await ask(1, last=3, leader_epoch=2)
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        (data,) = await ask(1, last=3)
        assert data.error_code == 0
        assert await ask(None) == []

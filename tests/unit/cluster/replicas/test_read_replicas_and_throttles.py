"""Consumers that read from followers in their rack (KIP-392), and replicas that may not take the whole network (KIP-73)."""

from __future__ import annotations

from typing import Any

from barnabas.client import Client
from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.cluster.metadata.image import BROKER, TOPIC
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from tests.support.programs import run_with
from tests.support.replicating import in_world, produce, replicating

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE = 78, 5


async def fetch(client: Client, broker_id: int, offset: int, *, rack: str = "", version: int = 11) -> Any:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=10_000 if rack else 0,
        min_bytes=1,
        max_bytes=1 << 20,
        rack_id=rack,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[part])],
    )
    response = await client.ask_broker(broker_id, request, version=version)
    return response.responses[0].partitions[0]


@run_with(in_world)
async def test_a_consumer_is_sent_to_the_follower_in_its_rack(world: World) -> None:
    async with replicating(world, replica_selector_class=RACK_AWARE) as cluster:
        cluster.racks = {1: "a", 2: "b", 3: "c"}
        await cluster.start(1, 2, 3)
        cluster.metadata.create("t", (1, 2, 3))
        async with cluster.client() as client:
            await produce(client, b"x")
            await cluster.until_equal()
            for rack, preferred in (("b", 2), ("c", 3), ("a", -1), ("d", -1)):
                data = await fetch(client, 1, 0, rack=rack)
                assert (data.error_code, data.preferred_read_replica) == (0, preferred)
                assert bool(data.records) is (preferred < 0)
                assert data.high_watermark == 1
            data = await fetch(client, 2, 0, rack="b")
            assert (data.error_code, data.preferred_read_replica) == (0, -1)
            assert data.records
            cluster.kill(2)
            cluster.metadata.elect("t", 0, 1, isr=(1, 3))
            await cluster.until(lambda: cluster.replica(1).leader_epoch == 1)
            data = await fetch(client, 1, 0, rack="b")
            assert data.preferred_read_replica == -1  # it is out of sync


@run_with(in_world)
async def test_the_leader_is_read_from_without_a_selector(world: World) -> None:
    async with replicating(world) as cluster:
        cluster.racks = {1: "a", 2: "b"}
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            await produce(client, b"x")
            data = await fetch(client, 1, 0, rack="b")
            assert (data.preferred_read_replica, bool(data.records)) == (-1, True)


def test_reassigned_follower_is_throttled_until_it_is_in_sync() -> None:
    for side in ("leader", "follower"):

        async def program(world: World, side: str = side) -> None:
            async with replicating(
                world, replica_fetch_max_bytes="10000", replica_fetch_backoff_ms="100"
            ) as cluster:
                await cluster.start(1, 2)
                cluster.metadata.create("t", (1,))
                async with cluster.client() as client:
                    for _ in range(20):
                        await produce(client, bytes(10_000))
                    rate = ("1" if side == "leader" else "2", f"{side}.replication.throttled.rate")
                    cluster.metadata.change(
                        ConfigChanged(TOPIC, "t", ((f"{side}.replication.throttled.replicas", "0:1,0:2"),)),
                        ConfigChanged(BROKER, rate[0], ((rate[1], "20000"),)),
                    )
                    await cluster.until(
                        lambda: bool(
                            getattr(cluster.replica(1).log.config, f"{side}_replication_throttled_replicas")
                        )
                    )
                    began_ms = cluster.machines[1].clock()
                    cluster.metadata.reassign("t", 0, (1, 2))
                    await cluster.until(lambda: cluster.metadata.partition("t").isr == (1, 2))
                    took_ms = cluster.machines[1].clock() - began_ms
                    assert 200_000 / 20_000 * 1000 * 0.7 < took_ms < 30_000
                    before = cluster.machines[1].clock()
                    for _ in range(10):
                        await produce(client, bytes(10_000))  # it is in sync now, and does not wait
                    assert cluster.machines[1].clock() - before < 1000

        in_world(program)


@run_with(in_world)
async def test_new_leader_has_no_end_offset_before_its_commit(world: World) -> None:
    async with replicating(world) as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            await produce(client, b"x")
            await cluster.until_equal()
            world.network.cut("broker-1", "broker-2")
            await produce(client, b"y", acks=1)
            cluster.metadata.elect("t", 0, 1)
            await cluster.until(lambda: cluster.replica(1).leader_epoch == 1)
            for timestamp, version, code in (
                (-1, 5, OFFSET_NOT_AVAILABLE), (-1, 4, LEADER_NOT_AVAILABLE), (2**60, 5, OFFSET_NOT_AVAILABLE),
                (-2, 5, 0), (0, 5, 0),
            ):  # fmt: skip
                query = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[query])
                request = ListOffsetsRequest(replica_id=-1, topics=[topic])
                response = await client.ask_broker(1, request, version=version)
                assert response.topics[0].partitions[0].error_code == code
            world.network.heal()
            await cluster.until_equal()
            response = await client.ask_broker(1, request, version=5)
            assert response.topics[0].partitions[0].error_code == 0

"""Leader epochs where a broker of a cluster comes back with less than consumers have read, and no other broker has it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.client import Client
from barnabas.records.batch import iter_batches
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import SESSION_S, ZooKeeperCluster, clustered

VALUES = [b"v"] * 5
SETTINGS = {"min_insync_replicas": "1", "unclean_leader_election_enable": "false"}


async def end_of(client: Client, epoch: int) -> tuple[int, int]:
    """Return the epoch and the offset that a consumer is told of an epoch that it has read."""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[asked])]

    def error_of(response: Any) -> int:
        return int(response.topics[0].partitions[0].error_code)

    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    response = await client.ask_leader("t", 0, request, version=3, error_of=error_of)
    (answer,) = response.topics[0].partitions
    return answer.leader_epoch, answer.end_offset


def cut_last_batch(disk: MemoryDisk) -> None:
    path = "/data/t-0/00000000000000000000.log"
    content = disk.read(path)
    *_, (at, _) = iter_batches(content)
    disk.replace(path, content[:at], sync=True)


async def end(cluster: ZooKeeperCluster, broker_id: int, how: str) -> None:
    """End a broker, and have its log lose the last batch."""
    if how == "stopped":
        await cluster.machines[broker_id].stop()
    else:
        cluster.machines[broker_id].kill()
    cut_last_batch(cluster.machines[broker_id].disk)


@pytest.mark.parametrize("pause_s", [0.0, 2 * SESSION_S])
@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize(("brokers", "is_controller"), [((1,), True), ((1, 2), True), ((1, 2), False)])
@run_with(in_world)
async def test_reader_beyond_the_only_replica_is_told_where_it_ends(
    world: World, brokers: tuple[int, ...], how: str, pause_s: float, is_controller: bool
) -> None:
    async with clustered(world, *brokers, **SETTINGS) as cluster, cluster.client() as client:
        await cluster.create(client, factor=1)
        leader = cluster.leader()
        if is_controller is not (cluster.controller_id == leader):
            before = cluster.controller_id
            await cluster.machines[before].stop()
            await cluster.until(lambda: cluster.controller_id not in (-1, before))
            await cluster.start(before)
            await cluster.until(lambda: cluster.leader() == leader)
        for _ in range(4):
            await produce(client, *VALUES)
        info = cluster.known(leader)
        assert info is not None
        old = info.leader_epoch
        assert await end_of(client, old) == (old, 20)
        await end(cluster, leader, how)
        await trio.sleep(pause_s)
        await cluster.start(leader)
        await cluster.until(lambda: cluster.leader() == leader)
        assert await end_of(client, old) == (old, 15)
        assert await produce(client, *VALUES, *VALUES) == 15
        assert await end_of(client, old) == (old, 15)


@pytest.mark.parametrize("how", ["killed", "stopped"])
@run_with(in_world)
async def test_leader_and_controller_back_at_once_follows_its_follower(world: World, how: str) -> None:
    """Whatever its mark of a clean shutdown says, its log may have lost what is acknowledged."""
    async with clustered(world, 1, 2, **SETTINGS) as cluster, cluster.client() as client:
        await cluster.create(client, factor=2)
        if cluster.leader() != cluster.controller_id:
            await cluster.machines[cluster.leader()].stop()
            await cluster.until(lambda: cluster.leader() == cluster.controller_id)
            await cluster.start(*({1, 2} - cluster.live()))
            await cluster.until(lambda: cluster.isr() == {1, 2})
        leader = cluster.leader()
        for _ in range(4):
            await produce(client, *VALUES)
        await end(cluster, leader, how)
        await cluster.start(leader)
        assert await produce(client, *VALUES) == 20
        await cluster.until(lambda: cluster.isr() == {1, 2})
        assert len(await consume(client)) == 25
        await cluster.until_equal()

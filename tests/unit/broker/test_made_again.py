"""A topic that is made again in a cluster right after its deletion was answered, while its znodes are still there."""

from __future__ import annotations

import json

import trio

from barnabas.client import Client
from barnabas.testing.simulation.broker import quiet_logs
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import ZooKeeperCluster, clustered

TIMES = 8


async def made(
    cluster: ZooKeeperCluster,
    client: Client,
    name: str,
    *,
    factor: int = 3,
    retention_ms: str = "-1",
    timeout_ms: int = 30_000,
) -> int:
    config = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value=retention_ms)
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=3, replication_factor=factor, configs=[config]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    response = await client.ask_broker(cluster.controller_id, request, version=5)
    return response.topics[0].error_code


async def deleted(cluster: ZooKeeperCluster, client: Client, name: str, timeout_ms: int = 30_000) -> int:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)
    response = await client.ask_broker(cluster.controller_id, request, version=5)
    return response.responses[0].error_code


def settings(cluster: ZooKeeperCluster, name: str) -> dict[str, str]:
    """The settings of a topic in ZooKeeper."""
    return dict(json.loads(cluster.zookeeper.dump()[f"/config/topics/{name}"])["config"])


@run_with(in_world)
async def test_who_saw_the_end_of_a_topic_can_make_it_again(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        for number in range(TIMES):
            setting = str(1_000_000 + number)
            assert await made(cluster, client, "t", retention_ms=setting) == 0, number
            client.forget("t")
            await produce(client, b"%d" % number)
            assert await consume(client) == [b"%d" % number]
            assert settings(cluster, "t") == {"retention.ms": setting}
            assert await deleted(cluster, client, "t") == 0


@run_with(in_world)
async def test_others_wait_for_no_deletion_and_one_that_lasts_is_told(world: World) -> None:
    """A replica on a broker that is gone keeps a deletion from its end; Kafka answers then that the topic exists."""
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        assert await made(cluster, client, "t") == 0
        gone = next(id_ for id_ in (1, 2, 3) if id_ != cluster.controller_id)
        with quiet_logs():
            cluster.machines[gone].kill()
            await cluster.until(lambda: gone not in cluster.live())
        assert await deleted(cluster, client, "t") == 0
        began = trio.current_time()
        answers: list[int] = []

        async def make() -> None:
            answers.append(await made(cluster, client, "t", factor=2))

        async with cluster.client() as other, trio.open_nursery() as nursery:
            nursery.start_soon(make)
            await trio.sleep(0.5)
            assert (await made(cluster, other, "u", factor=2), answers) == (0, [])
            assert trio.current_time() - began < 2
        assert answers == [ErrorCode.TOPIC_ALREADY_EXISTS]
        assert 4 < trio.current_time() - began < 10
        late = await made(cluster, client, "t", factor=2, timeout_ms=300)
        assert late == ErrorCode.REQUEST_TIMED_OUT
        await cluster.start(gone)
        assert await made(cluster, client, "t") == 0

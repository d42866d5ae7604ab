"""A broker of a cluster between its start and the controller's first word: it denies no topic, and answers no client."""

from __future__ import annotations

import trio

from barnabas.client import ClientError, ClientSettings, Endpoint
from barnabas.client.connection import open_connection
from barnabas.testing.simulation.broker import PORT, quiet_logs
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.programs import run_with
from tests.support.replicating import in_world
from tests.support.zookeeper_cluster import ZooKeeperCluster, clustered


async def described(cluster: ZooKeeperCluster, broker_id: int) -> list[tuple[int, str | None]]:
    """Errors and names of the topics that one broker describes. Raises ClientError."""
    host = cluster.world.network.host("client")

    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return await host.dial(endpoint.host, endpoint.port)

    endpoint = Endpoint(f"broker-{broker_id}", PORT)
    async with open_connection(endpoint, ClientSettings(), dial=dial) as connection:
        topic = MetadataRequest.MetadataRequestTopic(name="t")
        answer = await connection.ask(MetadataRequest(topics=[topic]), version=9)
    return [(topic.error_code, topic.name) for topic in answer.topics]


@run_with(in_world)
async def test_first_answer_of_a_returning_broker_knows_the_topics(world: World) -> None:
    """After a crash it waits for others to take over first, and clients that knew it ask in the meantime."""
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        killed = cluster.leader()
        refused = 0
        with quiet_logs():
            cluster.machines[killed].kill()
            async with trio.open_nursery() as starting:
                starting.start_soon(cluster.start, killed)
                while True:
                    try:
                        first = await described(cluster, killed)
                        break
                    except ClientError:
                        refused += 1
                        await trio.sleep(0.1)
        assert refused
        assert first == [(0, "t")]

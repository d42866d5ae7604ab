"""A controller that does not know that its session has ended: no request to it, and none of its own, has any effect.

What administrators have asked it (to make, grow or delete a topic) may be done once it is connected again, as by Kafka's.
"""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client import ClientError, ClientSettings, Endpoint
from barnabas.client.connection import open_connection
from barnabas.cluster.zookeeper import znodes
from barnabas.testing.simulation.broker import PORT, quiet_logs
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.generated.alter_partition import AlterPartitionRequest
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import ZooKeeperCluster, clustered

TIMEOUT_MS = 1_000
ANSWER_S = 3.0
NEW_EPOCH = 100
"""Above all leader epochs of the partition."""


async def ask(cluster: ZooKeeperCluster, broker_id: int, request: Any, version: int) -> Any:
    """Ask one broker; None if there is no answer."""
    host = cluster.world.network.host("client")

    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return await host.dial(endpoint.host, endpoint.port)

    with trio.move_on_after(ANSWER_S):
        try:
            endpoint = Endpoint(f"broker-{broker_id}", PORT)
            async with open_connection(endpoint, ClientSettings(), dial=dial) as connection:
                return await connection.ask(request, version=version)
        except ClientError:
            return None
    return None


def what_is_kept(cluster: ZooKeeperCluster) -> dict[str, bytes]:
    """Topics, states and orders in ZooKeeper, and the next producer ids."""
    places = (znodes.TOPICS, znodes.DELETE_TOPICS, znodes.PRODUCER_IDS, "/admin")
    return {path: data for path, data in cluster.zookeeper.dump().items() if path.startswith(places)}


def asked_of_a_controller(cluster: ZooKeeperCluster, leader: int) -> list[tuple[Any, int]]:
    """A request of each kind that only the controller carries out, with its version."""
    info = cluster.known(leader)
    broker = cluster.machines[leader].broker
    assert info is not None
    assert broker is not None
    others = [replica for replica in info.replicas if replica != leader]
    image = broker.services.metadata.image
    return [
        (
            CreateTopicsRequest(
                topics=[CreateTopicsRequest.CreatableTopic(name="z", num_partitions=1, replication_factor=1)],
                timeout_ms=TIMEOUT_MS,
            ),
            5,
        ),
        (DeleteTopicsRequest(topic_names=["d"], timeout_ms=TIMEOUT_MS), 4),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="p", count=9, assignments=None)],
                timeout_ms=TIMEOUT_MS,
            ),
            2,
        ),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS), 2),
        (
            AlterPartitionReassignmentsRequest(
                timeout_ms=TIMEOUT_MS,
                topics=[
                    AlterPartitionReassignmentsRequest.ReassignableTopic(
                        name="t",
                        partitions=[
                            AlterPartitionReassignmentsRequest.ReassignablePartition(
                                partition_index=0, replicas=others
                            )
                        ],
                    )
                ],
            ),
            0,
        ),
        (
            AlterPartitionRequest(
                broker_id=leader,
                broker_epoch=image.broker_epoch(leader),
                topics=[
                    AlterPartitionRequest.TopicData(
                        topic_id=image.topics["t"].id,
                        partitions=[
                            AlterPartitionRequest.PartitionData(
                                partition_index=0, leader_epoch=info.leader_epoch, new_isr=[leader],
                                partition_epoch=info.partition_epoch,
                            )
                        ],
                    )
                ],
            ),
            2,
        ),
        (AllocateProducerIdsRequest(broker_id=leader, broker_epoch=image.broker_epoch(leader)), 0),
    ]  # fmt: skip


def sent_by_a_controller(
    zombie: int, epoch: int, topic_id: bytes, broker_epoch: int, replicas: list[int]
) -> list[tuple[Any, int]]:
    """A request of each kind that a controller sends to brokers: it leads, others do not, and their logs go."""
    state = {"partition_index": 0, "controller_epoch": epoch, "leader": zombie, "leader_epoch": NEW_EPOCH}
    common = {"controller_id": zombie, "controller_epoch": epoch, "broker_epoch": broker_epoch}
    led = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        **state, isr=[zombie], partition_epoch=NEW_EPOCH, replicas=replicas
    )
    partition = UpdateMetadataRequest.UpdateMetadataPartitionState(
        **state, isr=[zombie], zk_version=NEW_EPOCH, replicas=replicas
    )
    stopped = StopReplicaRequest.StopReplicaPartitionState(
        partition_index=0, leader_epoch=NEW_EPOCH, delete_partition=True
    )
    return [
        (
            LeaderAndIsrRequest(
                **common,
                topic_states=[
                    LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name="t", topic_id=topic_id, partition_states=[led]
                    )
                ],
            ),
            5,
        ),
        (
            UpdateMetadataRequest(
                **common,
                topic_states=[
                    UpdateMetadataRequest.UpdateMetadataTopicState(
                        topic_name="t", topic_id=topic_id, partition_states=[partition]
                    )
                ],
            ),
            7,
        ),
        (
            StopReplicaRequest(
                **common,
                topic_states=[StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[stopped])],
            ),
            3,
        ),
    ]  # fmt: skip


@run_with(in_world)
async def test_controller_unaware_of_its_ended_session_is_harmless(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client, partitions=3)
        await cluster.create(client, "d")
        await cluster.create(client, "p")
        await produce(client, b"a")
        zombie = cluster.controller_id
        broker, session = cluster.machines[zombie].broker, cluster.machines[zombie].session
        assert broker is not None
        assert session is not None
        epoch = broker.services.controller.epoch
        with quiet_logs():
            session.disconnect()
            await cluster.until(lambda: cluster.controller_id not in (-1, zombie))
            await cluster.until(lambda: all(zombie not in cluster.isr("t", index) for index in range(3)))
            assert broker.services.controller.is_active, "it knows"
            leader = cluster.leader()
            await cluster.until(lambda: (info := cluster.known(leader)) and info.leader == leader)
            kept = what_is_kept(cluster)

            for request, version in asked_of_a_controller(cluster, leader):
                await ask(cluster, zombie, request, version)
                assert what_is_kept(cluster) == kept, request

            for other in {1, 2, 3} - {zombie}:
                machine = cluster.machines[other].broker
                before = cluster.known(other)
                assert machine is not None
                assert before is not None
                image = machine.services.metadata.image
                for request, version in sent_by_a_controller(
                    zombie, epoch, image.topics["t"].id, image.broker_epoch(other), list(before.replicas)
                ):
                    answer = await ask(cluster, other, request, version)
                    assert answer is not None, request
                    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH, request
                    assert cluster.known(other) == before
            client.forget()
            await produce(client, b"b")

            session.connect_soon()
            await cluster.until(lambda: not broker.services.controller.is_active)
            await cluster.until(lambda: all(cluster.isr("t", index) == {1, 2, 3} for index in range(3)))
        assert await consume(client) == [b"a", b"b"]
        await cluster.until_equal()

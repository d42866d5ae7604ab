"""A cluster with a lost or another topic id in ZooKeeper: no log is removed, and no record is lost.

Tools and controllers before Kafka 2.8 write a topic's znode without its id; Apache Kafka 3.9 then makes another one,
and its brokers refuse its LeaderAndIsr with INCONSISTENT_TOPIC_ID: their logs stay.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from barnabas.client import Client, ClientError
from barnabas.cluster.zookeeper import znodes
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import ZooKeeperCluster, clustered

OTHER_ID = bytes(range(16))
ANY_VERSION = -1


def stored(cluster: ZooKeeperCluster, topic: str = "t") -> znodes.TopicAssignment:
    return znodes.decode_topic(topic, cluster.zookeeper.dump()[znodes.topic_path(topic)])


def write(cluster: ZooKeeperCluster, topic: znodes.TopicAssignment, *, version: int = 3) -> None:
    """Write the znode of t as a foreign tool does."""
    data = znodes.encode_topic(topic, version)
    cluster.zookeeper.tree.set_data(znodes.topic_path("t"), data, ANY_VERSION)


def lose_id(cluster: ZooKeeperCluster) -> None:
    """Do as kafka-topics.sh --zookeeper of Kafka 0.8 to 2.7 does."""
    write(cluster, replace(stored(cluster), topic_id=None), version=1)


def make_again(cluster: ZooKeeperCluster) -> None:
    """Make another topic t, with replicas on all brokers, be they there or not."""
    topic = znodes.TopicAssignment({0: znodes.ReplicaAssignment((1, 2, 3))}, OTHER_ID)
    data = znodes.encode_topic(topic)
    cluster.zookeeper.tree.create(znodes.topic_path("t"), data, 0, sequence=False, parents=False)


async def change_controller(cluster: ZooKeeperCluster) -> None:
    epoch = cluster.zookeeper.dump()["/controller_epoch"]
    cluster.zookeeper.tree.delete("/controller", ANY_VERSION)
    await cluster.until(lambda: cluster.zookeeper.dump()["/controller_epoch"] != epoch)


def directories(cluster: ZooKeeperCluster, broker_id: int) -> list[str]:
    """The directories of logs of t on a broker's disk, the marks of the renamed ones alone."""
    names = [entry.name for entry in cluster.machines[broker_id].disk.list("/data")]
    return sorted(name.rpartition("-")[2] for name in names if name.startswith("t-"))


async def assert_served(cluster: ZooKeeperCluster, client: Client, *values: bytes) -> None:
    client.forget()
    with trio.fail_after(60):
        while True:
            try:
                assert await consume(client) == list(values)
                break
            except ClientError:
                await trio.sleep(0.1)
                client.forget()


def test_records_survive_an_old_tool_and_a_controller_change(caplog) -> None:
    async def program(world: World) -> None:
        async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
            await cluster.create(client)
            await produce(client, b"kept")
            topic_id = stored(cluster).topic_id
            cluster.zookeeper.tree.delete("/controller", ANY_VERSION)
            lose_id(cluster)  # before the next one has read it
            await cluster.until(lambda: stored(cluster).topic_id is not None)
            assert stored(cluster).topic_id == topic_id
            await change_controller(cluster)
            await trio.sleep(5)
            await produce(client, b"new")
            await assert_served(cluster, client, b"kept", b"new")
            assert [directories(cluster, broker_id) for broker_id in (1, 2, 3)] == [["0"]] * 3

    in_world(program)
    assert "topic t had lost its topic_id in ZooKeeper" in caplog.text


@pytest.mark.parametrize("first", [1, 2, 3])
@run_with(in_world)
async def test_records_survive_brokers_returning_without_topic_ids(world: World, first: int) -> None:
    """The first one is the controller; with one replica, two of the three know nothing of the topic."""
    async with clustered(world, 1, 2, 3, min_insync_replicas="1") as cluster, cluster.client() as client:
        await cluster.create(client, factor=1)
        await produce(client, b"kept")
        topic_id = stored(cluster).topic_id
        for machine in cluster.machines.values():
            await machine.stop()
        lose_id(cluster)
        await cluster.start(first)
        await cluster.until(lambda: cluster.controller_id == first)
        await cluster.start(*{1, 2, 3} - {first})
        await cluster.until(lambda: stored(cluster).topic_id == topic_id)
        client.forget()
        await produce(client, b"new")
        assert await consume(client) == [b"kept", b"new"]


async def with_another_id(cluster: ZooKeeperCluster, client: Client, *, restart: bool) -> bytes:
    """Have a topic with one record, and a controller that believes that it has another id; return its own."""
    await cluster.create(client)
    await produce(client, b"kept")
    topic_id = stored(cluster).topic_id
    assert topic_id is not None
    if restart:
        for machine in cluster.machines.values():
            await machine.stop()
    else:
        cluster.zookeeper.tree.delete("/controller", ANY_VERSION)
    write(cluster, replace(stored(cluster), topic_id=OTHER_ID))
    if restart:
        await cluster.start(1, 2, 3)

    def is_known() -> bool:
        brokers = [machine.broker for machine in cluster.machines.values()]
        images = [broker.services.metadata.image for broker in brokers if broker is not None]
        return all("t" in image.topics and image.topics["t"].id == OTHER_ID for image in images)

    await cluster.until(is_known)
    await trio.sleep(2)
    return topic_id


@pytest.mark.parametrize("restart", [False, True])
@run_with(in_world)
async def test_logs_under_another_id_stay_and_are_served_under_theirs(world: World, restart, caplog) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        topic_id = await with_another_id(cluster, client, restart=restart)
        client.forget()
        with pytest.raises(ClientError):
            await produce(client, b"refused", timeout_ms=1_000)
        in_sync = cluster.isr()
        assert in_sync == {1, 2, 3} or restart
        assert all(directories(cluster, broker_id) == ["0"] for broker_id in in_sync)
        assert "the topic was not deleted" in caplog.text
        cluster.zookeeper.tree.delete("/controller", ANY_VERSION)  # the way back that the log names
        write(cluster, replace(stored(cluster), topic_id=topic_id))
        await assert_served(cluster, client, b"kept")
        await cluster.until(lambda: cluster.isr() == {1, 2, 3})
        await produce(client, b"new")
        await cluster.until_equal()
        assert all(directories(cluster, broker_id) == ["0"] for broker_id in in_sync)


@run_with(in_world)
async def test_deleting_a_topic_under_another_id_deletes_no_other_log(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await with_another_id(cluster, client, restart=False)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000)
        await client.ask_controller(request, version=5)
        await cluster.until(lambda: znodes.topic_path("t") not in cluster.zookeeper.dump())
        assert [directories(cluster, broker_id) for broker_id in (1, 2, 3)] == [["stray"]] * 3
        await trio.sleep(300)
        assert [directories(cluster, broker_id) for broker_id in (1, 2, 3)] == [["stray"]] * 3


@run_with(in_world)
async def test_deleted_topic_is_deleted_everywhere_and_for_good(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        await produce(client, b"gone")
        await client.ask_controller(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), version=5)
        await cluster.until(lambda: znodes.topic_path("t") not in cluster.zookeeper.dump())
        assert [directories(cluster, broker_id) for broker_id in (1, 2, 3)] == [["delete"]] * 3
        await cluster.until(lambda: directories(cluster, 1) == [], 120)


def test_topic_recreated_while_a_broker_was_down_is_not_mixed(caplog) -> None:
    async def program(world: World) -> None:
        async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
            await cluster.create(client)
            await produce(client, b"old", b"old too")
            await cluster.until_equal()
            cluster.machines[3].kill()
            await cluster.until(lambda: cluster.isr() == {1, 2})
            write(cluster, replace(stored(cluster), partitions={0: znodes.ReplicaAssignment((1, 2))}))
            await change_controller(
                cluster
            )  # reads that broker 3 has no replica any more, and waits for none
            client.forget()
            await client.ask_controller(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), version=5)
            await cluster.until(lambda: znodes.topic_path("t") not in cluster.zookeeper.dump())
            make_again(cluster)
            await cluster.until(lambda: cluster.isr() == {1, 2})
            client.forget()
            await produce(client, b"new")
            await cluster.start(3)
            await cluster.until(lambda: cluster.isr() == {1, 2, 3})
            await cluster.until_equal()
            assert await consume(client) == [b"new"]
            assert directories(cluster, 3) == ["0", "stray"]

    in_world(program)
    assert "nothing removes it" in caplog.text


@run_with(in_world)
async def test_topic_recreated_by_hand_starts_empty_and_keeps_old_logs(world: World) -> None:
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        await produce(client, b"old")
        tree = cluster.zookeeper.tree
        path = znodes.topic_path("t")
        for node in sorted((node for node in tree.nodes if node.startswith(path)), reverse=True):
            tree.delete(node, ANY_VERSION)
        await trio.sleep(1)
        make_again(cluster)
        await cluster.until(lambda: cluster.isr() == {1, 2, 3})
        client.forget()
        await produce(client, b"new")
        await cluster.until_equal()
        assert await consume(client) == [b"new"]
        for broker_id in (1, 2, 3):
            assert [path for path in directories(cluster, broker_id) if path != "0"] == ["stray"]


@run_with(in_world)
async def test_unassigned_replica_is_deleted_only_by_the_controller(world: World) -> None:
    """An assignment written into a znode by hand asks no broker to delete a log; Apache Kafka keeps it too."""
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        await produce(client, b"kept")
        assigned = stored(cluster)
        write(cluster, replace(assigned, partitions={0: znodes.ReplicaAssignment((7, 8, 9))}))
        await change_controller(cluster)
        await trio.sleep(10)
        assert [directories(cluster, broker_id) for broker_id in (1, 2, 3)] == [["0"]] * 3
        write(cluster, assigned)
        await change_controller(cluster)
        await assert_served(cluster, client, b"kept")

"""Whole brokers that follow each other, in simulated worlds: what reaches followers, and what is left after failures."""

from __future__ import annotations

from random import Random

import pytest
import trio

from barnabas.client import ClientError
from barnabas.cluster.metadata.changes import ConfigChanged, TopicCreated
from barnabas.cluster.metadata.image import NO_TOPIC_ID, TOPIC
from barnabas.cluster.replication.roles import Role
from barnabas.errors import StorageError
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from tests.support.effort import examples
from tests.support.programs import run_with
from tests.support.replicating import ReplicatingCluster, consume, in_world, produce, replicating


@run_with(in_world)
async def test_dead_leaders_own_records_are_truncated_as_follower(world: World) -> None:
    async with replicating(world) as cluster:
        await cluster.start(1, 2, 3)
        cluster.metadata.create("t", (1, 2, 3))
        async with cluster.client() as client:
            await produce(client, b"kept")
            await cluster.until_equal()
            world.network.cut("broker-1", "broker-2")
            world.network.cut("broker-1", "broker-3")
            await produce(client, b"lost", b"lost too", acks=1)
            cluster.kill(1)
            cluster.metadata.broker_failed(1)
            world.network.heal()
            assert cluster.metadata.partition("t").leader == 2
            await produce(client, b"new")
            await cluster.start(1)
            await cluster.until(lambda: cluster.metadata.partition("t").isr == (1, 2, 3))
            await cluster.until_equal()
            assert await consume(client) == [b"kept", b"new"]
            cluster.metadata.elect("t", 0, 1)
            await produce(client, b"newest")
            await cluster.until_equal()
            assert await consume(client) == [b"kept", b"new", b"newest"]


@run_with(in_world)
async def test_records_are_deleted_on_followers_before_the_answer(world: World) -> None:
    async with replicating(world) as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            await produce(client, *[b"x"] * 10)
            await produce(client, *[b"y"] * 10)
            partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=15)
            topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
            response = await client.ask_leader(
                "t", 0, DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
            )
            (answer,) = response.topics[0].partitions
            assert (answer.error_code, answer.low_watermark) == (0, 15)
            assert cluster.replica(2).log.log_start_offset == 15
            await cluster.start(3)
            cluster.metadata.create("u", (1, 2), topic_id=b"another topic id")  # others go on
            await produce(client, b"z", topic="u")


@run_with(in_world)
async def test_a_new_replica_begins_where_the_leader_does(world: World) -> None:
    async with replicating(world) as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1,))
        async with cluster.client() as client:
            await produce(client, *[b"x"] * 10)
            await produce(client, *[b"y"] * 10)
            cluster.replica(1).log.delete_records_before(15)
            cluster.metadata.reassign("t", 0, (1, 2))
            await cluster.until(lambda: cluster.metadata.partition("t").isr == (1, 2))
            await cluster.until(lambda: cluster.replica(2).log.log_start_offset == 15)
            await produce(client, b"z")
            await cluster.until_equal()


SEEDS = range(examples(2))


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_survive_random_broker_failures(seed: int) -> None:
    async def program(world: World) -> None:
        random = Random(seed)
        async with replicating(world, min_insync_replicas="2") as cluster, trio.open_nursery() as nursery:
            await cluster.start(1, 2, 3)
            cluster.metadata.create("t", (1, 2, 3), (2, 3, 1))
            history = History(cluster, random)
            for index in (0, 1):
                nursery.start_soon(history.produce, index)
            for _ in range(3):
                await history.disturb()
            history.is_over = True
            with trio.fail_after(120):
                await history.ended()
            nursery.cancel_scope.cancel()
            await history.check()

    in_world(program, seed)


class History:
    """A producer for each partition, and what happens to brokers; at most one of them is away at a time."""

    def __init__(self, cluster: ReplicatingCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.is_over = False
        self.acknowledged: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
        self._left = 2

    async def produce(self, index: int) -> None:
        """Produce single records, and remember those that were acknowledged."""
        async with self.cluster.client(request_timeout_ms=3_000, retries=0) as client:
            number = 0
            while not self.is_over:
                number += 1
                value = b"%d/%d" % (index, number)
                try:
                    offset = await produce(client, value, index=index, timeout_ms=2_000)
                except ClientError:
                    client.forget()
                    await trio.sleep(0.05)
                else:
                    assert self.acknowledged[index].setdefault(offset, value) == value, (
                        "one offset, two records"
                    )
                await trio.sleep(self.random.uniform(0, 0.02))
        self._left -= 1

    async def ended(self) -> None:
        """Wait until the producers have ended."""
        while self._left:
            await trio.sleep(0.1)

    async def disturb(self) -> None:
        """Let something happen, and wait until all replicas are in sync again."""
        random, cluster = self.random, self.cluster
        metadata = cluster.metadata
        await trio.sleep(random.uniform(0, 0.5))
        kind = random.choice(("kill", "power", "elect", "cut", "lag"))
        broker_id = random.choice((1, 2, 3))
        print(f"{trio.current_time():.3f} {kind} {broker_id}")
        if kind in ("kill", "power"):
            cluster.kill(broker_id, power=random if kind == "power" else None)
            await trio.sleep(random.uniform(0, 0.5))
            metadata.broker_failed(broker_id)
            await trio.sleep(random.uniform(0, 3))
            await cluster.start(broker_id)
            metadata.broker_came(broker_id)
        elif kind == "elect":
            for _ in range(random.randrange(1, 4)):
                index = random.randrange(2)
                metadata.elect("t", index, random.choice(metadata.partition("t", index).isr))
                await trio.sleep(random.choice((0, 0.05)))
        elif kind == "cut":
            cluster.world.network.cut(
                f"broker-{broker_id}", f"broker-{broker_id % 3 + 1}", both_ways=random.random() < 0.5
            )
            await trio.sleep(random.uniform(0, 10))
            cluster.world.network.heal()
        else:
            view = metadata.views[broker_id]
            view.hold()
            for index in (0, 1):
                metadata.elect("t", index, random.choice(metadata.partition("t", index).isr))
            await trio.sleep(random.uniform(0, 2))
            view.hold(is_held=False)
        await cluster.until(
            lambda: all(len(metadata.partition("t", index).isr) == 3 for index in (0, 1)), seconds=120
        )

    async def check(self) -> None:
        """See that all replicas are equal, and have what was acknowledged where it was."""
        for index in (0, 1):
            await self.cluster.until_equal("t", index)
            async with self.cluster.client() as client:
                values = await consume(client, index=index)
            for offset, value in self.acknowledged[index].items():
                assert values[offset] == value, (index, offset, value)
            assert len(self.acknowledged[index]) > 10


@run_with(in_world)
async def test_new_partition_does_not_wait_for_a_pending_fetch(world: World) -> None:
    async with replicating(world, replica_fetch_wait_max_ms="4000") as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            await produce(client, b"x")
            await cluster.until_equal()
            await trio.sleep(0.5)  # the follower's fetch waits now
            before = trio.current_time()
            for n in range(3):
                cluster.metadata.create(f"u{n}", (1, 2), topic_id=b"another topic %02d" % n)
                await produce(client, b"y", topic=f"u{n}")
                await produce(client, b"z", topic=f"u{n}")
            assert trio.current_time() - before < 1
            for n in range(3):
                await produce(client, b"y", topic=f"u{n}")
            assert trio.current_time() - before < 1.5
            await trio.sleep(10)
            before = trio.current_time()
            await produce(client, b"x")
            for n in range(3):
                await produce(client, b"y", topic=f"u{n}")
            assert trio.current_time() - before < 0.1


@pytest.mark.parametrize("is_new", [False, True])
@run_with(in_world)
async def test_replica_that_may_be_in_a_failed_dir_is_not_created(world: World, is_new: bool) -> None:
    async with replicating(world, log_dirs="/data,/other") as cluster:
        await cluster.start(1, 2)
        broker = cluster.machines[2].broker
        assert broker is not None
        logs, replicas = broker.services.logs, broker.services.replicas
        logs.take_offline("/other", StorageError("/other", OSError(5, "broken")))
        if is_new:  # as the controller says in LeaderAndIsr
            replicas.begin_empty("t", 0)
        cluster.metadata.create("t", (1, 2))
        await cluster.until(lambda: "t" in broker.services.metadata.image.topics)
        assert replicas.role("t", 0) is (Role.FOLLOWER if is_new else Role.OFFLINE)


@run_with(in_world)
async def test_topic_without_an_id_is_replicated_by_name(world: World) -> None:
    async with replicating(world) as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2), topic_id=NO_TOPIC_ID)
        async with cluster.client() as client:
            await produce(client, b"x")
            assert cluster.replica(2).log.topic_id is None
            topic = cluster.metadata.image.topics["t"]
            cluster.metadata.change(TopicCreated(topic._replace(id=b"0123456789abcdef")))
            await produce(client, b"y")
            await cluster.until_equal()
            assert await consume(client) == [b"x", b"y"]


@run_with(in_world)
async def test_follower_syncs_before_it_acknowledges_if_configured(world: World) -> None:
    async with replicating(world, log_flush_interval_messages="1") as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            for n in range(10):
                await produce(client, b"%d" % n)
            for broker_id in (1, 2):
                cluster.kill(broker_id, power=Random(broker_id))
                cluster.metadata.unregister(broker_id)
            await cluster.start(1, 2)
            cluster.metadata.elect("t", 0, 2, isr=(1, 2))
            await cluster.until_equal()
            assert await consume(client) == [b"%d" % n for n in range(10)]


@run_with(in_world)
async def test_records_of_killed_brokers_are_synced_before_the_commit(world: World) -> None:
    """A retry, a fetch and a read acknowledge records that a kill left unsynced: they must last from then on."""
    async with replicating(world) as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            for n in range(10):
                await produce(client, b"%d" % n)
            for power, leader in ((None, 2), (Random(3), 1)):
                for broker_id in (1, 2):
                    cluster.kill(broker_id, power=power)
                    cluster.metadata.unregister(broker_id)
                cluster.metadata.change(ConfigChanged(TOPIC, "t", (("flush.messages", "1"),)))
                cluster.metadata.elect("t", 0, leader, isr=(1, 2))
                await cluster.start(1, 2)
                await cluster.until_equal()
                assert await consume(client) == [b"%d" % n for n in range(10)]


@run_with(in_world)
async def test_a_follower_is_moved_to_another_log_dir_while_it_follows(world: World) -> None:
    async with replicating(world, log_dirs="/data,/other") as cluster:
        await cluster.start(1, 2)
        cluster.metadata.create("t", (1, 2))
        async with cluster.client() as client:
            for n in range(10):
                await produce(client, b"%d" % n)
            broker = cluster.machines[2].broker
            assert broker is not None
            before = cluster.replica(2).log.log_dir
            broker.services.log_mover.start("t", 0, "/other" if before == "/data" else "/data")
            for n in range(10):
                await produce(client, b"%d" % n)
            await cluster.until(lambda: cluster.replica(2).log.log_dir != before)
            await produce(client, b"after")
            await cluster.until_equal()
            assert len(await consume(client)) == 21

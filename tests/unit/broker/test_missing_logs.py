"""A log that is gone at a start: its partition is offline and named, as after a lost log dir."""

from __future__ import annotations

import pytest
import trio

from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.world import World
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.brokers import running
from tests.support.programs import run_with
from tests.support.replicating import consume, in_world, produce
from tests.support.zookeeper_cluster import clustered

OFFLINE = (ErrorCode.KAFKA_STORAGE_ERROR, [])


def copy_tree(disk: MemoryDisk, source: str, target: str) -> None:
    disk.make_dirs(target)
    for entry in disk.list(source):
        disk.replace(f"{target}/{entry.name}", disk.read(f"{source}/{entry.name}"), sync=True)


def remove_directory(disk: MemoryDisk, log_dir: str = "/a", name: str = "t-0") -> None:
    disk.remove_tree(f"{log_dir}/{name}")


def remove_segments(disk: MemoryDisk, log_dir: str = "/a", name: str = "t-0") -> None:
    for entry in disk.list(f"{log_dir}/{name}"):
        if entry.name.endswith(".log"):
            disk.remove(f"{log_dir}/{name}/{entry.name}")


LOSSES = pytest.mark.parametrize("lose", [remove_directory, remove_segments])


async def written(*, kill: bool = False) -> MemoryDisk:
    """A disk with one record in t-0, and one in u-0."""
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        for topic in "tu":
            await client.create(topic)
            await client.produce(topic, 0, b"kept")
        if kill:
            while client.services.logs.checkpoints.is_outdated:  # for a second at most
                await trio.sleep(0.05)
            return disk.fork()
    return disk


async def give_up(client) -> None:
    topic = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
    await client.ask(ElectLeadersRequest(election_type=1, topic_partitions=[topic], timeout_ms=1_000), 2)


def strays(disk: MemoryDisk) -> list[str]:
    return [entry.name for entry in disk.list("/a") if entry.name.endswith("-stray")]


@pytest.mark.parametrize("kill", [False, True])
@LOSSES
async def test_partition_stays_offline_over_starts_and_the_log_says_so(lose, kill, caplog):
    disk = await written(kill=kill)
    lose(disk)
    for _ in range(3):
        caplog.clear()
        async with running(["/a"], disk) as client:
            assert await client.fetch("t", 0) == OFFLINE
            assert (await client.produce("t", 0, b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.fetch("u", 0) == (0, [b"kept"])
        (line,) = [record for record in caplog.records if "t-0 is offline" in record.getMessage()]
        assert line.levelname == "ERROR"
        assert "/a/t-0" in line.getMessage()
        assert "kafka-leader-election --election-type unclean" in line.getMessage()


@LOSSES
async def test_it_is_served_again_when_it_is_put_back(lose):
    disk = await written()
    copy_tree(disk, "/a/t-0", "/backup")
    lose(disk)
    for _ in range(2):
        async with running(["/a"], disk) as client:
            assert await client.fetch("t", 0) == OFFLINE
    copy_tree(disk, "/backup", "/a/t-0")
    async with running(["/a"], disk) as client:
        assert await client.fetch("t", 0) == (0, [b"kept"])


@LOSSES
async def test_an_unclean_election_gives_up_what_was_in_it(lose):
    disk = await written()
    lose(disk)
    async with running(["/a"], disk) as client:
        before = client.services.metadata.image.topics["t"].partitions[0].leader_epoch
        await give_up(client)
        assert await client.fetch("t", 0) == (0, [])
        assert client.services.metadata.image.topics["t"].partitions[0].leader_epoch > before
        assert (await client.produce("t", 0, b"new")).base_offset == 0
    assert len(strays(disk)) == (lose is remove_segments)
    async with running(["/a"], disk) as client:
        assert await client.fetch("t", 0) == (0, [b"new"])


async def test_an_empty_directory_gives_up_what_was_in_it_too(caplog):
    disk = await written()
    remove_directory(disk)
    disk.make_dirs("/a/t-0")
    async with running(["/a"], disk) as client:
        assert await client.fetch("t", 0) == (0, [])
    assert "/a/t-0 is empty, and had a log: it begins anew" in caplog.text


@LOSSES
async def test_its_topic_may_be_deleted_and_made_again(lose):
    disk = await written()
    lose(disk)
    async with running(["/a"], disk) as client:
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 1)
        await client.create("t")
        assert (await client.produce("t", 0, b"new")).base_offset == 0
    async with running(["/a"], disk) as client:
        assert await client.fetch("t", 0) == (0, [b"new"])


async def test_log_without_a_flush_may_be_lost_with_the_power():
    """A log that a power cut takes is not lost by an operator's hand: with one replica it was never promised."""
    disk = await written(kill=True)
    disk.remove_tree("/a/t-0")
    disk.boots += 1
    async with running(["/a"], disk) as client:
        assert await client.fetch("t", 0) == (0, [])


@LOSSES
def test_a_follower_copies_it_again_and_says_so(lose, caplog) -> None:
    async def program(world: World) -> None:
        async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
            await cluster.create(client)
            await produce(client, b"kept", b"kept too")
            await cluster.until_equal()
            victim = next(id_ for id_ in (1, 2, 3) if id_ != cluster.leader())
            await cluster.machines[victim].stop()
            lose(cluster.machines[victim].disk, "/data")
            await cluster.start(victim)
            await cluster.until(lambda: cluster.isr() == {1, 2, 3})
            await cluster.until_equal()
            assert await consume(client) == [b"kept", b"kept too"]

    in_world(program)
    assert "its log is gone from /data/t-0; it is copied again from broker" in caplog.text


@LOSSES
@run_with(in_world)
async def test_the_only_replica_in_sync_leads_nothing_that_is_gone(world: World, lose, caplog) -> None:
    """Followers would truncate all that they have, to be as the leader is."""
    async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
        await cluster.create(client)
        await produce(client, b"kept")
        for machine in cluster.machines.values():
            await machine.stop()
        (last,) = cluster.isr()
        disk = cluster.machines[last].disk
        copy_tree(disk, "/data/t-0", "/backup")
        lose(disk, "/data")
        await cluster.start(1, 2, 3)
        await trio.sleep(20)
        for broker_id in {1, 2, 3} - {last}:
            assert cluster.machines[broker_id].disk.stat("/data/t-0/00000000000000000000.log").size
        assert "t-0 is offline: its log is gone from /data/t-0" in caplog.text
        await cluster.machines[last].stop()
        copy_tree(disk, "/backup", "/data/t-0")
        await cluster.start(last)
        await cluster.until(lambda: cluster.isr() == {1, 2, 3})
        client.forget()
        assert await consume(client) == [b"kept"]


def test_followers_keep_records_when_an_empty_leader_returns(caplog) -> None:
    """A leader that gives up the only log that was in sync may not know that the others have most of it."""

    async def program(world: World) -> None:
        async with clustered(world, 1, 2, 3) as cluster, cluster.client() as client:
            await cluster.create(client)
            await produce(client, b"kept")
            await cluster.until_equal()
            for machine in cluster.machines.values():
                await machine.stop()
            (last,) = cluster.isr()
            records = cluster.machines[last].disk.read("/data/t-0/00000000000000000000.log")
            remove_directory(cluster.machines[last].disk, "/data")
            cluster.machines[last].disk.make_dirs("/data/t-0")
            await cluster.start(1, 2, 3)
            await cluster.until(lambda: cluster.isr() == {1, 2, 3})
            client.forget()
            await produce(client, b"new")
            assert await consume(client) == [b"new"]
            for machine in cluster.machines.values():
                await machine.stop()
                await machine.start()
            for broker_id in {1, 2, 3} - {last}:
                disk = cluster.machines[broker_id].disk
                (kept,) = [file.name for file in disk.list("/data/t-0") if ".log.truncated-" in file.name]
                assert disk.read(f"/data/t-0/{kept}") == records

    in_world(program)
    assert "t-0: its leader has none of its records" in caplog.text


@pytest.mark.parametrize("log_dirs", [["/a"], ["/a", "/b"]])
async def test_properties_that_are_gone_are_written_again_and_named(log_dirs, caplog):
    """With another log dir nothing changes; without one the cluster's id is lost, which the log says."""
    disk = MemoryDisk()
    async with running(log_dirs, disk) as client:
        await client.create("t", 2)
        await client.produce("t", 0, b"kept")
        cluster_id = client.services.metadata.image.cluster_id
    assert "meta.properties" not in caplog.text, "a new dir has none yet"
    disk.remove("/a/meta.properties")
    async with running(log_dirs, disk) as client:
        assert await client.fetch("t", 0) == (0, [b"kept"])
        now = client.services.metadata.image.cluster_id
        assert (now == cluster_id) == (len(log_dirs) > 1)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "/a/meta.properties is gone" in line
    assert f"cluster.id={now}" in line

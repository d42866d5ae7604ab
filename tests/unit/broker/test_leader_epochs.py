"""Leader epochs over starts: a reader of what a start does not find any more learns of it (KIP-320).

A consumer that has read up to 20 in some epoch asks where that epoch ended. As long as the answer is 20 or more it goes
on there, so records that take the place of lost ones must be of a later epoch.
"""

import pytest

from barnabas.testing.memory_disk import MemoryDisk
from barnabas.tools.control.snapshots import Snapshots
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.support.brokers import running

DIRS = ["/a"]
LOG = "/a/t-0/00000000000000000000.log"
EPOCHS = "/a/t-0/leader-epoch-checkpoint"


async def end_of(client, epoch, topic="t", partition=0):
    """Return the epoch and the offset that a consumer is told of an epoch that it has read."""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    response = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 3)
    (answer,) = response.topics[0].partitions
    assert answer.error_code == 0, answer
    return answer.leader_epoch, answer.end_offset


def epoch_of(client, topic="t", partition=0):
    return client.services.metadata.image.topics[topic].partitions[partition].leader_epoch


async def write(client, *sizes):
    """Append batches of so many records."""
    for size in sizes:
        assert (await client.produce("t", 0, *[b"v"] * size)).error_code == 0


def cut_last_batch(disk, sizes):
    """Cut the last of some batches off, as a tool or a power cut does."""
    content = disk.read(LOG)
    disk.replace(LOG, content[: len(content) * sum(sizes[:-1]) // sum(sizes)], sync=True)


def damage_last_batch(disk, sizes):
    content = bytearray(disk.read(LOG))
    content[-1] ^= 1
    disk.replace(LOG, bytes(content), sync=True)


def nothing(disk, sizes):
    pass


@pytest.mark.parametrize(
    ("how", "harm", "end"),
    [
        ("stopped", nothing, 20),
        ("stopped", cut_last_batch, 15),
        ("stopped", damage_last_batch, 20),  # what was closed cleanly is not checked
        ("killed", nothing, 20),
        ("killed", cut_last_batch, 15),
        ("killed", damage_last_batch, 15),
    ],
)
async def test_reader_beyond_a_lost_start_is_told_where_it_ends(how, harm, end):
    disk, sizes = MemoryDisk(), (5, 5, 5, 5)
    async with running(DIRS, disk) as client:
        await client.create("t")
        await write(client, *sizes)
        old = epoch_of(client)
        assert await end_of(client, old) == (old, 20)
        killed = disk.fork()
    restarted = disk if how == "stopped" else killed
    harm(restarted, sizes)
    async with running(DIRS, restarted) as client:
        assert await end_of(client, old) == (old, end)
        await write(client, 10)
        assert await end_of(client, old) == (old, end)
        assert epoch_of(client) > old
        assert await end_of(client, epoch_of(client)) == (epoch_of(client), end + 10)


async def test_unwritten_start_is_not_mistaken_for_the_next():
    disk = MemoryDisk()
    async with running(DIRS, disk) as client:
        await client.create("t")
        await write(client, 5, 5)
    epochs = []
    for _ in range(3):
        async with running(DIRS, disk) as client:
            epochs.append(epoch_of(client))
            assert await end_of(client, 0) == (0, 10)
    async with running(DIRS, disk) as client:
        await write(client, 5)
        assert await end_of(client, 0) == (0, 10)
        for epoch in epochs:
            assert (await end_of(client, epoch))[1] == 10
        epochs.append(epoch_of(client))
    assert epochs == sorted(set(epochs))


async def test_new_topics_begin_with_epoch_0_whatever_the_others_have():
    disk = MemoryDisk()
    for n in range(3):
        async with running(DIRS, disk) as client:
            await client.create(f"t{n}")
            assert epoch_of(client, f"t{n}") == 0


@pytest.mark.parametrize("keeps_epochs", [True, False])
async def test_epoch_exceeds_those_of_logs_with_lost_metadata(keeps_epochs):
    disk = MemoryDisk()
    async with running(DIRS, disk) as client:
        await client.create("t")
    for _ in range(3):
        async with running(DIRS, disk) as client:
            await write(client, 5)
            old = epoch_of(client)
    disk.remove_tree("/a/__cluster_metadata-0")
    if not keeps_epochs:
        disk.remove(EPOCHS)
    async with running(DIRS, disk) as client:
        assert epoch_of(client) > old
        await write(client, 5)
        assert await end_of(client, old) == (old, 15)
        assert await end_of(client, old - 1) == (old - 1, 10)


async def test_epoch_of_a_full_disk_is_kept_with_the_next_change(caplog):
    disk = MemoryDisk()
    async with running(DIRS, disk) as client:
        await client.create("t")
        await write(client, 5, 5)
        killed = disk.fork()
    killed.room = 0
    async with running(DIRS, killed) as client:
        first = epoch_of(client)
        assert (await client.produce("t", 0, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await end_of(client, 0) == (0, 10)
        killed.room = None
        await client.create("other")
        assert client.services.metadata.image.topics["other"].partitions[0].leader_epoch == 0
    async with running(DIRS, killed) as client:
        assert epoch_of(client) > first > 0
        assert "other" in client.services.metadata.image.topics
    assert "damaged" not in caplog.text


async def test_reader_beyond_a_snapshot_is_told_where_it_ends(tmp_path):
    directory = tmp_path / "logs"
    snapshots = Snapshots([str(directory)])
    seen = []
    async with running([directory]) as client:
        await client.create("t")
        await write(client, 5, 5)
        await snapshots.take("one", client.services)
        await write(client, 5)
        seen.append(epoch_of(client))
    for n in range(3):
        snapshots.put_back("one")
        async with running([directory]) as client:
            for epoch in seen:
                assert (await end_of(client, epoch))[1] == 10
            await write(client, 7 + n)
            assert epoch_of(client) > max(seen)
            for epoch in seen:
                assert (await end_of(client, epoch))[1] == 10
            seen.append(epoch_of(client))

"""A broker's number is kept with its log dirs, and no other broker opens them by mistake."""

import pytest

from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.brokers import running

META = "/a/meta.properties"
CLEAN = "/a/.kafka_cleanshutdown"


async def leaders(client):
    """The brokers' ids, and the leader of each partition."""
    answer = await client.ask(MetadataRequest(topics=None), 9)
    by_place = {(t.name, p.partition_index): p.leader_id for t in answer.topics for p in t.partitions}
    return [broker.node_id for broker in answer.brokers], by_place


async def test_a_broker_without_a_number_takes_that_of_its_log_dirs():
    disk = MemoryDisk()
    async with running(["/a"], disk, node_id="7") as client:
        await client.create("t", 2)
        await client.produce("t", 0, b"x")
    async with running(["/a"], disk) as client:
        assert await leaders(client) == ([7], {("t", 0): 7, ("t", 1): 7})
        assert await client.fetch("t", 0) == (0, [b"x"])
        assert client.services.config.value_of("node.id") == client.services.config.value_of("broker.id") == 7
    assert b"node.id=7" in disk.read(META)


async def test_a_new_broker_without_a_number_is_broker_1():
    async with running(["/a"], MemoryDisk()) as client:
        assert (await leaders(client))[0] == [1]


@pytest.mark.parametrize("name", ["node_id", "broker_id"])
async def test_other_node_id_stops_the_start_and_leaves_the_dir(name):
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t")
    with pytest.raises(StorageError) as caught:
        async with running(["/a"], disk, **{name: "2"}):
            pass
    error = caught.value
    for part in ("log dir /a", "node.id=1", "node.id=2", "meta.properties"):
        assert part in str(error)
    assert disk.read(CLEAN)
    async with running(["/a"], disk, node_id="1") as client:
        assert await leaders(client) == ([1], {("t", 0): 1})


async def test_a_dir_that_is_handed_over_is_led_by_its_new_broker():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t", 2)
        await client.produce("t", 1, b"x")
    disk.replace(META, disk.read(META).replace(b"node.id=1", b"node.id=2"), sync=True)
    async with running(["/a"], disk, node_id="2") as client:
        assert await leaders(client) == ([2], {("t", 0): 2, ("t", 1): 2})
        assert await client.fetch("t", 1) == (0, [b"x"])

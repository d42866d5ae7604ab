"""`partition.metadata` that is damaged or missing: the log keeps its records, and the file is written again."""

import pytest

from barnabas.log.format import properties
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.brokers import running

DIRS = ("/a",)
PATH = "/a/t-0/partition.metadata"


@pytest.fixture
async def written():
    """The file as it was written, on a disk with one record in t-0."""
    disk = MemoryDisk()
    async with running(DIRS, disk) as client:
        await client.create("t")
        await client.produce("t", 0, b"kept")
    return disk, disk.read(PATH)


@pytest.mark.parametrize("bits", [0x01, 0x80])
async def test_a_log_is_kept_whichever_byte_of_its_topic_id_is_damaged(written, bits, caplog):
    disk, sound = written
    for at in range(len(sound)):
        disk.open(PATH).write(bytes([sound[at] ^ bits]), at)
        async with running(DIRS, disk) as client:
            assert await client.fetch("t", 0) == (0, [b"kept"]), at
        assert disk.read(PATH) == sound, at
    assert "partition.metadata was missing or damaged" in caplog.text
    assert "kept as" not in caplog.text


async def test_a_log_without_a_topic_id_is_given_its_topics(written):
    disk, sound = written
    disk.remove(PATH)
    async with running(DIRS, disk) as client:
        assert await client.fetch("t", 0) == (0, [b"kept"])
    assert disk.read(PATH) == sound


async def test_log_with_another_id_stays_until_the_partition_is_gone(written, caplog):
    disk, _ = written
    disk.replace(PATH, properties.encode_partition_metadata(bytes(range(16))), sync=True)
    for _ in range(2):
        async with running(DIRS, disk) as client:
            assert await client.fetch("t", 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert "t-0 is offline: topic t has the id" in caplog.text
        assert not strays(disk)
    async with running(DIRS, disk) as client:
        topic = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
        await client.ask(ElectLeadersRequest(election_type=1, topic_partitions=[topic], timeout_ms=1_000), 2)
        assert await client.fetch("t", 0) == (0, [])
    (stray,) = strays(disk)
    assert disk.stat(f"/a/{stray}/00000000000000000000.log").size


async def test_log_with_another_id_is_served_once_its_file_is_removed(written):
    disk, sound = written
    disk.replace(PATH, properties.encode_partition_metadata(bytes(range(16))), sync=True)
    async with running(DIRS, disk) as client:
        assert await client.fetch("t", 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    disk.remove(PATH)
    async with running(DIRS, disk) as client:
        assert await client.fetch("t", 0) == (0, [b"kept"])
    assert disk.read(PATH) == sound


async def test_a_log_with_another_id_is_not_deleted_with_the_topic(written):
    disk, _ = written
    disk.replace(PATH, properties.encode_partition_metadata(bytes(range(16))), sync=True)
    async with running(DIRS, disk) as client:
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 1)
    assert len(strays(disk)) == 1


def strays(disk):
    return [entry.name for entry in disk.list("/a") if entry.name.endswith("-stray")]


async def test_the_topic_id_that_most_logs_have_is_adopted():
    disk = MemoryDisk()
    async with running(DIRS, disk) as client:
        await client.create("t", 3)
        await client.produce("t", 0, b"kept")
        topic_id = client.services.metadata.image.topics["t"].id
    disk.remove_tree("/a/__cluster_metadata-0")
    damaged = bytes([topic_id[0] ^ 1]) + topic_id[1:]
    disk.replace(PATH, properties.encode_partition_metadata(damaged), sync=True)
    async with running(DIRS, disk) as client:
        assert client.services.metadata.image.topics["t"].id == topic_id
        assert await client.fetch("t", 0) == (0, [b"kept"])


@pytest.mark.parametrize("place", [0, 3, 15])
def test_ids_of_two_topics_are_not_taken_for_one(place):
    topic_id = bytes(range(100, 116))
    damaged = bytearray(topic_id)
    damaged[place] ^= 0x10
    assert properties.is_damaged_copy(bytes(damaged), topic_id)
    assert not properties.is_damaged_copy(topic_id, topic_id)
    assert not properties.is_damaged_copy(bytes(16), topic_id)


def copy_log(disk, source, target):
    disk.make_dirs(target)
    for entry in disk.list(source):
        disk.replace(f"{target}/{entry.name}", disk.read(f"{source}/{entry.name}"), sync=True)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", ["a", "u"])
async def test_copy_of_a_log_under_another_name_is_set_aside_and_named(written, name, is_known, caplog):
    """`cp -r t-0 u-0`: Apache Kafka serves no two topics of one id either."""
    disk, _ = written
    copy_log(disk, "/a/t-0", f"/a/{name}-0")
    if not is_known:  # as in a dir that another broker has written
        disk.remove_tree("/a/__cluster_metadata-0")
    served = name if not is_known and name < "t" else "t"
    for _ in range(2):
        async with running(DIRS, disk) as client:
            image = client.services.metadata.image
            assert list(image.topics) == [served]
            assert image.names_by_id == {image.topics[served].id: served}
            assert await client.fetch(served, 0) == (0, [b"kept"])
    (stray,) = strays(disk)
    assert disk.stat(f"/a/{stray}/00000000000000000000.log").size
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"that is the id of topic {served}: it is kept as /a/{stray}" in line


async def test_a_copy_may_become_a_topic_of_its_own_as_the_log_says(written):
    disk, _ = written
    copy_log(disk, "/a/t-0", "/a/u-0")
    async with running(DIRS, disk):
        pass
    (stray,) = strays(disk)
    disk.rename(f"/a/{stray}", "/a/u-0")
    disk.remove("/a/u-0/partition.metadata")
    async with running(DIRS, disk) as client:
        assert await client.fetch("u", 0) == (0, [b"kept"])
        assert len(client.services.metadata.image.names_by_id) == 2

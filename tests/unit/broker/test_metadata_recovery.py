"""A broker copes with damaged metadata, and with changes that a crash has cut off half-way, or refuses to start."""

import pytest

from barnabas.broker.assembly import assembled
from barnabas.cluster.metadata.image import TOPIC
from barnabas.cluster.metadata.journal import COPY, JOURNAL
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from tests.support.brokers import running

FILES = [f"/a/{JOURNAL}", f"/a/{COPY}"]


def damage(disk, text):
    """Change one byte of the line with `text` in every copy."""
    for path in FILES:
        lines = disk.read(path).splitlines(keepends=True)
        (number,) = [number for number, line in enumerate(lines) if text in line]
        lines[number] = lines[number][:40] + b"#" + lines[number][41:]
        disk.replace(path, b"".join(lines), sync=True)


async def grow(client, name, count):
    entry = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = await client.ask(CreatePartitionsRequest(topics=[entry], timeout_ms=60_000), 1)
    assert answer.results[0].error_code == 0


async def delete(client, *names):
    answer = await client.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=60_000), 4)
    assert [result.error_code for result in answer.responses] == [0] * len(names)


def partitions_of(client):
    return {name: len(info.partitions) for name, info in client.services.metadata.image.topics.items()}


@pytest.mark.parametrize("line", [b'"TopicCreated","name":"t"', b'"PartitionsAdded"', b'"ConfigChanged"'])
async def test_topic_without_a_line_in_any_journal_copy_is_not_lost(line, caplog):
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t", 2, retention_ms="60000")
        await client.create("other")
        await grow(client, "t", 3)
        topic_id = client.services.metadata.image.topics["t"].id
        for partition in range(3):
            await client.produce("t", partition, b"x")
    damage(disk, line)
    for _ in range(2):
        async with running(["/a"], disk) as client:
            assert partitions_of(client) == {"t": 3, "other": 1}
            assert client.services.metadata.image.topics["t"].id == topic_id
            for partition in range(3):
                assert await client.fetch("t", partition) == (0, [b"x"])
            settings = client.services.metadata.image.settings_of(TOPIC, "t")
            assert ("60000" in settings.values()) == (line == b'"PartitionsAdded"')
    assert "the metadata journal is damaged, and no copy has what is lost" in caplog.text


async def test_producer_ids_stay_unique_when_their_line_is_lost():
    disk = MemoryDisk()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    async with running(["/a"], disk) as client:
        first = (await client.ask(request, 4)).producer_id
    damage(disk, b"ProducerIdsAllocated")
    async with running(["/a"], disk) as client:
        assert (await client.ask(request, 4)).producer_id > first


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


async def test_lost_metadata_with_a_possible_deny_acl_stop_the_start():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t", 1, retention_ms="60000")
    damage(disk, b'"ConfigChanged"')
    config = {"log.dirs": "/a", "listeners": "PLAINTEXT://127.0.0.1:0", "authorizer.class.name": STANDARD}
    for _ in range(2):
        with pytest.RaisesGroup(StorageError, allow_unwrapped=True, flatten_subgroups=True) as raised:
            async with assembled(BrokerConfig(config), real_environment(disk)):
                pytest.fail("it has started")
        assert "an ACL that denies something may be among it" in str(raised.value)
    async with running(["/a"], disk):
        pass  # without an authorizer the journal is put right
    async with assembled(BrokerConfig(config), real_environment(disk)) as broker:
        assert "t" in broker.services.metadata.image.topics


async def test_logs_that_a_crash_has_left_unmade_are_made_at_the_start():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t", 4)
    for partition in (1, 3):
        disk.remove_tree(f"/a/t-{partition}")
    async with running(["/a"], disk) as client:
        for partition in range(4):
            assert (await client.produce("t", partition, b"x")).error_code == 0


async def test_a_topic_whose_deletion_was_cut_off_does_not_come_back():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t", 2)
        await client.create("stays")
        await client.produce("t", 1, b"x")
    kept = {name: disk.read(f"/a/t-1/{name}") for name in names(disk, "/a/t-1")}
    async with running(["/a"], disk) as client:
        await delete(client, "t")
    disk.make_dirs("/a/t-1")
    for name, data in kept.items():
        disk.replace(f"/a/t-1/{name}", data, sync=True)
    async with running(["/a"], disk) as client:
        assert partitions_of(client) == {"stays": 1}
    assert any(entry.name.startswith("t-1.") for entry in disk.list("/a"))


def names(disk, path):
    return [entry.name for entry in disk.list(path) if not entry.is_dir]


async def test_topics_come_from_the_copy_without_the_first_dir():
    disk = MemoryDisk()
    async with running(["/a", "/b"], disk) as client:
        await client.create("t", 2, retention_ms="60000")
    async with running(["/b"], disk) as client:
        assert partitions_of(client) == {"t": 2}
        assert client.services.metadata.image.settings_of(TOPIC, "t") == {"retention.ms": "60000"}


async def test_a_topic_that_is_deleted_and_made_again_begins_empty():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        for _ in range(3):
            await client.create("t", 2)
            assert await client.fetch("t", 0) == (0, [])
            await client.produce("t", 0, b"x")
            await delete(client, "t")
        assert partitions_of(client) == {}

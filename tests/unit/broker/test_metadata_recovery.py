"""A broker copes with damaged metadata, and with changes that a crash has cut off half-way, or refuses to start."""

import pytest

from barnabas.broker.assembly import assembled
from barnabas.cluster.metadata.changes import ConfigChanged, ProducerIdsAllocated, TopicCreated
from barnabas.cluster.metadata.image import TOPIC, PartitionInfo, TopicInfo
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.errors import StorageError
from barnabas.records.batch import iter_batches, read_records
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.metadata_records import decode_record, record_key, record_name
from tests.support.brokers import running
from tests.support.old_journal import write_journal

METADATA = "/a/__cluster_metadata-0"
SEGMENT = f"{METADATA}/{0:020d}.log"


def damage(disk, kind):
    """Change one byte of the batch with the last record of a kind, as of `Topic`; a batch comes after it."""
    data = bytearray(disk.read(SEGMENT))
    batches = [(position, header) for position, header in iter_batches(bytes(data)) if not header.is_control]
    (*_, place) = [
        position + header.size - 1
        for position, header in batches[:-1]
        for record in read_records(bytes(data), position)
        if record_name(record_key(decode_record(record.value)[0])) == kind
    ]
    data[place] ^= 1
    disk.replace(SEGMENT, bytes(data), sync=True)


def files(disk, path=METADATA):
    return {name: disk.read(f"{path}/{name}") for name in names(disk, path)}


async def grow(client, name, count):
    entry = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = await client.ask(CreatePartitionsRequest(topics=[entry], timeout_ms=60_000), 1)
    assert answer.results[0].error_code == 0


async def delete(client, *names):
    answer = await client.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=60_000), 4)
    assert [result.error_code for result in answer.responses] == [0] * len(names)


def partitions_of(client):
    return {name: len(info.partitions) for name, info in client.services.metadata.image.topics.items()}


@pytest.mark.parametrize("kind", ["Topic", "Partition"])
async def test_topic_of_a_damaged_metadata_log_is_not_lost(kind, caplog):
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("other")
        await client.create("t", 2, retention_ms="60000")
        await grow(client, "t", 3)
        topic_id = client.services.metadata.image.topics["t"].id
        for partition in range(3):
            await client.produce("t", partition, b"x")
        await client.create("last")
    damage(disk, kind)
    before = files(disk)
    for _ in range(2):
        async with running(["/a"], disk) as client:
            assert partitions_of(client) == {"t": 3, "other": 1, "last": 1}
            assert client.services.metadata.image.topics["t"].id == topic_id
            for partition in range(3):
                assert await client.fetch("t", partition) == (0, [b"x"])
            settings = client.services.metadata.image.settings_of(TOPIC, "t")
            assert settings["retention.ms"] == ("-1" if kind == "Topic" else "60000")  # one batch has both
    assert "the metadata log is damaged" in caplog.text
    assert "/a/barnabas-metadata.damaged" in caplog.text
    assert files(disk, "/a/barnabas-metadata.damaged") == before
    assert not any("damaged." in entry.name for entry in disk.list("/a"))


async def test_producer_ids_stay_unique_when_their_record_is_lost():
    disk = MemoryDisk()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    async with running(["/a"], disk) as client:
        first = (await client.ask(request, 4)).producer_id
        await client.create("t")
    damage(disk, "ProducerIds")
    async with running(["/a"], disk) as client:
        assert (await client.ask(request, 4)).producer_id > first


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURED = {"log.dirs": "/a", "listeners": "PLAINTEXT://127.0.0.1:0", "authorizer.class.name": STANDARD}


async def refusal(disk, **settings):
    """The reason for which a broker with an authorizer does not start."""
    with pytest.RaisesGroup(StorageError, allow_unwrapped=True, flatten_subgroups=True) as raised:
        async with assembled(BrokerConfig({**SECURED, **settings}), real_environment(disk)):
            pytest.fail("it has started")
    return str(raised.value)


async def test_lost_metadata_with_a_possible_deny_acl_stop_the_start():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        await client.create("t", 1, retention_ms="60000")
        await client.create("last")
    damage(disk, "Config")
    before = files(disk)
    for _ in range(2):
        reason = await refusal(disk)
        assert "the metadata log is damaged: /a/__cluster_metadata-0/00000000000000000000.log, byte" in reason
        assert "An ACL that denies something may be among what is lost" in reason
        assert "authorizer.class.name" in reason
        assert files(disk) == before
        assert not any("damaged" in entry.name for entry in disk.list("/a"))
    async with running(["/a"], disk):
        pass  # without an authorizer the log is put right
    async with assembled(BrokerConfig(SECURED), real_environment(disk)) as broker:
        assert "t" in broker.services.metadata.image.topics


async def test_logs_without_metadata_stop_a_start_with_acls():
    disk = MemoryDisk()
    async with running(["/a", "/b"], disk) as client:
        await client.create("t", 4)
    settings = {"log.dirs": "/b"}
    for _ in range(2):
        reason = await refusal(disk, **settings)
        assert "it has no metadata log, and there are logs of topics. An ACL that denies" in reason
    async with running(["/b"], disk):
        pass
    async with assembled(BrokerConfig({**SECURED, **settings}), real_environment(disk)) as broker:
        assert "t" in broker.services.metadata.image.topics


async def test_journal_of_an_older_version_is_what_the_start_has(caplog):
    disk = MemoryDisk()
    me = PartitionInfo(0, (0,), (0,))
    groups = [
        [
            TopicCreated(TopicInfo("t", b"t" * 16, (me, me))),
            ConfigChanged(TOPIC, "t", (("retention.ms", "60000"),)),
        ],
        [ProducerIdsAllocated(7_000)],
    ]
    write_journal(disk, groups, ["/a", "/b"])
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    for _ in range(2):
        async with running(["/a", "/b"], disk) as client:
            assert partitions_of(client) == {"t": 2}
            assert client.services.metadata.image.settings_of(TOPIC, "t") == {"retention.ms": "60000"}
            assert (await client.ask(request, 4)).producer_id >= 7_000
    assert caplog.text.count("has taken the place of the metadata journal") == 1
    assert {"barnabas-metadata.jsonl.taken-over", "barnabas-metadata.copy.jsonl.taken-over"} <= set(
        names(disk, "/a")
    )
    assert "barnabas-metadata.copy.jsonl.taken-over" in names(disk, "/b")


async def test_damaged_journal_stops_a_start_with_acls():
    disk = MemoryDisk()
    paths = write_journal(disk, [[ProducerIdsAllocated(1)], [ProducerIdsAllocated(2)]])
    for path in paths:
        disk.replace(path, b"x" + disk.read(path), sync=True)
    for _ in range(2):
        assert "the metadata journal is damaged" in await refusal(disk)
        assert {path.rpartition("/")[2] for path in paths} <= set(names(disk, "/a"))
    async with running(["/a"], disk):
        pass


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


async def test_topics_are_adopted_without_the_first_dir():
    disk = MemoryDisk()
    async with running(["/a", "/b"], disk) as client:
        await client.create("t", 2, retention_ms="60000")
        topic_id = client.services.metadata.image.topics["t"].id
    async with running(["/b"], disk) as client:
        assert partitions_of(client) == {"t": 2}
        image = client.services.metadata.image
        assert image.topics["t"].id == topic_id
        assert image.settings_of(TOPIC, "t") == {"retention.ms": "-1", "retention.bytes": "-1"}


async def test_a_topic_that_is_deleted_and_made_again_begins_empty():
    disk = MemoryDisk()
    async with running(["/a"], disk) as client:
        for _ in range(3):
            await client.create("t", 2)
            assert await client.fetch("t", 0) == (0, [])
            await client.produce("t", 0, b"x")
            await delete(client, "t")
        assert partitions_of(client) == {}

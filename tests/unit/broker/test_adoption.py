"""Logs without a topic, as another broker leaves them: they are served, kept whole, and no producer id in use is taken."""

from barnabas.cluster.metadata.image import TOPIC
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from tests.support.brokers import NOW_MS, running
from tests.support.logs import batch

DIRS = ("/a",)
METADATA = "/a/__cluster_metadata-0"
SETTINGS = {"transaction_state_log_num_partitions": "1"}


async def producer_id(client, transactional_id=None):
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = await client.ask(request, 4)
    assert response.error_code == 0, response
    return response.producer_id


async def test_what_another_broker_left_is_adopted():
    disk = MemoryDisk()
    async with running(DIRS, disk, **SETTINGS) as client:
        await client.create("t", 2, retention_ms="60000")
        await client.produce("t", 1, b"old")  # as old as its timestamp: retention would drop it
        topic_id = client.services.metadata.image.topics["t"].id
        idempotent = await producer_id(client)
        written = await client.produce(
            "t", 0, b"x", producer_id=idempotent, producer_epoch=0, base_sequence=0
        )
        assert written.error_code == 0
        transactional = await producer_id(client, "mine")
    assert transactional > idempotent
    disk.remove_tree(METADATA)

    async with running(DIRS, disk, **SETTINGS) as client:
        image = client.services.metadata.image
        assert (image.topics["t"].id, len(image.topics["t"].partitions)) == (topic_id, 2)
        assert image.settings_of(TOPIC, "t") == {"retention.ms": "-1", "retention.bytes": "-1"}
        assert image.settings_of(TOPIC, "__transaction_state")["cleanup.policy"] == "compact"
        for log in client.services.logs:
            log.apply_retention(client.services.clock_ms())
        assert await client.fetch("t", 1) == (0, [b"old"])
        # An id that was used must not come again, with sequences that start over, for somebody else.
        assert await producer_id(client) > transactional
        assert await producer_id(client, "mine") == transactional


async def test_records_without_a_coordinator_do_not_prevent_adoption():
    disk = MemoryDisk()
    async with running(DIRS, disk, **SETTINGS) as client:
        used = await producer_id(client, "mine")
        replica = client.services.replicas.leader("__transaction_state", 0)
        for key, value in ((b"k", b"v"), (b"\0\0\0\1x", b"v"), (b"\0\x63", b"of a newer version")):
            replica.append_own(batch(value, key=key), now_ms=NOW_MS)
        last = await producer_id(client, "later")
    assert last > used
    disk.remove_tree(METADATA)
    async with running(DIRS, disk, **SETTINGS) as client:
        assert await producer_id(client) > last
        assert await producer_id(client, "mine") == used


async def test_only_what_no_topic_knows_is_adopted():
    disk = MemoryDisk()
    async with running(DIRS, disk) as client:
        await client.create("t", 1, retention_ms="60000")
    async with running(DIRS, disk) as client:
        assert client.services.metadata.image.settings_of(TOPIC, "t") == {"retention.ms": "60000"}


async def test_partitions_without_logs_are_named_and_offline(caplog):
    disk = MemoryDisk()
    async with running(("/a", "/b"), disk) as client:
        await client.create("t", 4)
        where = {log.partition: log.log_dir for log in client.services.logs if log.topic == "t"}
        for partition in range(4):
            assert (await client.produce("t", partition, b"x")).error_code == 0
    assert set(where.values()) == {"/a", "/b"}
    kept = [partition for partition in range(4) if where[partition] == "/b"]
    lost = [partition for partition in range(max(kept)) if where[partition] == "/a"]
    assert lost
    async with running(("/b",), disk) as client:
        text = f"no log was found of partitions {', '.join(map(str, lost))} of topic t: they are offline"
        assert text in caplog.text
        for partition in range(max(kept) + 1):
            expected = (0, [b"x"]) if partition in kept else (ErrorCode.KAFKA_STORAGE_ERROR, [])
            assert await client.fetch("t", partition) == expected

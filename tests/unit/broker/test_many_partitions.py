"""Very many partitions on a disk that is slow: the request is answered in time, others are served, a stop is soon."""

from __future__ import annotations

import threading

import pytest
import trio

from barnabas.cluster.kraft.own_store import OwnStore
from barnabas.cluster.replicas.manager import LOGS_PER_BATCH
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.brokers import Client, running

PARTITIONS = 4 * LOGS_PER_BATCH
PATIENCE_S = 60


class HeldDisk(MemoryDisk):
    """Directories of the topic `wide` are not made, or not renamed, before the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.made = 0
        self.arrived = threading.Event()

    def make_dirs(self, path: str) -> None:
        """Make a directory, once the gate is open."""
        if "/wide-" in path:
            self.arrived.set()
            self.gate.wait()
            self.made += 1
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        """Rename, once the gate is open."""
        if "/wide-" in source and "." not in source:
            self.arrived.set()
            self.gate.wait()
        super().rename(source, target)


async def arrived(disk: HeldDisk) -> None:
    await trio.to_thread.run_sync(disk.arrived.wait, abandon_on_cancel=True)


def wide(timeout_ms: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name="wide", num_partitions=PARTITIONS, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


async def partitions_of(client: Client, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    request.allow_auto_topic_creation = False
    answer = await client.ask(request, 8)
    return len(answer.topics[0].partitions)


async def test_the_answer_comes_in_time_and_the_partitions_later():
    disk = HeldDisk()
    with trio.fail_after(PATIENCE_S):
        async with running(["/data"], disk) as client:
            await client.create("other")
            disk.gate.clear()
            try:
                response = await client.ask(wide(timeout_ms=50), 5)
                assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
                late = await client.ask(
                    wide(timeout_ms=50), 5
                )  # waits for the first, and is not even decided
                assert late.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
                assert (await client.produce("other", 0, b"v")).error_code == 0
                assert await partitions_of(client, "wide") == 0
            finally:
                disk.gate.set()
            while await partitions_of(client, "wide") < PARTITIONS:
                await trio.sleep(0.01)
            assert (await client.produce("wide", PARTITIONS - 1, b"v")).error_code == 0
            response = await client.ask(wide(timeout_ms=50), 5)
            assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_stop_waits_for_few_logs_and_the_next_start_for_others():
    disk = HeldDisk()

    async def go_on_when_closing(client: Client) -> None:
        store = client.services.metadata
        assert isinstance(store, OwnStore)
        while store._is_open:
            await trio.sleep(0.01)
        disk.gate.set()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, running(["/data"], disk) as client:
            disk.gate.clear()
            nursery.start_soon(go_on_when_closing, client)
            await client.ask(wide(timeout_ms=50), 5)
            await arrived(disk)
            client.broker.stop()
        assert disk.made == LOGS_PER_BATCH
        async with running(["/data"], disk) as client:
            assert await partitions_of(client, "wide") == PARTITIONS
            for index in (0, PARTITIONS - 1):
                assert (await client.produce("wide", index, b"v")).error_code == 0


async def test_others_are_served_while_many_logs_are_deleted():
    disk = HeldDisk()
    with trio.fail_after(PATIENCE_S):
        async with running(["/data"], disk) as client:
            await client.create("other")
            assert (await client.ask(wide(timeout_ms=60_000), 5)).topics[0].error_code == 0
            disk.arrived.clear()
            disk.gate.clear()
            try:
                response = await client.ask(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=50), 3)
                assert response.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
                await arrived(disk)
                assert await partitions_of(client, "wide") == 0
                assert (await client.produce("other", 0, b"v")).error_code == 0
            finally:
                disk.gate.set()
            await client.create("wide", 3)
            assert (await client.produce("wide", 2, b"v")).error_code == 0


@pytest.mark.parametrize("is_fresh", [True, False])
async def test_a_name_that_is_deleted_and_made_again_is_empty(is_fresh):
    disk = MemoryDisk()
    async with running(["/data"], disk) as client:
        await client.create("t", LOGS_PER_BATCH + 1)
        if not is_fresh:
            for index in (0, LOGS_PER_BATCH):
                assert (await client.produce("t", index, b"old")).error_code == 0
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 3)
        await client.create("t", LOGS_PER_BATCH + 1)
        for index in (0, LOGS_PER_BATCH):
            assert await client.fetch("t", index) == (0, [])
            assert (await client.produce("t", index, b"new")).base_offset == 0

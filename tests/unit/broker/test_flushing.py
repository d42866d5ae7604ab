"""`flush.messages`: nothing is acknowledged or seen before it is synced, and no other request waits for that."""

import errno
import threading
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.records.steps import run
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.errors import ErrorCode
from tests.support.brokers import running

DIRS = ("/a", "/b")


class SlowDisk(MemoryDisk):
    """Syncs of the log `t-0` wait until `gate` is opened, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.syncs = 0
        self.failure = None
        self.fault = self._wait

    def _wait(self, operation, path):
        if operation != "sync" or not path.endswith("t-0/00000000000000000000.log"):
            return None
        self.syncs += 1
        self.begun.release()
        assert self.gate.wait(30)
        return self.failure


@asynccontextmanager
async def waiting_for_the_disk(messages="1"):
    """A broker, and what opens the gate; whatever happens, no thread is left behind it."""
    disk = SlowDisk()
    async with running(DIRS, disk) as client:
        try:
            await client.create("t", flush_messages=messages)
            await client.create("other")
            yield client, disk
        finally:
            disk.gate.set()


async def sync_begun(disk):
    assert await trio.to_thread.run_sync(lambda: disk.begun.acquire(timeout=30))


@pytest.mark.parametrize("acks", [-1, 1])
async def test_answer_waits_for_its_sync_alone(acks):
    answers = []

    async def produce(client, value):
        answers.append((await client.produce("t", 0, value, acks=acks)).base_offset)

    async with waiting_for_the_disk() as (client, disk), trio.open_nursery() as nursery:
        nursery.start_soon(produce, client, b"0")
        await sync_begun(disk)
        # The event loop is free: others are answered, and readers see nothing of what is not safe yet.
        assert (await client.produce("other", 0, b"x", acks=acks)).error_code == 0
        assert await client.fetch("t", 0) == (0, [])
        for number in range(1, 6):
            nursery.start_soon(produce, client, b"%d" % number)
        partition = client.services.replicas.leader("t", 0)
        while partition.log.log_end_offset < 6:
            await trio.sleep(0.001)
        assert (answers, disk.syncs) == ([], 1)
        disk.gate.set()
        with trio.fail_after(30):
            while len(answers) < 6:
                await trio.sleep(0.001)
        # The five that came meanwhile shared one sync.
        assert (sorted(answers), disk.syncs) == (list(range(6)), 2)
        assert len((await client.fetch("t", 0))[1]) == 6


async def test_acks_0_asks_for_the_sync_and_waits_for_nothing():
    async with waiting_for_the_disk() as (client, disk):
        partition = client.services.replicas.leader("t", 0)
        batch = bytearray(client.batch(b"x"))
        circumstances = {"acks": 0, "now_ms": client.services.clock_ms()}
        valid = run(partition.validation(memoryview(batch), api_version=8, **circumstances))
        partition.append(valid, **circumstances)
        await sync_begun(disk)
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)
        disk.gate.set()
        await partition.wait_committed(1)
        assert partition.log.recovery_point == 1


async def test_only_every_nth_record_waits():
    async with waiting_for_the_disk("3") as (client, disk):
        assert (await client.produce("t", 0, b"0", b"1")).error_code == 0
        assert disk.syncs == 0
        late = await client.produce("t", 0, b"2", timeout_ms=50)
        assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        disk.gate.set()
        assert (await client.produce("t", 0, b"3")).error_code == 0
        assert (await client.fetch("t", 0))[1] == [b"0", b"1", b"2", b"3"]


async def test_a_sync_that_fails_is_told_to_those_who_wait():
    async with waiting_for_the_disk() as (client, disk):
        disk.failure = OSError(errno.EIO, "broken")
        disk.gate.set()
        answer = await client.produce("t", 0, b"x")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("t", 0, b"y")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("other", 0, b"z")).error_code == 0

"""Histories of one broker that loses the ends of its logs, with consumers that are to learn of it (KIP-320).

Nothing is synced before it is acknowledged, so a power cut takes records that were read; so does a tool that cuts a log
off. Others take their offsets. The rule: a consumer that asks where its leader epoch has ended never goes on behind a
record that is in the log in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any

import trio

from barnabas.records.batch import iter_batches, read_records
from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.world import World, run_world
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.simulation.checker import failures_of
from tests.simulation.clients import (
    EARLIEST,
    LATEST,
    PARTITIONS,
    TOPIC,
    Asker,
    Producer,
    Reader,
    asking,
    read_finals,
)
from tests.simulation.history import History, Partition
from tests.simulation.topics import create_topics

SECONDS_MAX = 240.0
DATA = "/data"


class KeepingReader:
    """A consumer of one partition that keeps to KIP-320: it knows the epoch of what it has read last.

    Where that epoch has ended before its position, or its offset is not there, it goes back.
    """

    def __init__(self, asker: Asker, partition: Partition) -> None:
        self.asker = asker
        self.partition = partition
        self.position = 0
        self.read: dict[int, bytes] = {}
        """Values that it has read last, by offset."""
        self._epoch = -1
        self._leader_epoch = -1
        """Epoch of the leader with which the position is known to be right."""

    async def follow(self, until: trio.Event) -> None:
        """Read on until the others have ended and there is no more."""
        while True:
            is_last = until.is_set()
            await self._fetch()
            if is_last and self.position == await self._offset(LATEST):
                await self._check(await self._known_leader_epoch())
                if self.position == await self._offset(LATEST):
                    return
            await self.asker.pause(0.1)

    async def _fetch(self) -> None:
        leader_epoch = await self._known_leader_epoch()
        if leader_epoch != self._leader_epoch and not await self._check(leader_epoch):
            return
        topic, index = self.partition
        part = FetchRequest.FetchPartition(
            partition=index,
            current_leader_epoch=leader_epoch,
            fetch_offset=self.position,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])]
        )
        response = await self.asker.ask_leader(
            self.partition, request, 11, lambda answer: int(answer.responses[0].partitions[0].error_code)
        )
        (answer,) = response.responses[0].partitions
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._go_to(await self._offset(EARLIEST), -1)
        elif answer.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            self.asker.client.forget(topic)
        else:
            assert not answer.error_code, answer
            self._take(bytes(answer.records or b""))

    def _take(self, data: bytes) -> None:
        for at, header in iter_batches(data):
            for record in read_records(data, at):
                if record.offset >= self.position:
                    self.read[record.offset] = record.value or b""
            self.position = max(self.position, header.next_offset)
            self._epoch = header.leader_epoch
        if data:
            self.asker.note(f"has read {self.partition} up to {self.position} in epoch {self._epoch}")

    async def _known_leader_epoch(self) -> int:
        """Return the leader epoch of the partition that the metadata name."""
        topic, index = self.partition

        async def ask() -> Any:
            return await self.asker.client.topic(topic)

        description = await self.asker.until_answered(ask, lambda _: 0)
        return next(
            int(part.leader_epoch) for part in description.partitions if part.partition_index == index
        )

    async def _check(self, leader_epoch: int) -> bool:
        """See with the leader of an epoch that the log did not end before the position; false: ask again."""
        if self._epoch >= 0:
            topic, index = self.partition
            asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=index, current_leader_epoch=leader_epoch, leader_epoch=self._epoch
            )
            topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
            response = await self.asker.ask_leader(
                self.partition,
                OffsetForLeaderEpochRequest(replica_id=-1, topics=topics),
                3,
                lambda answer: int(answer.topics[0].partitions[0].error_code),
            )
            (answer,) = response.topics[0].partitions
            if answer.error_code:
                self.asker.client.forget(topic)
                return False
            if answer.end_offset < 0:
                self._go_to(await self._offset(EARLIEST), -1)
            elif answer.end_offset < self.position:
                self._go_to(answer.end_offset, answer.leader_epoch)
        self._leader_epoch = leader_epoch
        return True

    def _go_to(self, offset: int, epoch: int) -> None:
        self.asker.note(f"goes from {self.position} to {offset} of {self.partition}: what it read is lost")
        self.position, self._epoch = offset, epoch

    async def _offset(self, timestamp: int) -> int:
        return await Reader(self.asker, committed_only=False).list_offset(self.partition[1], timestamp)


class _Run:
    """One history."""

    def __init__(self, world: World, history: History, readers: list[KeepingReader]) -> None:
        self.world = world
        self.history = history
        self.readers = readers
        self.random = Random(f"{world.seed}/tails")
        self.is_over = trio.Event()
        self.machine: SimulatedBroker

    async def run(self) -> None:
        """Have clients work while the broker loses what it has not synced, and read what is there in the end."""
        random, settings = self.random, {}
        if random.random() < 0.5:
            settings["log.segment.bytes"] = "1024"
        if random.random() < 0.5:
            settings |= {"log.flush.interval.ms": "100", "log.flush.scheduler.interval.ms": "50"}
        async with trio.open_nursery() as nursery:
            self.machine = SimulatedBroker(self.world, nursery, settings=settings)
            await self.machine.start()
            async with self._client("admin") as admin:
                await create_topics(admin)
            await self.machine.stop()  # so that the topics themselves outlive a power cut
            await self.machine.start()
            async with trio.open_nursery() as reading:
                for index in range(PARTITIONS):
                    for n in range(random.choice((1, 1, 2))):
                        reading.start_soon(self._read, f"reader{index}{n}", (TOPIC, index))
                async with trio.open_nursery() as working:
                    for n in range(random.randint(1, 3)):
                        working.start_soon(self._produce, f"plain{n}")
                    working.start_soon(self._faults)
                self.is_over.set()
            async with self._client("judge") as judge:
                await read_finals(judge)
            self.machine.kill()

    def _client(self, name: str) -> AbstractAsyncContextManager[Asker]:
        return asking(self.world, self.machine.bootstrap, name, self.history)

    async def _read(self, name: str, partition: Partition) -> None:
        async with self._client(name) as asker:
            reader = KeepingReader(asker, partition)
            self.readers.append(reader)
            await reader.follow(self.is_over)

    async def _produce(self, name: str) -> None:
        async with self._client(name) as asker:
            producer, random = Producer(asker, acks=1), asker.random
            for _ in range(random.randint(5, 12)):
                await producer.send((TOPIC, random.randrange(PARTITIONS)), random.randint(1, 4))
                await asker.pause(0.3)

    async def _faults(self) -> None:
        random = self.random
        for _ in range(random.randint(1, 4)):
            await trio.sleep(random.uniform(0, 0.5))
            fault = random.choice(("power", "power", "power", "tool", "kill"))
            self.history.note("*", f"the broker ends: {fault}")
            if fault == "power":
                self.machine.cut_power(random)
            elif fault == "kill":
                self.machine.kill()
            else:
                await self.machine.stop()
                self._cut_off((TOPIC, random.randrange(PARTITIONS)))
            await trio.sleep(random.uniform(0, 0.3))
            await self.machine.start()
            self.history.note("*", "the broker is there again")

    def _cut_off(self, partition: Partition) -> None:
        """Cut off some batches at the end of a log, as an operator may to mend it by hand."""
        disk, directory = self.machine.disk, f"{DATA}/{partition[0]}-{partition[1]}"
        path = f"{directory}/{max(row.name for row in disk.list(directory) if row.name.endswith('.log'))}"
        content = disk.read(path)
        positions = [at for at, _ in iter_batches(content)]
        if positions:
            at = self.random.choice(positions)
            disk.replace(path, content[:at], sync=True)
            self.history.note("*", f"{len(content) - at} bytes of {partition} are cut off")


def judged(seed: int) -> tuple[History, list[str]]:
    """Run the history of a seed and return it with what was broken in it."""
    history = History()
    readers: list[KeepingReader] = []

    async def program(world: World) -> None:
        await _Run(world, history, readers).run()

    failures = failures_of(lambda: run_world(seed, program, seconds_max=SECONDS_MAX))
    return history, failures or [*history.surprises, *_skipped(history, readers)]


def _skipped(history: History, readers: list[KeepingReader]) -> Iterator[str]:
    """Everything in the log in the end was read by every reader that has reached its end."""
    for reader in readers:
        for batch in history.finals[reader.partition].batches:
            for offset, value in batch.values.items():
                own = reader.read.get(offset)
                if own != value:
                    yield f"{reader.partition}: {reader.asker.name} has {own!r} at {offset}, where {value!r} is"

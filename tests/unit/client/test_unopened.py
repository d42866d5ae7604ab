"""Batches that a consumer hands out as they were fetched: in turn, in order, and up to the offsets that were asked for."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from barnabas.client import TopicPartition
from barnabas.client.consuming.handing import Handing
from barnabas.client.consuming.partition import Chunk, Partition
from barnabas.client.values import FetchedRecords
from barnabas.records.building import encode_batch
from barnabas.records.record import Record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def data(first: int, count: int) -> bytes:
    return bytes(encode_batch([Record(first + n, 1, None, b"x" * 50) for n in range(count)]))


class World:
    """Partitions with what was fetched of them."""

    def __init__(self, *chunks: tuple[TopicPartition, int, bytes, Any]) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.woken = 0
        ready: list[Partition] = []
        for place, offset, content, aborted in chunks:
            partition = self.partitions.setdefault(place, Partition(place))
            if partition.offset < 0:
                partition.seek(offset)
            partition.add(Chunk(place, content, offset, aborted, checks_crcs=True))
            if partition not in ready:
                ready.append(partition)
        fetcher: Any = SimpleNamespace(ready=deque(ready), wake=self._wake)
        self.handing = Handing(fetcher, self.partitions)

    def _wake(self) -> None:
        self.woken += 1

    def take(self, bytes_max: int = 1 << 20, **ends: int) -> list[FetchedRecords]:
        limits = {place: ends[name] for name, place in (("a", A), ("b", B)) if name in ends}
        return self.handing.unopened(limits, bytes_max)


async def test_what_was_fetched_is_handed_out_as_it_came() -> None:
    aborted = [SimpleNamespace(producer_id=7, first_offset=3)]
    content = data(2, 3)
    world = World((A, 3, content, aborted))
    assert world.take(a=100) == [FetchedRecords("t", 0, 3, 5, content, ((7, 3),))]
    assert world.partitions[A].offset == 5
    assert world.take(a=100) == []
    assert world.woken == 1, "more is fetched"


async def test_partitions_take_turns_until_there_is_enough() -> None:
    world = World((A, 0, data(0, 1), None), (A, 1, data(1, 1), None), (B, 0, data(0, 1), None))
    assert [(batch.partition, batch.offset) for batch in world.take(150)] == [(0, 0), (1, 0)]
    assert [(batch.partition, batch.offset) for batch in world.take(150)] == [(0, 1)]


async def test_a_partition_at_its_end_is_paused_and_others_go_on() -> None:
    world = World((A, 0, data(0, 5), None), (A, 5, data(5, 5), None), (B, 0, data(0, 5), None))
    assert [(batch.partition, batch.end_offset) for batch in world.take(a=3, b=10)] == [(0, 5), (1, 5)]
    assert (world.partitions[A].is_paused, world.partitions[B].is_paused) == (True, False)


async def test_a_partition_that_is_gone_is_not_handed_out() -> None:
    world = World((A, 0, data(0, 1), None), (B, 0, data(0, 1), None))
    del world.partitions[A]
    assert [batch.partition for batch in world.take()] == [1]

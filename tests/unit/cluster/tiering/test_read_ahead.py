"""Records read ahead of sequential readers of remote segments: bounds in bytes, time and threads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from barnabas.cluster.tiering.ahead import AHEAD_SECONDS_MAX, RUN_BYTES, ReadAhead
from barnabas.cluster.tiering.counts import TierCounts
from barnabas.cluster.tiering.reading import RemoteIndexes, RemoteRange, read_records
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.tiered.lineage import PartitionSegments
from barnabas.tiered.segment import SegmentState
from tests.support.logs import batch, rebase
from tests.support.own_stores import InlineThreads
from tests.support.remote_segments import remote_segment, update

COUNT = 40
BATCH = batch(b"v" * (1 << 19))
SIZE = len(BATCH)


class Store:
    """A segment of `COUNT` batches, the same for each partition; a read takes `seconds`."""

    def __init__(self) -> None:
        self.clock_s, self.seconds = 0.0, 0.0
        self.log, index = bytearray(), OffsetIndex(0)
        for offset in range(COUNT):
            index.append(offset, len(self.log))
            self.log += BATCH
            rebase(self.log, offset * SIZE, offset, 0)
        self.read_index = lambda segment, kind: bytes(index.entries)
        self.segment = remote_segment(0, COUNT - 1, size=len(self.log))
        self.segments = PartitionSegments()
        self.segments.apply(self.segment)
        self.segments.apply(update(self.segment, SegmentState.COPY_FINISHED))

    def read(self, segment: object, start: int, length: int) -> bytes:
        self.clock_s += self.seconds
        return bytes(self.log[start : start + length])


class Readers:
    """Readers of partitions, each from offset 0 on, in fetches of two batches."""

    def __init__(self, background: trio.Nursery, threads: int = 10, bytes_max: int = 4 * RUN_BYTES) -> None:
        self.store = Store()
        self.metadata = SimpleNamespace(of=lambda key: self.store.segments, is_ready_for=lambda key: True)
        self.ahead = ReadAhead(
            self.store, RemoteIndexes(self.store, 1 << 20), self.metadata, TierCounts(),
            SimpleNamespace(throttle_ms=lambda: 0, record=lambda size: None),
            SimpleNamespace(threads=InlineThreads(), monotonic=lambda: trio.current_time() + self.store.clock_s),
            trio.CapacityLimiter(threads), background, bytes_max,
        )  # fmt: skip
        log = SimpleNamespace(
            topic_id=bytes(16),
            epochs=LeaderEpochs([(0, 0)]),
            log_end_offset=COUNT,
            local_log_start_offset=COUNT,
        )
        self.replicas = [SimpleNamespace(topic="t", index=number, log=log) for number in range(9)]
        self.offsets = [0] * 9

    async def fetch(self, number: int, count: int = 1) -> list[bool]:
        """Read on; returns whether each fetch was read ahead."""
        return [await self._fetch(self.replicas[number], number) for _ in range(count)]

    async def _fetch(self, replica, number: int) -> bool:
        offset = self.offsets[number]
        piece = self.ahead.find(replica, offset, 2 * SIZE)
        if piece is None:
            segment = self.store.segments.segments()[0]
            part = RemoteRange(segment, offset, COUNT, 2 * SIZE, True)
            records = read_records(self.store, RemoteIndexes(self.store, 1 << 20), part)
            self.ahead.was_read(replica, offset, 2 * SIZE, segment, records)
        else:
            records = piece.records
            self.ahead.take(replica, piece)
        assert records.data == self.store.log[offset * SIZE : records.next_position]
        self.offsets[number] = records.next_offset
        await trio.testing.wait_all_tasks_blocked()
        assert self.ahead.size <= 4 * RUN_BYTES
        return piece is not None


@pytest.fixture
async def nursery(autojump_clock):
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


async def test_third_fetch_in_a_row_is_the_first_read_ahead(nursery):
    readers = Readers(nursery)
    assert await readers.fetch(0, COUNT // 2) == [False, False, *[True] * (COUNT // 2 - 2)]
    assert readers.ahead.size == 0


async def test_reader_has_two_runs_at_most(nursery):
    readers = Readers(nursery)
    for _ in range(COUNT // 2):
        await readers.fetch(0)
        assert readers.ahead.size <= 2 * RUN_BYTES


async def test_readers_without_room_are_not_read_ahead_for(nursery, autojump_clock):
    readers = Readers(nursery)
    hits = [(await readers.fetch(number, 3))[-1] for number in range(9)]
    assert (hits[0], hits[-1]) == (True, False)
    await trio.sleep(2 * AHEAD_SECONDS_MAX + 1)
    assert readers.ahead.size == 0
    assert await readers.fetch(8, 2) == [False, True]


async def test_last_free_thread_is_left_to_fetches(nursery):
    assert not any(await Readers(nursery, threads=1).fetch(0, 5))


async def test_slow_store_has_short_runs(nursery):
    readers = Readers(nursery)
    readers.store.seconds = 1.0
    await readers.fetch(0, 2)
    assert readers.ahead.size == 2 * SIZE


async def test_piece_of_a_replaced_segment_is_not_used(nursery):
    readers = Readers(nursery)
    await readers.fetch(0, 2)
    other = remote_segment(0, COUNT - 1, number=2, size=readers.store.segment.size)
    readers.store.segments.apply(other)
    readers.store.segments.apply(update(other, SegmentState.COPY_FINISHED))
    assert await readers.fetch(0) == [False]

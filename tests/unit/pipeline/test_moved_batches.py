"""No checksum covers the base offset of a batch: another one there makes damage, and never hides what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import BatchHeader, iter_batches, iter_records, read_any_header
from barnabas.records.errors import CorruptRecordsError
from barnabas.wire.generated.fetch import FetchResponse
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.log.disk import DiskLog
from barnabas_pipeline.log.model import CorruptSpan, Log, LogOptions, OffsetRange
from barnabas_pipeline.log.order import Order, StoredBatch
from barnabas_pipeline.log.wire import WireLog
from tests.support.logs import Broker, append, batch

BATCHES = 16
OFFSET_BITS = 64
Contents = dict[int, bytes]


class ServedLog(WireLog):
    """A log with a partition's log as its broker."""

    def __init__(self, partition_log: PartitionLog, size: int) -> None:
        super().__init__(LogOptions("t", bootstrap="b:1", fetch_bytes_max=size))
        self.partition_log = partition_log
        self.fetches = 0

    def _fetch(self, range_: OffsetRange, offset: int, bytes_max: int, *, is_behind: bool) -> Any:
        self.fetches += 1
        assert self.fetches < 500, "it reads on for ever"
        end = self.partition_log.log_end_offset
        offset = max(offset - is_behind, self.partition_log.log_start_offset)
        try:
            data = self.partition_log.read(offset, max_bytes=bytes_max, upper_offset=end).to_bytes()
        except CorruptRecordsError as error:  # the index knows better: CORRUPT_MESSAGE, again and again
            raise IncompleteError(error.message) from None
        return FetchResponse.PartitionData(high_watermark=end, last_stable_offset=end, records=data)


@pytest.fixture
def partition_log(tmp_path: Path) -> PartitionLog:
    """A log of some segments, with one, two or three records a batch, and every other batch in the index."""
    broker = Broker(tmp_path, segment_bytes=500, index_interval_bytes=120)
    log = broker.log()
    for n in range(BATCHES):
        append(log, batch(*(b"%d-%d" % (n, number) for number in range(1 + n % 3))))
    assert len(log.segments) > 2
    broker.manager.write_checkpoints()
    return log


@pytest.fixture(params=["disk", "wire 1 B", "wire 300 B", "wire 1 MiB"])
def log(request: pytest.FixtureRequest, partition_log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> Log:
    transport, _, size = request.param.partition(" ")
    if transport == "disk":
        return DiskLog(
            LogOptions("t", log_dirs=(str(Path(partition_log.dir).parent),), isolation="read_uncommitted")
        )
    monkeypatch.setattr("barnabas_pipeline.log.wire.FETCH_BYTES_MIN", 1)
    monkeypatch.setattr("barnabas_pipeline.log.wire.RECORD_BYTES_GUESS", 1 << 20)
    return ServedLog(partition_log, {"1 B": 1, "300 B": 300, "1 MiB": 1 << 20}[size])


def read(log: Log, start: int, end: int) -> tuple[Contents, set[int]]:
    """The values of a range by their offsets, and the offsets that are damaged."""
    contents: Contents = {}
    damaged: set[int] = set()
    if isinstance(log, ServedLog):
        log.fetches = 0
    for item in log.read(OffsetRange(0, start, end)):
        if isinstance(item, CorruptSpan):
            span = set(range(item.start, item.end))
            assert not span & damaged
            assert start <= item.start < item.end <= end
            damaged |= span
            continue
        for record in iter_records(item.data):
            if start <= record.offset < end:
                assert record.offset not in contents
                contents[record.offset] = record.value or b""
    return contents, damaged


def batches_of(segment: Any) -> Iterator[tuple[int, BatchHeader]]:
    return iter_batches(segment.file.read(segment.size, 0))


def batches(log: PartitionLog) -> Iterator[tuple[Any, int, BatchHeader]]:
    for segment in log.segments:
        for position, header in batches_of(segment):
            yield segment, position, header


def test_a_log_is_read_from_anywhere_to_anywhere(log: Log, partition_log: PartitionLog) -> None:
    end = partition_log.log_end_offset
    written, damaged = read(log, 0, end)
    assert (len(written), damaged) == (end, set())
    for start in range(end):
        for stop in (start + 1, start + 4, end):
            expected = {offset: value for offset, value in written.items() if start <= offset < stop}
            assert read(log, start, min(stop, end)) == (expected, set())


@pytest.mark.parametrize("ranges", ["whole", "each batch alone"])
def test_a_batch_that_says_another_base_offset_is_damage(
    log: Log, partition_log: PartitionLog, ranges: str
) -> None:
    end = partition_log.log_end_offset
    written, _ = read(log, 0, end)
    overlooked: list[tuple[int, int, str]] = []
    named = 0
    for segment, position, header in reversed(
        list(batches(partition_log))[1:]
    ):  # a log remembers where a read ended
        moved_offsets = set(range(header.base_offset, header.next_offset))
        start, stop = (0, end) if ranges == "whole" else (header.base_offset, header.next_offset)
        for bit in range(OFFSET_BITS):
            moved = (header.base_offset ^ 1 << bit) % (1 << 64)
            segment.file.write(moved.to_bytes(8, "big"), position)
            try:
                contents, damaged = read(log, start, stop)
            except IncompleteError:
                named += 1
                continue
            lost = set(range(start, stop)) - contents.keys() - damaged
            wrong = [offset for offset, value in contents.items() if written.get(offset) != value]
            if isinstance(log, ServedLog) and position == 0 and is_before(moved, header, segment.base_offset):
                assert (lost, damaged) == (moved_offsets, set()), "a broker does not send it"
            elif lost or wrong or damaged - moved_offsets:
                overlooked.append(
                    (header.base_offset, moved, f"lost {lost}, wrong {wrong}, damaged {damaged}")
                )
        segment.file.write(header.base_offset.to_bytes(8, "big"), position)
    assert not overlooked, f"{len(overlooked)} of {(BATCHES - 1) * OFFSET_BITS}: {overlooked[:6]}"
    assert named <= (0 if isinstance(log, DiskLog) else BATCHES * OFFSET_BITS // 2)


def is_before(moved: int, header: BatchHeader, segment_base: int) -> bool:
    """Say whether a batch with this base offset ends before its segment begins: look-ups pass over it."""
    return moved >= 1 << 63 or moved + header.last_offset_delta < segment_base


def test_repeated_damaged_batch_tells_transactions_the_same(partition_log: PartitionLog) -> None:
    """A fetch begins with a batch that was sent before; another base offset would begin transactions that are to come."""
    shown: list[tuple[int, int]] = []

    def hides(_: Any, header: BatchHeader) -> bool:
        shown.append((header.base_offset, header.last_offset))
        return False

    order = Order(OffsetRange(0, 0, 20))
    items = [(segment, *raw) for segment in partition_log.segments[:1] for raw in batches_of(segment)][:5]
    stored = [StoredBatch(segment.file.read(header.size, at), header, hides) for segment, at, header in items]
    moved = stored[2].header.base_offset + 1000
    data = moved.to_bytes(8, "big") + bytes(stored[2].data[8:])
    stored[2] = StoredBatch(data, read_any_header(data), hides)
    for item in stored:
        assert not order.has_had(item)
        list(order.take(item))
    assert shown == [(0, 0), (1, 2), (3, 3), (6, 6), (7, 8)]
    shown.clear()
    assert [order.has_had(item) for item in stored] == [False, False, True, False, True]
    assert shown == [(3, 3), (7, 8)]

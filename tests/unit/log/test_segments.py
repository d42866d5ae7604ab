"""The segments of a log: when a new one begins, where an offset is, where a reader must stop, how old they are.

Each condition stands alone: no two offsets, sizes or times are equal that could be taken for each other.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from barnabas.log.config import LogConfig
from barnabas.log.format import names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment import Segment
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, batch, rebase

SIZE = len(batch(b"v"))


def broker_of(**settings: Any) -> Broker:
    return Broker("/d", disk=MemoryDisk(), **settings)  # type: ignore[arg-type]


def put(log: PartitionLog, offset: int, count: int = 1, timestamp: int = NOW_MS, value: bytes = b"v") -> None:
    """Append a batch at an offset, as from a leader."""
    data = batch(*[value] * count, timestamp=timestamp)
    rebase(data, 0, offset, 0)
    log.append_as_follower(data, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


# --- rolling ------------------------------------------------------------------------------------------------------

CALM = {"segment_bytes": 10 * SIZE, "segment_ms": 1_000, "segment_index_bytes": 1 << 20}


def rolls(
    log: PartitionLog, *, size: int = SIZE, timestamp: int = NOW_MS, last: int = 105, **settings: Any
) -> bool:
    now_ms = settings.pop("now_ms", NOW_MS)
    config = LogConfig(**(CALM | settings))
    return log.store.must_roll(size, timestamp, last, config=config, now_ms=now_ms)


@pytest.fixture
def log() -> PartitionLog:
    """One batch at offset 100."""
    log = broker_of(index_interval_bytes=0).log()
    log.truncate_fully_and_start_at(100)
    put(log, 100)
    return log


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"size": 9 * SIZE}, False),
        ({"size": 9 * SIZE + 1}, True),
        ({"segment_bytes": 2 * SIZE}, False),
        ({"segment_bytes": 2 * SIZE - 1}, True),
        ({"timestamp": NOW_MS + 1_000}, False),
        ({"timestamp": NOW_MS + 1_001}, True),
        ({"timestamp": NOW_MS + 1_001, "segment_ms": 1_001}, False),
        ({"now_ms": NOW_MS + 10**9}, False),  # the times of the records count, where they have any
        ({"last": 100 + (1 << 31) - 1}, False),
        ({"last": 100 + (1 << 31)}, True),
        ({"segment_index_bytes": 23}, True),  # two slots of 12 bytes are kept in the time index
        ({"segment_index_bytes": 24}, False),
        ({"cleanup_policy": frozenset(("compact",)), "max_compaction_lag_ms": 500, "timestamp": NOW_MS + 500}, False),
        ({"cleanup_policy": frozenset(("compact",)), "max_compaction_lag_ms": 500, "timestamp": NOW_MS + 501}, True),
        ({"max_compaction_lag_ms": 500, "timestamp": NOW_MS + 501}, False),
        ({"cleanup_policy": frozenset(("compact",)), "max_compaction_lag_ms": 0, "timestamp": NOW_MS + 1_000}, False),
        ({"cleanup_policy": frozenset(("compact",)), "max_compaction_lag_ms": 9_999, "timestamp": NOW_MS + 1_001}, True),
    ],
    ids=str,
)  # fmt: skip
def test_a_new_segment_begins_for_one_reason(
    log: PartitionLog, changes: dict[str, Any], expected: bool
) -> None:
    assert rolls(log, **changes) is expected


def test_empty_segment_is_rolled_only_for_offsets_out_of_reach() -> None:
    log = broker_of().log()
    everything = {"size": 1 << 40, "timestamp": NOW_MS + 10**12, "segment_index_bytes": 1}
    assert not rolls(log, **everything)
    assert log.active.created_ms == NOW_MS
    assert rolls(log, last=1 << 31)


@pytest.mark.parametrize("jitter_ms", [0, 1, 300, 1_000, 5_000])
def test_segments_are_rolled_earlier_by_a_part_of_the_jitter(log: PartitionLog, jitter_ms: int) -> None:
    seed = crc32(f"{log.dir}/100".encode())
    early_ms = seed % min(jitter_ms, 1_000) if jitter_ms else 0
    last_ms = NOW_MS + 1_000 - early_ms
    assert not rolls(log, timestamp=last_ms, segment_jitter_ms=jitter_ms)
    assert rolls(log, timestamp=last_ms + 1, segment_jitter_ms=jitter_ms)


@pytest.mark.parametrize("is_empty", [True, False])
def test_rolled_segment_is_sealed_and_dropped_if_empty(is_empty: bool) -> None:
    broker = broker_of(index_interval_bytes=0)
    log = broker.log()
    if not is_empty:
        put(log, 0, timestamp=NOW_MS + 7)
    new = log.store.roll(50, config=log.config)
    assert [segment.base_offset for segment in log.segments] == ([50] if is_empty else [0, 50])
    assert log.active is new is log.segments[-1]
    assert len(log.active.time_index) == 0
    assert is_empty or log.segments[0].time_index.last() == (NOW_MS + 7, 0)
    files = {entry.name for entry in log.disk.list(log.dir)}
    assert (names.file_name(0, names.LOG) in files) is not is_empty
    broker.manager.remove_due(NOW_MS)
    assert not [entry.name for entry in log.disk.list(log.dir) if entry.name.endswith(names.DELETED)]


# --- finding ------------------------------------------------------------------------------------------------------


@pytest.fixture
def three() -> PartitionLog:
    """Segments at 0, 20 and 40, of batches of two records, with gaps; the log ends at 44."""
    log = broker_of(index_interval_bytes=0).log()
    for base in (0, 20, 40):
        if base:
            log.store.roll(base, config=log.config)
        for offset in (base, base + 2):
            put(log, offset, 2, timestamp=NOW_MS + offset)
    assert (log.log_end_offset, [segment.base_offset for segment in log.segments]) == (44, [0, 20, 40])
    return log


@pytest.mark.parametrize(
    ("offset", "segment", "after", "place"),
    [
        (-1, 0, 20, (0, 0)),
        (0, 0, 20, (0, 0)),
        (1, 0, 20, (0, 0)),
        (2, 0, 20, (0, 1)),
        (3, 0, 20, (0, 1)),
        (4, 0, 20, (1, 0)),  # a gap: what follows it
        (19, 0, 20, (1, 0)),
        (20, 1, 40, (1, 0)),
        (23, 1, 40, (1, 1)),
        (39, 1, 40, (2, 0)),
        (40, 2, 44, (2, 0)),
        (43, 2, 44, (2, 1)),
        (44, 2, 44, None),
        (99, 2, 44, None),
    ],
)
def test_an_offset_is_in_a_segment_and_in_a_batch(
    three: PartitionLog, offset: int, segment: int, after: int, place: tuple[int, int] | None
) -> None:
    store = three.store
    assert store.index_of(offset) == segment
    assert store.base_after(store.all[segment], 44) == after
    size = store.all[0].size // 2
    expected = None if place is None else (store.all[place[0]], place[1] * size)
    for _ in range(2):  # what was found last is known
        assert store.find(offset) == expected
        assert store.find(0) == (store.all[0], 0)


@pytest.mark.parametrize(
    ("segment", "upper", "batches", "end"),
    [
        (0, 0, 0, 0),
        (0, 2, 1, 2),
        (0, 3, 1, 3),  # in the middle of a batch: not even its first record is shown
        (0, 4, 2, 4),
        (0, 19, 2, 19),
        (0, 20, 2, 20),
        (0, 22, 2, 20),
        (0, 44, 2, 20),
        (0, 99, 2, 20),
        (1, 22, 1, 22),
        (1, 40, 2, 40),
        (1, 44, 2, 40),
        (2, 42, 1, 42),
        (2, 43, 1, 43),
        (2, 44, 2, 44),
        (2, 99, 2, 44),
    ],
)
def test_a_reader_stops_before_what_it_may_not_see(
    three: PartitionLog, segment: int, upper: int, batches: int, end: int
) -> None:
    store = three.store
    own = store.all[segment]
    for _ in range(2):
        assert store.end_within(own, upper, 44) == (batches * own.size // 2, end)


def test_a_reader_that_follows_the_end_has_nothing_looked_for() -> None:
    disk = MemoryDisk()
    log = Broker("/d", disk=disk, index_interval_bytes=1 << 20).log()
    put(log, 0)
    assert log.read(0, max_bytes=10 * SIZE, upper_offset=1).next_offset == 1
    read: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "read":
            read.append(path)

    disk.fault = note
    for offset in range(1, 5):
        put(log, offset)
        read.clear()
        assert len(log.read(offset, max_bytes=10 * SIZE, upper_offset=offset + 1).records) == SIZE
        assert len(read) == 1, "the records alone"


# --- letting go ---------------------------------------------------------------------------------------------------


def left(log: PartitionLog) -> list[int]:
    return sorted(
        file.base_offset
        for entry in log.disk.list(log.dir)
        if (file := names.parse_file_name(entry.name)) and file[1:] == (names.LOG, "")
    )


@pytest.mark.parametrize(
    ("offset", "bases", "batches"),
    [
        (0, [0], 0),
        (1, [0], 0),
        (2, [0], 1),
        (4, [0], 2),
        (20, [0], 2),
        (21, [0, 20], 0),
        (22, [0, 20], 1),
        (40, [0, 20], 2),
        (41, [0, 20, 40], 0),
        (42, [0, 20, 40], 1),
        (44, [0, 20, 40], 2),
    ],
)
def test_a_cut_drops_an_offset_and_all_after_it(
    three: PartitionLog, offset: int, bases: list[int], batches: int
) -> None:
    size = three.active.size
    three.store.truncate(offset, due_ms=NOW_MS)
    assert [segment.base_offset for segment in three.segments] == left(three) == bases
    assert three.store.active.size == batches * size // 2
    assert [segment.size for segment in three.segments[:-1]] == [size] * (len(bases) - 1)


# --- one segment --------------------------------------------------------------------------------------------------


@pytest.fixture
def segment() -> Segment:
    """Batches of two records each, at 10, 12, ... 28, of which the third has the largest time."""
    log = broker_of(index_interval_bytes=2 * SIZE).log()
    log.truncate_fully_and_start_at(10)
    for n in range(10):
        put(log, 10 + 2 * n, 2, timestamp=NOW_MS + (500 if n == 2 else n))
    return log.active


@pytest.mark.parametrize("offset", range(9, 33))
def test_a_segment_is_cut(segment: Segment, offset: int) -> None:
    size = segment.size // 10
    kept = min(max(0, (offset - 10) // 2), 10)
    before = segment.size
    segment.truncate(offset)
    assert segment.size == segment.file.size() == kept * size
    if offset >= 30:
        assert segment.size == before
        return
    expected = {0: (-1, 10), 1: (NOW_MS, 11), 2: (NOW_MS + 1, 13)}.get(kept, (NOW_MS + 500, 15))
    assert (segment.load_max_timestamp(), segment.max_timestamp_offset) == expected
    assert segment.first_timestamp == (NOW_MS if kept else None)
    assert segment.read_end_offset() == 10 + 2 * kept
    assert all(segment.offset_index.entry(n)[0] < offset for n in range(len(segment.offset_index)))
    assert all(segment.time_index.entry(n)[1] < offset for n in range(len(segment.time_index)))
    assert segment.bytes_since_index == 0
    assert segment.time_hint is None
    if not kept:
        assert segment.created_ms == -1


def test_an_index_has_an_entry_for_each_interval(segment: Segment) -> None:
    size = segment.size // 10
    positions = [segment.offset_index.entry(n) for n in range(len(segment.offset_index))]
    expected, since = [], 0
    for n in range(10):
        if since > 2 * SIZE:
            expected.append((11 + 2 * n, n * size))
            since = 0
        since += size
    assert positions == expected
    times = [segment.time_index.entry(n) for n in range(len(segment.time_index))]
    assert times == [(NOW_MS + 500, 15)]  # the largest so far, where it rises


@pytest.mark.parametrize("has_index", [True, False])
def test_files_are_marked_and_named_again(has_index: bool) -> None:
    log = broker_of().log()
    put(log, 0)
    segment = log.active
    if has_index:
        segment.set_aborted([])
        segment.append_aborted(AbortedTransaction(1, 0, 0, 1))
    segment.seal()
    suffixes = [names.LOG, names.OFFSET_INDEX, names.TIME_INDEX] + [names.TXN_INDEX] * has_index
    assert sorted(segment.index_paths()) == sorted(segment.path(suffix) for suffix in suffixes[1:])

    def there() -> set[str]:
        return {entry.name for entry in log.disk.list(log.dir) if entry.name.startswith("0000")}

    for mark in (names.SWAP, names.DELETED, ""):
        segment.mark_files(mark)
        assert segment.mark == mark
        assert there() == {names.file_name(0, suffix, mark) for suffix in suffixes}
    log.disk.remove(segment.path(names.OFFSET_INDEX))
    segment.mark_files(names.DELETED)
    log.disk.remove(segment.path(names.LOG))
    with pytest.raises(FileNotFoundError):
        segment.mark_files(names.SWAP)
    segment.mark_files(names.SWAP, may_be_gone=True)

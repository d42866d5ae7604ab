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


def test_an_empty_segment_is_not_rolled_but_for_offsets_that_are_too_far() -> None:
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
def test_a_rolled_segment_is_sealed_or_if_nothing_is_in_it_dropped(is_empty: bool) -> None:
    broker = broker_of(index_interval_bytes=0)
    log = broker.log()
    if not is_empty:
        put(log, 0, timestamp=NOW_MS + 7)
    new = log.store.roll(50, config=log.config)
    assert [segment.base_offset for segment in log.segments] == ([50] if is_empty else [0, 50])
    assert log.active is new is log.segments[-1]
    assert len(log.active.time_index) == 0
    assert is_empty or log.segments[0].time_index.last() == (NOW_MS + 7, 0)
    found = {entry.name for entry in log.disk.list(log.dir)}
    assert (names.file_name(0, names.LOG) in found) is not is_empty
    broker.manager.remove_due(NOW_MS)
    assert not [entry.name for entry in log.disk.list(log.dir) if entry.name.endswith(names.DELETED)]


# --- finding ------------------------------------------------------------------------------------------------------


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


# --- one segment --------------------------------------------------------------------------------------------------


@pytest.fixture
def segment() -> Segment:
    """Batches of two records each, at 10, 12, ... 28, of which the third has the largest time."""
    log = broker_of(index_interval_bytes=2 * SIZE).log()
    log.truncate_fully_and_start_at(10)
    for n in range(10):
        put(log, 10 + 2 * n, 2, timestamp=NOW_MS + (500 if n == 2 else n))
    return log.active


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
    assert sorted(segment.index_paths()) == sorted(segment.path(one) for one in suffixes[1:])

    def there() -> set[str]:
        return {entry.name for entry in log.disk.list(log.dir) if entry.name.startswith("0000")}

    for mark in (names.SWAP, names.DELETED, ""):
        segment.mark_files(mark)
        assert segment.mark == mark
        assert there() == {names.file_name(0, one, mark) for one in suffixes}
    log.disk.remove(segment.path(names.OFFSET_INDEX))
    segment.mark_files(names.DELETED)
    log.disk.remove(segment.path(names.LOG))
    with pytest.raises(FileNotFoundError):
        segment.mark_files(names.SWAP)
    segment.mark_files(names.SWAP, may_be_gone=True)

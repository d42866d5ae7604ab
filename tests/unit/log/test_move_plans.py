"""The copies of a move: which, in which order, and how far it says that it is; file by file, and in small pieces."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.log.format import names
from barnabas.log.moving import Move
from barnabas.log.partition_log import PartitionLog
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, marker

LOG, OFFSETS, TIMES, ABORTED = names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX


@pytest.fixture
def broker() -> Broker:
    """Three segments at 0, 3 and 6, the second with an aborted transaction; the log ends at 8."""
    broker = Broker("/a", "/b", disk=MemoryDisk(), index_interval_bytes=0)  # type: ignore[arg-type]
    log = broker.log()
    for n in range(3):
        append(log, batch(b"%d" % n * 40, timestamp=NOW_MS + n))
    log.roll()
    append(log, batch(b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    append(log, marker(commit=False, producer_id=7), origin=Origin.COORDINATOR)
    append(log, batch(b"v", timestamp=NOW_MS + 5))
    log.roll()
    for n in range(2):
        append(log, batch(b"%d" % n * 60, timestamp=NOW_MS + 6 + n))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    return broker


@pytest.fixture
def log(broker: Broker) -> PartitionLog:
    return broker.log()


@pytest.fixture
def move(broker: Broker) -> Move:
    begun = broker.manager.begin_move("t", 0, "/b", NOW_MS)
    assert begun is not None
    return begun


def planned(move: Move, *, whole: bool = False) -> list[tuple[int, str, int, int]]:
    return [(part.base_offset, part.suffix, part.start, part.end) for part in move.plan(whole=whole)]


def size_of(log: PartitionLog, base_offset: int, suffix: str) -> int:
    return log.disk.stat(f"{log.dir}/{names.file_name(base_offset, suffix)}").size


def copies(move: Move) -> dict[str, bytes]:
    return {
        entry.name: move.disk.read(f"{move.directory}/{entry.name}")
        for entry in move.disk.list(move.directory)
    }


def test_what_is_there_is_not_copied_again(log: PartitionLog, move: Move) -> None:
    move.run(move.plan())
    assert planned(move) == []
    assert (move.copied_end_offset, move.offset_lag, move.size_bytes) == (8, 0, log.size_bytes)
    before = log.active.size
    append(log, batch(b"new"))
    assert planned(move) == [(6, LOG, before, log.active.size)]
    assert (move.copied_end_offset, move.offset_lag) == (8, 1)
    lags: list[int] = []
    move.run(move.plan(), lambda _: lags.append(move.offset_lag))
    assert lags == [1], "never more than before"
    assert (move.copied_end_offset, move.offset_lag, move.size_bytes) == (9, 0, log.size_bytes)
    assert copies(move) == {name: log.disk.read(f"{log.dir}/{name}") for name in copies(move)}
    log.roll()
    append(log, batch(b"newer"))
    assert planned(move) == [
        (6, OFFSETS, 0, size_of(log, 6, OFFSETS)), (6, TIMES, 0, size_of(log, 6, TIMES)), (9, LOG, 0, log.active.size),
    ]  # fmt: skip


@pytest.mark.parametrize("chunk_bytes", [1, 50, 1 << 20])
def test_files_are_copied_in_pieces_and_told_one_after_the_other(
    log: PartitionLog, move: Move, chunk_bytes: int
) -> None:
    plan, told = move.plan(), []
    move.run(
        plan,
        lambda count: told.append((count, move.copied_end_offset, move.size_bytes)),
        chunk_bytes=chunk_bytes,
    )
    sizes = [part.end for part in plan]
    assert [count for count, _, _ in told] == [
        min(chunk_bytes, size - at) for size in sizes for at in range(0, size, chunk_bytes)
    ]
    ends = [end for _, end, _ in told]
    assert ends == sorted(ends)
    assert set(ends) == {0, 3, 6}
    counted = [size for _, _, size in told]
    assert counted == sorted(counted)
    assert counted[-1] == log.size_bytes
    assert move.copied_end_offset == 8


@pytest.mark.parametrize("topic_id", [None, bytes(range(16))])
def test_finished_copy_has_exactly_the_files_of_the_log(
    log: PartitionLog, move: Move, topic_id: bytes | None
) -> None:
    log.topic_id = topic_id
    move.run(move.plan())
    for name in (
        "rubbish",
        names.file_name(99, LOG),
        names.file_name(0, ABORTED),
        names.file_name(1, names.SNAPSHOT),
    ):
        log.disk.open(f"{move.directory}/{name}", create=True)
    move.complete()
    files = copies(move)
    segments = {names.file_name(base, suffix) for base in (0, 3, 6) for suffix in (LOG, OFFSETS, TIMES)}
    snapshots = {names.file_name(base, names.SNAPSHOT) for base in (3, 6, 8)}
    small = {names.LEADER_EPOCH_CHECKPOINT} | ({names.PARTITION_METADATA} if topic_id else set())
    assert files.keys() == segments | {names.file_name(3, ABORTED)} | snapshots | small
    for name in files.keys() - small:
        assert files[name] == log.disk.read(f"{log.dir}/{name}"), name
    assert move.copied_end_offset == 8


@pytest.mark.parametrize("fails", ["/a", "/b"])
def test_the_end_of_a_move_names_the_dir_that_failed(log: PartitionLog, move: Move, fails: str) -> None:
    disk: Any = log.disk
    move.run(move.plan())
    suffix = names.SNAPSHOT if fails == "/a" else f"{names.LEADER_EPOCH_CHECKPOINT}.tmp"
    with disk.failing("write", suffix), pytest.raises(StorageError) as failure:
        move.complete()
    assert failure.value.log_dir == fails

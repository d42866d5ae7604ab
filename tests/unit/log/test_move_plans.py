"""The copies of a move: which, in which order, and how far it says that it is; file by file, and in small pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.log import moving
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
    found = broker.manager.begin_move("t", 0, "/b", NOW_MS)
    assert found is not None
    return found


def planned(move: Move, *, whole: bool = False) -> list[tuple[int, str, int, int]]:
    return [(one.base_offset, one.suffix, one.start, one.end) for one in move.plan(whole=whole)]


def size_of(log: PartitionLog, base_offset: int, suffix: str) -> int:
    return log.disk.stat(f"{log.dir}/{names.file_name(base_offset, suffix)}").size


def copies(move: Move) -> dict[str, bytes]:
    return {
        entry.name: move.disk.read(f"{move.directory}/{entry.name}")
        for entry in move.disk.list(move.directory)
    }


def test_of_the_active_segment_only_the_batches_are_copied_until_the_end(
    log: PartitionLog, move: Move
) -> None:
    sealed = [
        (0, LOG), (0, OFFSETS), (0, TIMES), (3, LOG), (3, OFFSETS), (3, TIMES), (3, ABORTED), (6, LOG),
    ]  # fmt: skip
    expected = [(*one, 0, log.active.size if one[0] == 6 else size_of(log, *one)) for one in sealed]
    assert planned(move) == expected
    at_end = planned(move, whole=True)
    assert at_end == [*expected, *((6, one, 0, size_of(log, 6, one)) for one in (OFFSETS, TIMES))]
    assert (move.copied_end_offset, move.offset_lag, move.size_bytes) == (0, 8, 0)


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


@pytest.mark.parametrize("offset", [7, 4])
def test_after_a_truncation_all_is_copied_anew(log: PartitionLog, move: Move, offset: int) -> None:
    """The copy may be of another history, even if it has the same length."""
    move.run(move.plan())
    log.truncate_to(offset, now_ms=NOW_MS)
    append(log, batch(b"other"))
    assert {start for _, _, start, _ in planned(move)} == {0}
    move.run(move.plan())
    assert (move.copied_end_offset, move.size_bytes) == (offset + 1, log.size_bytes)
    for segment in log.segments:
        name = names.file_name(segment.base_offset, LOG)
        assert copies(move)[name] == log.disk.read(f"{log.dir}/{name}")


def test_a_segment_of_the_same_name_is_another_one(log: PartitionLog, move: Move) -> None:
    move.run(move.plan())
    name = names.file_name(0, LOG)
    first, other = log.segments[:2]
    move._copied[name] = (other, first.size)
    assert planned(move) == [(0, LOG, 0, first.size)]
    move._copied[name] = (first, first.size + 1)  # longer than it is: not what it was
    assert planned(move) == [(0, LOG, 0, first.size)]
    move._copied[name] = (first, first.size - 1)
    assert planned(move) == [(0, LOG, first.size - 1, first.size)]


def test_an_index_that_is_not_there_is_made_again_where_the_log_goes(log: PartitionLog, move: Move) -> None:
    log.segments[0].release()
    log.disk.remove(log.segments[0].path(TIMES))
    assert [one[:2] for one in planned(move)][:3] == [(0, LOG), (0, OFFSETS), (3, LOG)]


@pytest.mark.parametrize("chunk_bytes", [1, 50, 1 << 20])
def test_files_are_copied_in_pieces_and_told_one_after_the_other(
    log: PartitionLog, move: Move, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(moving, "CHUNK_BYTES", chunk_bytes)
    plan, told = move.plan(), []
    move.run(plan, lambda count: told.append((count, move.copied_end_offset, move.size_bytes)))
    sizes = [one.end for one in plan]
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


def test_what_is_in_the_way_is_cut_off(log: PartitionLog, move: Move) -> None:
    path = f"{move.directory}/{names.file_name(0, LOG)}"
    log.disk.open(path, create=True).write(b"x" * 10_000, 0)
    move.run(move.plan())
    assert log.disk.read(path) == log.disk.read(log.segments[0].path(LOG))


def stopped(move: Move, after: int) -> Callable[[int], None]:
    """A throttle that cancels the move after so many pieces."""
    seen: list[int] = []

    def throttle(count: int) -> None:
        seen.append(count)
        if len(seen) == after:
            move.cancel()

    return throttle


@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_move_that_is_cancelled_stops_within_a_piece(
    log: PartitionLog, move: Move, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(moving, "CHUNK_BYTES", 50)
    move.run(move.plan(), stopped(move, after))
    assert move.size_bytes == 50 * after
    assert move.copied_end_offset == 0
    move.run(move.plan())
    assert move.size_bytes == 50 * after


@pytest.mark.parametrize(("base_offset", "end"), [(0, 0), (3, 3), (6, 6)])
@pytest.mark.parametrize("suffix", [LOG, OFFSETS])
def test_a_move_is_as_far_as_the_first_file_that_is_gone(
    log: PartitionLog, move: Move, base_offset: int, end: int, suffix: str
) -> None:
    plan = move.plan()
    if suffix == OFFSETS and base_offset == 6:
        plan = move.plan(whole=True)
    for segment in log.segments:
        segment.release()
    log.disk.remove(f"{log.dir}/{names.file_name(base_offset, suffix)}")
    move.run(plan)
    assert move.copied_end_offset == end


def test_a_file_that_is_shorter_than_planned_is_planned_again(log: PartitionLog, move: Move) -> None:
    plan = move.plan()
    log.segments[1].file.truncate(10)
    move.run(plan)
    assert move.copied_end_offset == 3


@pytest.mark.parametrize("topic_id", [None, bytes(range(16))])
def test_at_the_end_the_copy_has_what_the_log_has_and_nothing_else(
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
    found = copies(move)
    segments = {names.file_name(base, suffix) for base in (0, 3, 6) for suffix in (LOG, OFFSETS, TIMES)}
    snapshots = {names.file_name(base, names.SNAPSHOT) for base in (3, 6, 8)}
    small = {names.LEADER_EPOCH_CHECKPOINT} | ({names.PARTITION_METADATA} if topic_id else set())
    assert found.keys() == segments | {names.file_name(3, ABORTED)} | snapshots | small
    for name in found.keys() - small:
        assert found[name] == log.disk.read(f"{log.dir}/{name}"), name
    assert move.copied_end_offset == 8


def test_the_epochs_come_last_for_they_say_that_the_copy_is_whole(log: PartitionLog, move: Move) -> None:
    disk: Any = log.disk
    order: list[str] = []

    def noting(operation: str, path: str) -> None:
        if operation in ("open", "rename", "remove", "sync") and move.directory in path:
            order.append(f"{operation} {path.rpartition('/')[2]}")

    disk.fault = noting
    move.complete()
    disk.fault = None
    last_epochs = max(n for n, one in enumerate(order) if names.LEADER_EPOCH_CHECKPOINT in one)
    assert all(names.LEADER_EPOCH_CHECKPOINT in one or one.startswith("sync") for one in order[last_epochs:])
    assert any(names.PARTITION_METADATA in one for one in order[:last_epochs])


@pytest.mark.parametrize("fails", ["/a", "/b"])
def test_the_end_of_a_move_names_the_dir_that_failed(log: PartitionLog, move: Move, fails: str) -> None:
    disk: Any = log.disk
    move.run(move.plan())
    suffix = names.SNAPSHOT if fails == "/a" else f"{names.LEADER_EPOCH_CHECKPOINT}.tmp"
    with disk.failing("write", suffix), pytest.raises(StorageError) as failure:
        move.complete()
    assert failure.value.log_dir == fails

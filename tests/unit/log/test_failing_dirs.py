"""Log dirs that fail while a log is made, moved, cleaned or closed, and calls of the real disk that end early."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.damage import Damage
from barnabas.log.disk import OsDisk, OsFile
from barnabas.log.format import names
from barnabas.log.manager import PREFERRED_MAX
from barnabas.log.partition_log import PartitionLog
from barnabas.records.errors import CorruptRecordsError
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all


def broker_of(*dirs: str, **settings: Any) -> Broker:
    disk = MemoryDisk()
    return Broker(*(dirs or ("/d",)), disk=disk, **settings)  # type: ignore[arg-type]


def filled(broker: Broker, count: int = 5, topic: str = "t", **options: Any) -> PartitionLog:
    log = broker.log(topic)
    for n in range(count):
        append(log, batch(b"%d" % n, timestamp=NOW_MS + n), **options)
    return log


def _raise(error: OSError) -> None:
    raise error


# --- log dirs that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["usage", "meta"])
def test_a_log_dir_that_fails_is_named(way: str) -> None:
    broker = broker_of("/d", "/e")
    disk: Any = broker.disk
    if way == "usage":
        disk.usage = lambda path: _raise(OSError(errno.EIO, "broken"))
        with pytest.raises(StorageError) as failure:
            broker.manager.usage("/e")
        assert failure.value.log_dir == "/e"
    else:
        with disk.failing("write", "/e/meta.properties.tmp"), pytest.raises(StorageError) as failure:
            broker.manager.write_meta("c", 1)
        assert failure.value.log_dir == "/e"


def test_log_dir_that_fails_during_close_is_left_unmarked() -> None:
    broker = broker_of("/d", "/e")
    filled(broker)
    disk: Any = broker.disk
    with disk.failing("write", f"/d/{names.CLEAN_SHUTDOWN}.tmp"):
        broker.manager.close()
    assert broker.manager.offline.keys() == {"/d"}
    marks = [path for path in ("/d", "/e") if names.CLEAN_SHUTDOWN in {file.name for file in disk.list(path)}]
    assert marks == ["/e"]


def test_preferred_dirs_are_remembered_up_to_a_number() -> None:
    broker = broker_of("/d", "/e")
    for n in range(PREFERRED_MAX + 2):
        broker.manager.prefer("t", n, "/e")
    for n in range(3):  # the first two are forgotten: then the dir with the fewest is taken
        broker.log("other", n)
    before = [broker.log("t", n).log_dir for n in (0, 1, 2, 3)]
    assert before[2:] == ["/e", "/e"]
    assert "/d" in before[:2]


# --- moves --------------------------------------------------------------------------------------------------------


def moving(**settings: Any) -> tuple[Broker, Any]:
    broker = broker_of("/a", "/b", **settings)
    log = filled(broker)
    assert log.log_dir == "/a"
    return broker, broker.manager.begin_move("t", 0, "/b", NOW_MS)


@pytest.mark.parametrize(
    ("operation", "suffix", "failed"),
    [
        ("open", "/a/t-0/00000000000000000000.log", "/a"),
        ("read", "/a/t-0/00000000000000000000.log", "/a"),
        ("write", "00000000000000000000.log", "/b"),
        ("sync", "00000000000000000000.log", "/b"),
    ],
)
def test_a_move_names_the_dir_that_failed(operation: str, suffix: str, failed: str) -> None:
    broker, move = moving()
    plan = move.plan()
    disk: Any = broker.disk
    with disk.failing(operation, suffix), pytest.raises(StorageError) as failure:
        move.run(plan)
    assert failure.value.log_dir == failed
    assert [record.value for record in read_all(broker.log())] == [b"%d" % n for n in range(5)]


def test_a_dir_in_which_no_copy_can_begin_is_named() -> None:
    broker = broker_of("/a", "/b")
    filled(broker)
    disk: Any = broker.disk
    disk.make_dirs = lambda path: _raise(OSError(errno.EROFS, "read only", path))
    with pytest.raises(StorageError) as failure:
        broker.manager.begin_move("t", 0, "/b", NOW_MS)
    assert failure.value.log_dir == "/b"
    assert len(broker.manager.moves) == 0


@pytest.mark.parametrize("what", ["segment", "index", "snapshot"])
def test_a_move_that_misses_a_file_ends_only_for_records(what: str) -> None:
    broker, move = moving(segment_bytes=100)
    log = broker.log()
    append(log, batch(b"p", producer_id=7, producer_epoch=0, base_sequence=0))
    move.run(move.plan())
    disk: Any = broker.disk
    append(log, batch(b"last"))
    log.segments[0].release()
    if what == "segment":
        log.active.release()
        path = log.active.path(names.LOG)
    elif what == "index":
        path = log.segments[0].path(names.OFFSET_INDEX)
    else:
        log.take_snapshot()
        path = log.store.snapshots.path(max(log.store.snapshots.offsets))
    if what == "segment":
        with disk.failing("open", path, number=errno.ENOENT), pytest.raises(StorageError) as failure:
            broker.manager.finish_move(move, NOW_MS)
        assert failure.value.log_dir == "/a"
    else:
        disk.remove(path)
        moved = broker.manager.finish_move(move, NOW_MS)
        assert moved.log_dir == "/b"
        assert [record.value for record in read_all(moved)][-1] == b"last"


def test_moved_log_that_cannot_be_opened_is_missing() -> None:
    broker, move = moving()
    disk: Any = broker.disk
    with disk.failing("list", "/b/t-0"), pytest.raises(StorageError) as failure:
        broker.manager.finish_move(move, NOW_MS)
    assert failure.value.log_dir == "/b"
    assert broker.manager.missing == {("t", 0): "/b/t-0"}


@pytest.mark.parametrize("fails", ["once", "also back"])
def test_a_swap_that_fails_gives_the_log_its_name_again(fails: str) -> None:
    broker, move = moving()
    disk: Any = broker.disk
    rename, seen = disk.rename, []

    def failing(source: str, target: str) -> None:
        seen.append((source, target))
        if target == "/b/t-0" or (fails == "also back" and target == "/a/t-0"):
            raise OSError(errno.EIO, "broken", source)
        rename(source, target)

    disk.rename = failing
    with pytest.raises(StorageError) as failure:
        broker.manager.finish_move(move, NOW_MS)
    assert failure.value.log_dir == ("/b" if fails == "once" else "/a")
    assert [target for _, target in seen][-2:] == ["/b/t-0", "/a/t-0"]
    assert ("t-0" in {file.name for file in disk.list("/a")}) is (fails == "once")


def test_a_swap_that_may_not_last_is_in_doubt() -> None:
    broker, move = moving()
    disk: Any = broker.disk
    sync_dir = disk.sync_dir

    def failing(path: str) -> None:
        if path == "/b" and "t-0" in {file.name for file in disk.list("/b")}:
            raise OSError(errno.ENOSPC, "full", path)
        sync_dir(path)

    disk.sync_dir = failing
    with pytest.raises(StorageError) as failure:
        broker.manager.finish_move(move, NOW_MS)
    assert (failure.value.log_dir, failure.value.is_full) == ("/b", False)


def test_a_move_that_was_ended_is_not_ended_again() -> None:
    broker, move = moving()
    broker.manager.moves.cancel(move, NOW_MS)
    broker.manager.moves.cancel(move, NOW_MS)
    assert len(broker.manager.trash) == 1
    assert move.is_cancelled
    again = broker.manager.begin_move("t", 0, "/b", NOW_MS)
    broker.manager.moves.cancel(move, NOW_MS)
    assert broker.manager.moves.get("t", 0) is again
    assert not again.is_cancelled
    again.cancel()
    again.run(again.plan())
    assert again.size_bytes == 0


# --- cleaning -----------------------------------------------------------------------------------------------------


def dirty() -> tuple[Broker, LogCleaner]:
    broker = broker_of(
        cleanup_policy=frozenset(("compact",)), min_cleanable_dirty_ratio=0.0, segment_bytes=100
    )
    for topic in ("t", "u"):
        for _ in range(4):
            append(broker.log(topic), batch(b"v"))
        broker.log(topic).flush(NOW_MS)
    return broker, LogCleaner(lambda: broker.manager)


@pytest.mark.parametrize("error", [CorruptRecordsError("damaged"), OSError(errno.EIO, "broken")])
def test_a_log_whose_cleaning_cannot_begin_is_left_out(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    broker, cleaner = dirty()
    make_task = cleaner._make_task
    first, other = broker.log("t"), broker.log("u")

    def make(log: PartitionLog, *args: Any) -> Any:
        if log is first:
            raise error
        return make_task(log, *args)

    monkeypatch.setattr(cleaner, "_make_task", make)
    due: Any = [(log, cleaner.due_range(log, NOW_MS)) for log in (first, other)]
    if isinstance(error, OSError):
        with pytest.raises(StorageError) as failure:
            cleaner.take(due, NOW_MS)
        assert failure.value.log_dir == "/d"
        assert cleaner.uncleanable == set()
    else:
        task = cleaner.take(due, NOW_MS)
        assert task is not None
        assert task.partition_log is other
        assert cleaner.uncleanable == {first}
        assert cleaner.due_range(first, NOW_MS) is None


def test_our_own_fault_in_a_cleaning_is_not_hidden() -> None:
    broker, cleaner = dirty()
    log = broker.log("t")
    due: Any = cleaner.due_range(log, NOW_MS)
    task = cleaner.take([(log, due)], NOW_MS)
    assert task is not None
    with pytest.raises(ZeroDivisionError):
        cleaner.failed(task, ZeroDivisionError())
    assert cleaner.take([(log, due)], NOW_MS) is not None


# --- the real disk ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[10], [1, 9], [4, 3, 3], [9, 1]])
def test_a_write_goes_on_until_all_of_it_is_written(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, counts: list[int]
) -> None:
    file, counts_left, pwrite = OsFile(f"{tmp_path}/x", os.O_RDWR | os.O_CREAT), list(counts), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: counts_left.pop(0)], at))
    file.write(b"0123456789", 3)
    assert counts_left == []
    assert file.read(20, 0) == b"\0\0\0" + b"0123456789"
    counts_left[:] = [4, 0]
    with pytest.raises(OSError, match="nothing could be written"):
        file.write(b"0123456789", 3)


def test_a_file_that_is_gone_is_not_at_its_path(tmp_path: Any) -> None:
    file = OsDisk().open(f"{tmp_path}/x", create=True)
    assert file.is_at(f"{tmp_path}/x")
    os.rename(f"{tmp_path}/x", f"{tmp_path}/y")
    assert not file.is_at(f"{tmp_path}/x")
    assert file.is_at(f"{tmp_path}/y")
    OsDisk().open(f"{tmp_path}/x", create=True)
    assert not file.is_at(f"{tmp_path}/x")


def test_held_lock_is_seen_and_free_lock_is_not_taken(tmp_path: Any) -> None:
    disk, path = OsDisk(), f"{tmp_path}/.lock"
    assert not disk.is_locked(path)
    assert not os.path.exists(path)
    lock = disk.lock(path)
    assert disk.is_locked(path)
    assert lock.is_in_place()
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    assert not lock.is_in_place()
    assert not disk.is_locked(path)
    disk.lock(path).release()


def test_other_errors_of_a_lock_are_told_as_they_are(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = OsDisk(), f"{tmp_path}/.lock"
    disk.open(path, create=True)
    for number, expected in ((errno.EACCES, True), (errno.EAGAIN, True), (errno.ENOLCK, None)):
        monkeypatch.setattr("fcntl.flock", lambda *_, number=number: _raise(OSError(number, "no")))
        if expected:
            assert disk.is_locked(path)
            with pytest.raises(BlockingIOError):
                disk.lock(path)
        else:
            for ask in (disk.is_locked, disk.lock):
                with pytest.raises(OSError, match="no") as failure:
                    ask(path)
                assert failure.value.errno == number


def test_a_machine_without_a_boot_id_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.system.files._BOOT_ID", "/nowhere/boot_id")
    monkeypatch.setattr("barnabas.system.files._control_value", lambda _: b"")
    assert OsDisk().boot_id() == b""


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "following", "text"),
    [
        (5, -1, "offsets from 5 on"),
        (5, 5, "no offset"),
        (5, 4, "no offset"),
        (5, 6, "offsets 5 to 5"),
        (5, 9, "offsets 5 to 8"),
    ],
)
def test_what_is_lost_is_said_in_words(offset: int, following: int, text: str) -> None:
    assert Damage("/d/x", 1, 2, offset, following, "why").lost == text

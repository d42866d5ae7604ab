"""Many logs made or deleted at once: nothing is synced for each of them, and one that fails costs no other."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from barnabas.errors import StorageError
from barnabas.log.creating import KEPT_OPEN_MAX, THREADS, Creation, Wanted
from barnabas.log.format import names
from barnabas.log.workers import OsWorkers
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, TOPIC_ID, Broker, append, batch, read_all

COUNT = 10 * KEPT_OPEN_MAX


def make(disk: MemoryDisk, *dirs: str) -> Broker:
    for path in dirs:
        disk.make_dirs(path)
    disk.sync_dir("/")
    return Broker(*map(Path, dirs), disk=disk)


def create(broker: Broker, count: int = COUNT) -> None:
    creation = broker.manager.begin_creation([Wanted("t", n, TOPIC_ID) for n in range(count)], NOW_MS)
    creation.run()
    for new in creation.logs:
        broker.manager.finish_creation(new, NOW_MS)


def delete(broker: Broker, count: int = COUNT) -> None:
    deletion = broker.manager.begin_deletion([("t", n) for n in range(count)], NOW_MS)
    assert len(broker.manager) == 0
    deletion.run()
    deletion.finish()


def test_syncs_do_not_grow_with_the_number_of_empty_logs():
    disk, syncs = MemoryDisk(), []
    broker = make(disk, "/data")
    broker.manager.write_meta("c", 1)
    disk.fault = lambda op, path: syncs.append(path) if op.startswith("sync") else None
    create(broker)
    broker.manager.close()
    assert len(syncs) < 20, syncs


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_records_of_new_logs_outlive_a_cut_after_a_clean_end(seed):
    disk = MemoryDisk()
    broker = make(disk, "/data")
    create(broker)
    written = [0, COUNT // 2, COUNT - 1]
    for n in written:
        append(broker.log("t", n), batch(b"%d" % n))
    broker.manager.close()
    again = Broker(Path("/data"), disk=disk.crash(None if seed is None else Random(seed)))
    for n in range(COUNT):
        log = again.log("t", n)
        assert [record.value for record in read_all(log)] == ([b"%d" % n] if n in written else [])
        assert log.topic_id in (TOPIC_ID, None)  # it is written again, from the metadata
    again.manager.close()


def test_logs_that_are_not_used_hold_no_files_open():
    broker = make(MemoryDisk(), "/data")
    create(broker)
    assert len(broker.manager.pool) == 0
    append(broker.log("t", 7), batch(b"v"))
    assert len(broker.manager.pool) == 1
    broker.manager.close()


def test_they_are_spread_over_the_log_dirs():
    broker = make(MemoryDisk(), "/a", "/b", "/c")
    create(broker, 30)
    places = [log.log_dir for log in broker.manager]
    assert {path: places.count(path) for path in ("/a", "/b", "/c")} == {"/a": 10, "/b": 10, "/c": 10}
    broker.manager.close()


def test_a_log_that_cannot_be_made_keeps_no_other_back():
    disk = MemoryDisk()
    broker = make(disk, "/a", "/b")
    creation = broker.manager.begin_creation([Wanted("t", n, TOPIC_ID) for n in range(COUNT)], NOW_MS)
    disk.fault = lambda op, path: OSError(errno.EIO, "broken") if path.startswith("/b/t-") else None
    creation.run()
    disk.fault = None
    for new in creation.logs:
        if new.log_dir == "/a":
            broker.manager.finish_creation(new, NOW_MS)
        else:
            with pytest.raises(StorageError, match="/b"):
                broker.manager.finish_creation(new, NOW_MS)
    assert len(broker.manager) == COUNT // 2
    broker.manager.close()


def test_log_dir_that_fails_during_creation_has_no_logs():
    disk = MemoryDisk()
    broker = make(disk, "/a", "/b")
    creation = broker.manager.begin_creation([Wanted("t", n, TOPIC_ID) for n in range(4)], NOW_MS)
    creation.run()
    broker.manager.take_offline("/b", StorageError("/b", OSError(errno.EIO, "broken")))
    for new in creation.logs:
        if new.log_dir == "/b":
            with pytest.raises(StorageError):
                broker.manager.finish_creation(new, NOW_MS)
        else:
            broker.manager.finish_creation(new, NOW_MS)
    assert {log.log_dir for log in broker.manager} == {"/a"}
    broker.manager.close()


def test_deleted_logs_are_renamed_and_removed_later():
    disk = MemoryDisk()
    broker = make(disk, "/data")
    create(broker)
    delete(broker)
    kinds = [names.parse_dir_name(dir_.name) for dir_ in disk.list("/data") if dir_.is_dir]
    assert [kind.kind for kind in kinds if kind] == [names.DirKind.DELETE] * COUNT
    create(broker, 3)  # under the same names
    assert broker.manager.remove_due(NOW_MS + 100_000) == COUNT
    assert len([dir_ for dir_ in disk.list("/data") if dir_.is_dir]) == 3
    broker.manager.close()


def test_what_cannot_be_renamed_is_reported_and_the_others_go():
    disk = MemoryDisk()
    broker = make(disk, "/data")
    create(broker)
    deletion = broker.manager.begin_deletion([("t", n) for n in range(COUNT)], NOW_MS)
    disk.fault = lambda op, path: OSError(errno.EIO, "broken") if path.endswith("/t-5") else None
    deletion.run()
    disk.fault = None
    with pytest.raises(StorageError):
        deletion.finish()
    assert len(broker.manager.trash) == COUNT - 1
    broker.manager.close()


def test_cancelled_removal_is_resumed_by_a_later_start():
    disk = MemoryDisk()
    broker = make(disk, "/data")
    create(broker)
    delete(broker)
    task = broker.manager.begin_removal(NOW_MS + 100_000)
    assert task is not None
    countdown = 10

    def check_cancelled() -> None:
        nonlocal countdown
        countdown -= 1
        if countdown < 0:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        task.run(check_cancelled)
    broker.manager.close()
    assert len([dir_ for dir_ in disk.list("/data") if dir_.is_dir]) == COUNT - 10
    broker.start(NOW_MS)
    assert broker.manager.remove_due(NOW_MS) == COUNT - 10
    broker.manager.close()


@pytest.mark.parametrize("count", [1, THREADS, 2 * THREADS])
def test_a_defect_in_one_of_the_threads_ends_the_making_of_all(count):
    class Defective:
        def make(self, disk: object, *, stays_open: bool) -> None:
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        Creation(MemoryDisk(), OsWorkers(), [Defective()] * count).run()

"""Files in the trash are removed, whatever becomes of their directories: renamed, deleted and made again."""

import errno

import pytest

from barnabas.errors import StorageError
from barnabas.log.removal.pending import Trash
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, read_all

OLD = NOW_MS - 10**12
LATER = NOW_MS + 60_000


@pytest.fixture
def disk():
    disk = MemoryDisk()
    for path in ("/a", "/b"):
        disk.make_dirs(path)
    return disk


@pytest.fixture
def broker(disk):
    """One log with a retired segment that waits, and a record in the segment after it."""
    broker = Broker("/a", "/b", disk=disk)
    retire(broker)
    return broker


def retire(broker):
    log = broker.log()
    append(log, batch(timestamp=OLD))
    assert log.apply_retention(NOW_MS) == 1
    append(log, batch(b"kept"))
    return log


def files(disk, path):
    return sorted(entry.name for entry in disk.list(path))


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("is_planned_before", [False, True])
def test_a_topic_is_deleted_while_files_of_it_wait(broker, disk, is_created_again, is_planned_before):
    task = broker.manager.begin_removal(LATER) if is_planned_before else None
    broker.manager.delete("t", 0, NOW_MS)
    if is_created_again:
        append(broker.log(), batch(b"new"))
    task = task or broker.manager.begin_removal(LATER)
    task.run()
    task.finish()
    broker.manager.remove_due(LATER)
    assert [name for path in ("/a", "/b") for name in files(disk, path) if "-delete" in name] == []
    assert len(broker.manager.trash) == 0
    if is_created_again:
        assert [record.value for record in read_all(broker.log())] == [b"new"]


def test_what_is_deleted_while_it_is_removed_is_no_error(broker, disk):
    task = broker.manager.begin_removal(LATER)
    seen = []

    def fault(operation, path):
        if operation == "remove" and not seen:
            seen.append(path)
            broker.manager.delete("t", 0, NOW_MS)

    disk.fault = fault
    task.run()
    disk.fault = None
    task.finish()
    assert broker.manager.remove_due(LATER) == 1
    assert len(broker.manager.trash) == 0


@pytest.mark.parametrize("is_planned_before", [False, True])
def test_what_waits_in_a_log_that_is_set_aside_is_removed_there(broker, disk, is_planned_before):
    task = broker.manager.begin_removal(LATER) if is_planned_before else None
    kept = broker.manager.set_aside("t", 0)
    if task is not None:
        task.run()
        task.finish()
    broker.manager.remove_due(LATER)
    assert not [name for name in files(disk, kept) if name.endswith(".deleted")]
    assert f"{1:020}.log" in files(disk, kept)
    assert len(broker.manager.trash) == 0


def test_pending_removals_of_a_moved_log_stay_in_its_old_dir(broker, disk):
    move = broker.manager.begin_move("t", 0, "/b", NOW_MS)
    broker.manager.finish_move(move, NOW_MS)
    broker.manager.remove_due(LATER)
    assert "t-0" not in files(disk, "/a")
    assert not [name for name in files(disk, "/a") if "-delete" in name]
    assert [record.value for record in read_all(broker.log())] == [b"kept"]


def test_what_could_not_be_removed_is_tried_again(broker, disk):
    with disk.failing("remove", number=errno.EMFILE), pytest.raises(StorageError) as failure:
        broker.manager.remove_due(LATER)
    assert failure.value.is_full
    assert broker.manager.remove_due(LATER) > 0
    assert not [name for name in files(disk, "/a/t-0") if name.endswith(".deleted")]


def test_directory_that_is_still_written_to_is_tried_again(broker, disk):
    broker.manager.delete("t", 0, NOW_MS)
    with disk.failing("remove", "-delete", number=errno.ENOTEMPTY):
        broker.manager.remove_due(LATER)
    assert len(broker.manager.trash) == 1
    assert broker.manager.remove_due(LATER) == 1


def test_a_path_that_waits_again_waits_until_its_new_time():
    trash = Trash()
    trash.add(10, "/a", ["/a/t-0/x"])
    trash.add(20, "/a", ["/a/t-0/x"])
    assert trash.take_due(19) == []
    (doomed,) = trash.take_due(20)
    trash.removed(doomed)
    assert len(trash) == 0


def test_what_is_on_a_log_dir_that_failed_is_forgotten():
    trash = Trash()
    trash.add(10, "/a", ["/a/x", "/a/t-0/y"])
    trash.add(10, "/b", ["/b/x"])
    trash.forget("/a")
    assert [doomed.path for doomed in trash.take_due(10)] == ["/b/x"]

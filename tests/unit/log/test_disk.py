"""The real disk and the one in memory do as the log relies on; and the latter fails like a real one."""

import errno
import os
import stat
from random import Random

import pytest

from barnabas.log.disk import Entry, OsDisk
from barnabas.testing.memory_disk import MemoryDisk


@pytest.fixture(params=[OsDisk, MemoryDisk])
def disk(request):
    return request.param()


@pytest.fixture
def root(disk, tmp_path):
    path = str(tmp_path / "root")
    disk.make_dirs(path)
    return path


# --- the contract ---


def test_files_are_written_and_read_at_positions(disk, root):
    file = disk.open(f"{root}/f", create=True)
    file.write(b"abc", 0)
    file.write(memoryview(b"xyz"), 5)
    file.write(bytearray(b"B"), 1)
    assert file.read(100, 0) == b"aBc\0\0xyz"
    assert (file.read(2, 1), file.read(5, 8), file.size()) == (b"Bc", b"", 8)
    assert disk.read(f"{root}/f") == b"aBc\0\0xyz"
    assert disk.stat(f"{root}/f").size == 8


def test_large_files_are_read_whole(disk, root):
    data = bytes(range(256)) * 1_000
    disk.open(f"{root}/f", create=True).write(data, 0)
    assert disk.read(f"{root}/f") == data


def test_files_are_cut_off_and_extended(disk, root):
    file = disk.open(f"{root}/f", create=True)
    file.write(b"abcdef", 0)
    file.truncate(2)
    file.truncate(4)
    assert file.read(10, 0) == b"ab\0\0"
    file.allocate(6)
    assert file.size() == 6
    file.allocate(1)
    assert file.read(10, 0) == b"ab\0\0\0\0"


def test_a_region_has_the_bytes_or_says_where_they_are(disk, root):
    file = disk.open(f"{root}/f", create=True)
    file.write(b"abcdef", 0)
    region = file.region(2, 3)
    assert len(region) == 3
    if not isinstance(region, bytes):
        assert (region.position, region.owner) == (2, file)


def test_an_open_file_survives_its_name(disk, root):
    file = disk.open(f"{root}/f", create=True)
    file.write(b"abc", 0)
    disk.rename(f"{root}/f", f"{root}/g")
    disk.remove(f"{root}/g")
    assert disk.list(root) == []
    file.write(b"d", 3)
    assert file.read(9, 0) == b"abcd"


@pytest.mark.parametrize("path", ["missing", "missing/f"])
def test_what_is_not_there_is_not_found(disk, root, path):
    for attempt in (
        lambda: disk.open(f"{root}/{path}"),
        lambda: disk.read(f"{root}/{path}"),
        lambda: disk.stat(f"{root}/{path}"),
        lambda: disk.list(f"{root}/{path}"),
        lambda: disk.rename(f"{root}/{path}", f"{root}/x"),
        lambda: disk.sync_dir(f"{root}/{path}"),
        lambda: disk.usage(f"{root}/{path}"),
        lambda: disk.open(f"{root}/missing/f", create=True),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    disk.remove(f"{root}/{path}")
    disk.remove_tree(f"{root}/{path}")


def test_files_and_directories_are_told_apart(disk, root):
    disk.open(f"{root}/f", create=True)
    disk.make_dirs(f"{root}/d/e")
    disk.make_dirs(f"{root}/d/e")
    assert sorted(disk.list(root)) == [Entry("d", True), Entry("f", False)]
    with pytest.raises(NotADirectoryError):
        disk.make_dirs(f"{root}/f/g")
    with pytest.raises(NotADirectoryError):
        disk.list(f"{root}/f")
    with pytest.raises(IsADirectoryError):
        disk.open(f"{root}/d")


def test_a_rename_replaces_what_is_there(disk, root):
    disk.replace(f"{root}/a", b"new", sync=True)
    disk.replace(f"{root}/b", b"old", sync=False)
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.read(f"{root}/b") == b"new"
    assert disk.list(root) == [Entry("b", False)]


def test_a_directory_is_renamed_and_removed_with_all_in_it(disk, root):
    disk.make_dirs(f"{root}/d/e")
    disk.open(f"{root}/d/f", create=True).write(b"x", 0)
    disk.rename(f"{root}/d", f"{root}/g")
    assert disk.read(f"{root}/g/f") == b"x"
    disk.remove_tree(f"{root}/g")
    assert disk.list(root) == []


def test_files_have_an_age(disk, root):
    disk.replace(f"{root}/f", b"x", sync=False)
    disk.set_modified(f"{root}/f", 1_234_567)
    assert disk.stat(f"{root}/f").modified_ms == 1_234_567


@pytest.mark.skipif(not hasattr(os, "O_NOATIME"), reason="this system has no such flag")
def test_reading_a_file_does_not_change_when_it_was_read(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    os.utime(path, (1_000, 2_000))
    assert OsDisk().open(str(path)).read(3, 0) == b"abc"
    assert path.stat().st_atime == 1_000


@pytest.mark.parametrize("create", [False, True])
def test_a_file_of_another_owner_is_opened_all_the_same(tmp_path, monkeypatch, create):
    open_as_owner = os.open

    def open_as_another(path, flags, *mode):
        if flags & getattr(os, "O_NOATIME", 0):
            raise PermissionError(errno.EPERM, "not the owner", path)
        return open_as_owner(path, flags, *mode)

    (tmp_path / "f").write_bytes(b"abc")
    monkeypatch.setattr(os, "open", open_as_another)
    assert OsDisk().open(str(tmp_path / "f"), create=create).read(3, 0) == b"abc"


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_private_file_stays_private_when_it_is_replaced(tmp_path):
    disk, path = OsDisk(), str(tmp_path / "f")
    disk.make_private(path)
    assert mode_of(path) == 0o600
    os.chmod(path, 0o644)
    disk.make_private(path)
    assert mode_of(path) == 0o600
    (tmp_path / "f.tmp").write_bytes(b"left by a crash")
    disk.replace(path, b"secret", sync=False)
    assert mode_of(path) == 0o600
    assert disk.read(path) == b"secret"


def test_a_file_is_made_private_with_what_it_holds(disk, root):
    disk.make_private(f"{root}/new")
    assert disk.read(f"{root}/new") == b""
    disk.replace(f"{root}/old", b"content", sync=False)
    disk.make_private(f"{root}/old")
    assert disk.read(f"{root}/old") == b"content"


def test_a_lock_is_held_by_one(disk, root):
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    lock.release()
    disk.lock(f"{root}/.lock").release()


def test_sync_and_usage_and_ids(disk, root):
    disk.open(f"{root}/f", create=True).sync()
    disk.sync_dir(root)
    usage = disk.usage(root)
    assert 0 < usage.usable <= usage.total
    assert len({disk.unique_id() for _ in range(10)}) == 10
    assert len(disk.unique_id()) == 16


# --- the worst disk that keeps its promises ---


@pytest.fixture
def memory():
    disk = MemoryDisk()
    disk.make_dirs("/d")
    disk.sync_dir("/")
    return disk


def test_only_what_was_synced_survives(memory):
    file = memory.open("/d/f", create=True)
    file.write(b"safe", 0)
    file.sync()
    memory.sync_dir("/d")
    file.write(b"LOST", 0)
    memory.open("/d/lost", create=True).sync()
    after = memory.crash()
    assert after.read("/d/f") == b"safe"
    assert after.list("/d") == [Entry("f", False)]
    assert memory.read("/d/f") == b"LOST"


def test_a_name_without_its_content_is_an_empty_file(memory):
    memory.replace("/d/f", b"content", sync=False)
    memory.sync_dir("/d")
    assert memory.crash().read("/d/f") == b""


def test_a_replaced_file_is_the_old_or_the_new_one(memory):
    memory.replace("/d/f", b"old", sync=True)
    memory.replace("/d/f", b"new", sync=True)
    assert memory.crash().read("/d/f") == b"new"
    memory.rename("/d/f", "/d/g")
    seen = {tuple(entry.name for entry in memory.crash(Random(seed)).list("/d")) for seed in range(20)}
    assert seen == {("f",), ("g",)}


def test_unsynced_writes_may_be_torn(memory):
    file = memory.open("/d/f", create=True)
    memory.sync_dir("/d")
    file.write(b"abcdef", 0)
    seen = {memory.crash(Random(seed)).read("/d/f") for seed in range(100)}
    assert {b"", b"abcdef"} < seen <= {b"abcdef"[:size] for size in range(7)}


def test_a_full_disk_takes_what_fits(memory):
    memory.room = 4
    file = memory.open("/d/f", create=True)
    file.write(b"abc", 0)
    with pytest.raises(OSError, match="no space left") as error:
        file.write(b"def", 3)
    assert error.value.errno == errno.ENOSPC
    assert memory.read("/d/f") == b"abcd"
    file.write(b"A", 0)
    assert memory.usage("/d").usable == 0


def test_operations_fail_on_demand(memory):
    file = memory.open("/d/f.log", create=True)
    with memory.failing("sync", ".log", after=1):
        file.sync()
        memory.sync_dir("/d")
        with pytest.raises(OSError, match="sync failed"):
            file.sync()
    file.sync()


def test_locks_end_with_the_machine(memory):
    memory.lock("/d/.lock")
    memory.sync_dir("/d")
    memory.crash().lock("/d/.lock")

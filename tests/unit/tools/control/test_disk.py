"""A disk on which faults are committed: what each call asks of rules, and what is left undone once it is dead."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.log.disk import OsDisk
from barnabas.tools.control import copying
from barnabas.tools.control.disk import FaultyDisk
from barnabas.tools.faults.engine import Faults
from barnabas.tools.faults.events import DISK_READ, DISK_SYNC, DISK_WRITE

PATH = "/data/my-topic-7/00000000000000000000.log"


class Disk:
    """Stands for a disk: remembers what is done to it."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def do(*arguments: Any, **more: Any) -> Any:
            self.done.append((name, *arguments, *more.values()))
            return f"{name} done"

        return do

    def open(self, path: str, *, create: bool = False) -> Any:
        self.done.append(("open", path, create))
        return File(self)


class File:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: (self._disk.done.append((f"file {name}", *arguments)), f"{name} done")[1]


class Striking(FaultyDisk):
    """Remembers which events are asked about."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk, Faults(), clock_ms=lambda: 0.0)  # type: ignore[arg-type]
        self.struck: list[tuple[str, str]] = []

    def strike(self, event: str, path: str) -> None:
        self.struck.append((event, path))
        super().strike(event, path)


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str | None]] = [
    ("replace", (PATH, b"x"), {"sync": True}, DISK_WRITE),
    ("set_modified", (PATH, 5), {}, None),
    ("make_dirs", (PATH,), {}, DISK_WRITE),
    ("rename", (PATH, "/b"), {}, None),
    ("remove", (PATH,), {}, None),
    ("remove_tree", (PATH,), {}, None),
    ("sync_dir", (PATH,), {}, DISK_SYNC),
]
FILE_CALLS: list[tuple[str, tuple[Any, ...], str | None]] = [
    ("write", (b"x", 3), DISK_WRITE),
    ("truncate", (4,), None),
    ("allocate", (5,), DISK_WRITE),
    ("sync", (), DISK_SYNC),
]


@pytest.mark.parametrize(("name", "arguments", "more", "event"), CALLS)
def test_a_change_is_made_after_rules_were_asked_and_not_after_death(
    name: str, arguments: Any, more: Any, event: str | None
) -> None:
    below = Disk()
    disk = Striking(below)
    getattr(disk, name)(*arguments, **more)
    assert below.done == [(name, *arguments, *more.values())]
    assert disk.struck == ([(event, PATH)] if event else [])
    disk.die()
    getattr(disk, name)(*arguments, **more)
    assert (len(below.done), len(disk.struck)) == (1, bool(event))


@pytest.mark.parametrize(("name", "arguments", "event"), FILE_CALLS)
def test_a_file_is_changed_after_rules_were_asked_and_not_after_death(
    name: str, arguments: Any, event: str | None
) -> None:
    below = Disk()
    disk = Striking(below)
    file = disk.open(PATH)
    getattr(file, name)(*arguments)
    assert below.done == [("open", PATH, False), (f"file {name}", *arguments)]
    assert disk.struck == ([(event, PATH)] if event else [])
    disk.die()
    getattr(file, name)(*arguments)
    assert (len(below.done), len(disk.struck)) == (2, bool(event))


def test_reading_goes_on_after_death_and_new_files_are_none() -> None:
    below = Disk()
    disk = Striking(below)
    disk.die()
    assert (disk.read(PATH), disk.open(PATH).read(2, 1)) == ("read done", "read done")
    assert (disk.lock(PATH), disk.usage(PATH)) == ("lock done", "usage done")
    assert disk.struck == [(DISK_READ, PATH)] * 2
    before = len(below.done)
    file = disk.open(PATH, create=True)
    file.write(b"x", 0)
    file.truncate(5)
    file.allocate(5)
    file.sync()
    assert (file.read(5, 0), file.region(0, 5), file.size(), file.is_at("/x")) == (b"", b"", 0, True)
    assert len(below.done) == before
    living = Striking(Disk()).open(PATH, create=True)
    assert (living.region(1, 2), living.size(), living.is_at(PATH)) == (
        "region done",
        "size done",
        "is_at done",
    )


@pytest.mark.parametrize(
    ("path", "is_hit"),
    [
        (PATH, True),
        ("/data/my-topic-7", True),
        ("/my-topic-7/x.log", True),
        ("/data/my-topic-8/x.log", False),
        ("/data/topic-7/x.log", False),
        ("/data/my-topic-7/a/b", False),
        ("/data/checkpoint", False),
    ],
)
def test_rules_are_about_the_partition_that_a_path_is_in(path: str, is_hit: bool) -> None:
    slept: list[float] = []
    faults = Faults()
    disk = FaultyDisk(Disk(), faults, clock_ms=lambda: 0.0, sleep=slept.append)  # type: ignore[arg-type]
    disk.strike(DISK_WRITE, path)
    faults.add(
        {
            "on": {"event": "disk.write", "topic": "my-topic", "partition": 7},
            "do": {"errno": "ENOSPC", "delay_ms": 1500},
        }
    )
    disk.strike(DISK_READ, path)
    assert slept == []
    if is_hit:
        with pytest.raises(OSError, match="No space left") as caught:
            disk.strike(DISK_WRITE, path)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, path)
    else:
        disk.strike(DISK_WRITE, path)
    assert slept == [1.5] * is_hit


# --- copies ---------------------------------------------------------------------------------------------------------


def test_a_copy_has_the_bytes_that_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    for name, size, data in (("b", None, b"abcdef"), ("c", 4, b"abcd"), ("d", 0, b"")):
        copying.copy(f"{tmp_path}/a", f"{tmp_path}/{name}", size)
        assert (tmp_path / name).read_bytes() == data
    with pytest.raises(FileExistsError):
        copying.copy(f"{tmp_path}/a", f"{tmp_path}/b")
    with pytest.raises(OSError, match="the file is shorter than it was"):
        copying.copy(f"{tmp_path}/a", f"{tmp_path}/e", 7)


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSPC])
def test_what_cannot_be_shared_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    copying.share(f"{tmp_path}/a", f"{tmp_path}/b")
    assert os.path.samefile(tmp_path / "a", tmp_path / "b")

    def link(source: str, target: str) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "link", link)
    if number == errno.ENOSPC:
        with pytest.raises(OSError, match="no"):
            copying.share(f"{tmp_path}/a", f"{tmp_path}/c")
        return
    copying.share(f"{tmp_path}/a", f"{tmp_path}/c")
    assert (tmp_path / "c").read_bytes() == b"abc"
    assert not os.path.samefile(tmp_path / "a", tmp_path / "c")


def test_blocks_are_shared_where_the_file_system_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    number = errno.EOPNOTSUPP

    def ioctl(target: int, request: int, source: int) -> None:
        assert request == copying.FICLONE
        if number:
            raise OSError(number, "no")
        os.write(target, os.pread(source, 100, 0))

    monkeypatch.setattr(copying, "fcntl", SimpleNamespace(ioctl=ioctl))
    assert copying.clone(f"{tmp_path}/a", f"{tmp_path}/b", 4) is False
    assert not (tmp_path / "b").exists()
    number = errno.EIO
    with pytest.raises(OSError, match="no"):
        copying.clone(f"{tmp_path}/a", f"{tmp_path}/c", 4)
    number = 0
    assert copying.clone(f"{tmp_path}/a", f"{tmp_path}/d", 4) is True
    assert (tmp_path / "d").read_bytes() == b"abcd"


def test_closed_segments_of_a_log_dir_are_shared_and_all_else_is_copied(tmp_path: Path) -> None:
    partition = tmp_path / "from" / "t-0"
    partition.mkdir(parents=True)
    first, second = f"{0:020}", f"{10:020}"
    names = [
        f"{one}{suffix}"
        for one in (first, second)
        for suffix in (".log", ".index", ".timeindex", ".snapshot")
    ]
    for name in (*names, "partition.metadata"):
        (partition / name).write_bytes(name.encode())
    for name in (".lock", "meta.properties"):
        (tmp_path / "from" / name).write_bytes(b"x")
    copying.copy_log_dir(f"{tmp_path}/from", f"{tmp_path}/to")
    found = tmp_path / "to" / "t-0"
    assert sorted(os.listdir(found)) == sorted([*names, "partition.metadata"])
    assert sorted(os.listdir(tmp_path / "to")) == ["meta.properties", "t-0"]
    shared = [name for name in sorted(os.listdir(found)) if os.path.samefile(found / name, partition / name)]
    assert shared == [f"{first}{suffix}" for suffix in (".index", ".log", ".timeindex")]
    copying.empty(f"{tmp_path}/from", f"{tmp_path}/aside")
    assert (os.listdir(tmp_path / "from"), sorted(os.listdir(tmp_path / "aside"))) == (
        [".lock"],
        ["meta.properties", "t-0"],
    )
    copying.remove([f"{tmp_path}/aside", f"{tmp_path}/none"])
    assert not (tmp_path / "aside").exists()


def test_files_of_a_real_disk_pass_through(tmp_path: Path) -> None:
    disk = FaultyDisk(OsDisk(), Faults(), clock_ms=lambda: 0.0)
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(b"abc", 0)
    disk.die()
    file.write(b"xyz", 0)
    disk.remove(f"{tmp_path}/a")
    assert (tmp_path / "a").read_bytes() == file.read(3, 0) == b"abc"

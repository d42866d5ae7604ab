"""A disk on which faults are committed: what each call asks of rules, and what is left undone once it is dead."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
def test_disk_change_follows_rules_and_stops_after_death(
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
def test_file_change_follows_rules_and_stops_after_death(
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


def test_clone_shares_blocks_where_the_file_system_supports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

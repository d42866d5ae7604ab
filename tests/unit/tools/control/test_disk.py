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
from barnabas.tools.faults.events import DISK_READ

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

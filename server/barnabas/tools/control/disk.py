"""A disk with injected faults, which can die: a substitute for a full or slow disk, and for a killed broker.

The rule: without a matching rule it behaves as the given disk. After `die` nothing is changed:
the content is that which `kill -9` would have left.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.tools.faults.events import DISK_READ, DISK_SYNC, DISK_WRITE

if TYPE_CHECKING:
    from barnabas.log.disk import Buffer, Disk, File, Lock
    from barnabas.tools.faults.engine import Faults
    from barnabas.wire.regions import FileRegion

_LOG = re.compile(r".*/([^/]+)-(\d+)(?:/[^/]*)?$", re.DOTALL)
"""The directory of a topic-partition at the end of a path, or above the file that it names."""


class FaultyDisk:
    """Wraps another disk. Methods that are not defined here are that disk's."""

    def __init__(
        self,
        disk: Disk,
        faults: Faults,
        *,
        clock_ms: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`sleep` blocks the thread that writes or reads, like a slow disk."""
        self._disk = disk
        self._faults = faults
        self._clock_ms = clock_ms
        self._sleep = sleep
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def die(self) -> None:
        """Ignore all later changes."""
        self.is_dead = True

    def strike(self, event: str, path: str) -> None:
        """Apply the rules for an event on a file. Raises OSError."""
        if not self._faults.concerns(event):
            return
        from barnabas.tools.faults.matching import Subject

        match = _LOG.match(path)
        topics = [(match[1], int(match[2]))] if match is not None else []
        verdict = self._faults.judge(Subject(event, self._clock_ms(), topics=lambda: topics))
        if delay_s := verdict.total("delay_ms") / 1000:
            self._sleep(delay_s)
        number = verdict.first("errno")
        if number is not None:
            raise OSError(number, os.strerror(number), path)

    # --- file operations ------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file to read and write."""
        if self.is_dead and create:
            return _Nothing()
        return FaultyFile(self._disk.open(path, create=create), path, self)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        self.strike(DISK_READ, path)
        return self._disk.read(path)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Put `data` in place of the file."""
        if not self.is_dead:
            self.strike(DISK_WRITE, path)
            self._disk.replace(path, data, sync=sync)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Give a file another age."""
        if not self.is_dead:
            self._disk.set_modified(path, modified_ms)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents."""
        if not self.is_dead:
            self.strike(DISK_WRITE, path)
            self._disk.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory."""
        if not self.is_dead:
            self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        if not self.is_dead:
            self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        if not self.is_dead:
            self._disk.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium."""
        if not self.is_dead:
            self.strike(DISK_SYNC, path)
            self._disk.sync_dir(path)

    def lock(self, path: str) -> Lock:
        """Lock a file."""
        return self._disk.lock(path)


class FaultyFile:
    """A file of such a disk."""

    __slots__ = ("_disk", "_file", "_path", "is_at", "region", "size")

    def __init__(self, file: File, path: str, disk: FaultyDisk) -> None:
        self._file = file
        self._path = path
        self._disk = disk
        self.region: Callable[[int, int], FileRegion | bytes] = file.region
        self.size: Callable[[], int] = file.size
        self.is_at: Callable[[str], bool] = file.is_at

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        disk = self._disk
        if disk.is_dead:
            return
        disk.strike(DISK_WRITE, self._path)
        self._file.write(data, position)

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`."""
        self._disk.strike(DISK_READ, self._path)
        return self._file.read(size, position)

    def truncate(self, size: int) -> None:
        """Cut the file off at `size`, or extend it with zeros."""
        if not self._disk.is_dead:
            self._file.truncate(size)

    def allocate(self, size: int) -> None:
        """Extend the file to `size` with zeros that have their place on the medium."""
        if not self._disk.is_dead:
            self._disk.strike(DISK_WRITE, self._path)
            self._file.allocate(size)

    def sync(self) -> None:
        """Return when all written data is on the medium."""
        if not self._disk.is_dead:
            self._disk.strike(DISK_SYNC, self._path)
            self._file.sync()


class _Nothing:
    """A file that is never created: it accepts writes, and stays empty."""

    __slots__ = ()

    def write(self, data: Buffer, position: int) -> None:
        """Write nothing."""

    def read(self, size: int, position: int) -> bytes:  # noqa: ARG002 (as File has it)
        """Return nothing."""
        return b""

    def region(self, position: int, size: int) -> bytes:  # noqa: ARG002
        """Return nothing."""
        return b""

    def size(self) -> int:
        """Return 0."""
        return 0

    def truncate(self, size: int) -> None:
        """Do nothing."""

    def allocate(self, size: int) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def is_at(self, path: str) -> bool:  # noqa: ARG002
        """Return true, so that no other file is created."""
        return True

"""A disk that fails on demand, around a real one."""

from __future__ import annotations

import errno

from barnabas.log.disk import Buffer, File, OsDisk, OsFile


class FaultyFile:
    """A file with short writes, and failing syncs, when its disk is set to fail."""

    def __init__(self, disk: FaultyDisk, path: str, file: OsFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def write(self, data: Buffer, position: int) -> None:
        disk = self._disk
        if disk.room is not None and self._path.endswith(disk.suffix):
            if len(data) > disk.room:
                self._file.write(memoryview(data)[: disk.room], position)
                raise OSError(disk.error, "no room left")
            disk.room -= len(data)
        self._file.write(data, position)

    def sync(self) -> None:
        if self._disk.sync_fails:
            raise OSError(errno.EIO, "sync failed")
        self._file.sync()

    def truncate(self, size: int) -> None:
        if self._disk.truncate_fails:
            raise OSError(errno.EIO, "truncate failed")
        self._file.truncate(size)

    def read(self, size: int, position: int) -> bytes:
        if self._disk.read_fails:
            raise OSError(errno.EIO, "read failed")
        return self._file.read(size, position)

    def __getattr__(self, name: str):
        return getattr(self._file, name)


class FaultyDisk(OsDisk):
    """`room` is the number of bytes that can still be written to files that end in `suffix`, None for no limit."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None
        self.suffix = ".log"
        self.error = errno.ENOSPC
        self.sync_fails = False
        self.truncate_fails = False
        self.read_fails = False

    def open(self, path: str, *, create: bool = False) -> File:
        return FaultyFile(self, path, super().open(path, create=create))

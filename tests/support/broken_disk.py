"""`python -m tests.support.broken_disk DIR MARK serve ... --data FIRST`: the broker, with DIR as its second log dir, which
fails with EIO while the file MARK exists.
"""

from __future__ import annotations

import errno
import os
import sys

from barnabas import cli
from barnabas.environment import real
from barnabas.log.disk import Buffer, Entry, OsDisk, OsFile, Stat
from barnabas.wire.regions import FileRegion


class Breaking:
    """Tells for a path whether its disk works."""

    def __init__(self, directory: str, mark: str) -> None:
        self._directory = directory
        self._mark = mark

    def check(self, path: str) -> None:
        """Raise OSError if it does not."""
        if path.startswith(self._directory) and os.path.exists(self._mark):
            raise OSError(errno.EIO, "Input/output error", path)


class BreakingFile(OsFile):
    """A file that cannot be read or written while its disk does not work."""

    __slots__ = ("_breaking", "_path")

    def __init__(self, breaking: Breaking, path: str, flags: int) -> None:
        self.fd = -1
        breaking.check(path)
        super().__init__(path, flags)
        self._breaking, self._path = breaking, path

    def write(self, data: Buffer, position: int) -> None:
        self._breaking.check(self._path)
        super().write(data, position)

    def read(self, size: int, position: int) -> bytes:
        self._breaking.check(self._path)
        return super().read(size, position)

    def region(self, position: int, size: int) -> FileRegion:
        self._breaking.check(self._path)
        return super().region(position, size)

    def truncate(self, size: int) -> None:
        self._breaking.check(self._path)
        super().truncate(size)

    def sync(self) -> None:
        self._breaking.check(self._path)
        super().sync()


class BreakingDisk(OsDisk):
    """The real disk, with a directory that breaks."""

    breaking: Breaking

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = self._flags | os.O_CREAT if create else self._flags
        return BreakingFile(self.breaking, path, flags)

    def read(self, path: str) -> bytes:
        self.breaking.check(path)
        return super().read(path)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        self.breaking.check(path)
        super().replace(path, data, sync=sync)

    def list(self, path: str) -> list[Entry]:
        self.breaking.check(path)
        return super().list(path)

    def stat(self, path: str) -> Stat:
        self.breaking.check(path)
        return super().stat(path)

    def make_dirs(self, path: str) -> None:
        self.breaking.check(path)
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.breaking.check(source)
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.breaking.check(path)
        super().sync_dir(path)


if __name__ == "__main__":
    BreakingDisk.breaking = Breaking(sys.argv[1], sys.argv[2])
    real.OsDisk = BreakingDisk  # type: ignore[misc]
    arguments = sys.argv[3:]
    arguments[arguments.index("--data") + 1] += f",{sys.argv[1]}"
    sys.exit(cli.main(arguments))

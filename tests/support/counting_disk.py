"""The real disk, counting how often each file is synced."""

from __future__ import annotations

import os
from collections import Counter

from barnabas.log.disk import OsDisk, OsFile


class CountingFile(OsFile):
    """A file that counts its syncs."""

    __slots__ = ("_path", "_syncs")

    def __init__(self, path: str, flags: int, syncs: Counter[str]) -> None:
        super().__init__(path, flags)
        self._path, self._syncs = path, syncs

    def sync(self) -> None:
        """Sync the file, and count it."""
        self._syncs["/".join(self._path.split("/")[-2:])] += 1
        super().sync()


class CountingDisk(OsDisk):
    """Files that were opened one by one are counted; `syncs` is by their names with those of their directories."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: Counter[str] = Counter()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open a file that counts its syncs."""
        return CountingFile(path, self._flags | os.O_CREAT if create else self._flags, self.syncs)

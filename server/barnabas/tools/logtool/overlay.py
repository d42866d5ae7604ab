"""A disk that only records changes: they can be inspected, and then carried out.

The rule: nothing reaches the disk below before `apply_changes`. A file that ends unchanged counts as no change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.log.disk import Buffer, Disk, Entry, File, Lock, Stat, Usage
from barnabas.wire.regions import FileRegion


class Change(NamedTuple):
    """One change: "remove", "rename" (to `target`), "cut" (to `size` bytes), or "write" (`data`)."""

    what: str
    path: str
    target: str = ""
    size: int = 0
    data: bytes = b""

    def describe(self) -> str:
        """Return a description of the change."""
        if self.what == "rename":
            return f"rename to {self.target.rpartition('/')[2]}"
        return f"cut to {self.size} bytes" if self.what == "cut" else self.what


class OverlayFile:
    """A file: the beginning of one on the disk below (`base`, up to `base_size`), or new content."""

    def __init__(self, base: File | None) -> None:
        self.base = base
        self.base_size = base.size() if base is not None else 0
        self.original_size = self.base_size
        self.content: bytearray | None = None if base is not None else bytearray()

    def _own(self) -> bytearray:
        if self.content is None:
            assert self.base is not None
            self.content = bytearray(self.base.read(self.base_size, 0))
        return self.content

    def write(self, data: Buffer, position: int) -> None:
        """Write at `position`."""
        content = self._own()
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`, fewer only at the end of the file."""
        if self.content is not None:
            return bytes(self.content[position : position + size])
        assert self.base is not None
        return self.base.read(max(0, min(size, self.base_size - position)), position)

    def region(self, position: int, size: int) -> FileRegion | bytes:
        """Return these bytes."""
        return self.read(size, position)

    def size(self) -> int:
        """Return the size in bytes."""
        return self.base_size if self.content is None else len(self.content)

    def truncate(self, size: int) -> None:
        """Cut off at `size`, or extend with zeros."""
        if self.content is None and size <= self.base_size:
            self.base_size = size
            return
        content = self._own()
        del content[size:]
        content.extend(bytes(size - len(content)))

    def allocate(self, size: int) -> None:
        """Extend to `size` with zeros."""
        self.truncate(max(size, self.size()))

    def sync(self) -> None:
        """There is nothing to sync."""

    def is_at(self, path: str) -> bool:
        """No file is removed from under a file of the overlay."""
        del path
        return True


class OverlayDisk:
    """A disk that records changes to another disk."""

    def __init__(self, below: Disk) -> None:
        self.below = below
        self._files: dict[str, OverlayFile | None] = {}  # None: not there any more
        self._steps: list[tuple[str, str, str]] = []  # removals and renames, in order

    # --- changes --------------------------------------------------------------------------------------------

    def changes(self) -> list[Change]:
        """Return the differences from the disk below, in an order in which they can be carried out."""
        changes = []
        for what, path, target in self._steps:
            changes.append(Change(what, path, target))
        for path, file in sorted(self._files.items()):
            if file is None:
                continue
            if file.content is None:
                if file.base_size != file.original_size:
                    changes.append(Change("cut", path, size=file.base_size))
            elif file.base is None or file.base.read(file.original_size, 0) != file.content:
                changes.append(Change("write", path, data=bytes(file.content)))
        return changes

    # --- the Disk protocol ----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> OverlayFile:
        """Open a file."""
        file = self._files.get(path)
        if file is None and path not in self._files:
            try:
                file = OverlayFile(self.below.open(path))
            except FileNotFoundError:
                file = None
        if file is None:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            file = OverlayFile(None)
        self._files[path] = file
        return file

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        file = self.open(path)
        return file.read(file.size(), 0)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Put `data` in place of the file."""
        del sync
        file = self.open(path, create=True)
        file.truncate(0)
        file.write(data, 0)

    def make_private(self, path: str) -> None:
        """Create an empty file if it does not exist; the overlay has no permissions."""
        self.open(path, create=True)

    def make_private_dir(self, path: str) -> None:
        """Do nothing: the overlay has no permissions."""

    def list(self, path: str) -> list[Entry]:
        """Return the names in a directory."""
        entries = {entry.name: entry for entry in self.below.list(path)}
        for name, file in self._files.items():
            directory, _, last = name.rpartition("/")
            if directory == path:
                if file is None:
                    entries.pop(last, None)
                else:
                    entries[last] = Entry(last, False)
        return list(entries.values())

    def stat(self, path: str) -> Stat:
        """Return size and age of a file."""
        size = self.open(path).size()
        try:
            return Stat(size, self.below.stat(path).modified_ms)
        except FileNotFoundError:
            return Stat(size, 0)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Ages are not kept."""

    def make_dirs(self, path: str) -> None:
        """Do nothing: the overlay has no directories."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file."""
        file = self.open(source)
        if file.base is not None:
            self._steps.append(("rename", source, target))
        self._files[source] = None
        self._files[target] = file

    def remove(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""
        try:
            file = self.open(path)
        except FileNotFoundError:
            return
        if file.base is not None:
            self._steps.append(("remove", path, ""))
        self._files[path] = None

    def remove_tree(self, path: str) -> None:
        """Trees are not removed."""
        raise NotImplementedError(path)

    def sync_dir(self, path: str) -> None:
        """There is nothing to sync."""

    def lock(self, path: str) -> Lock:
        """Lock the real file."""
        return self.below.lock(path)

    def usage(self, path: str) -> Usage:
        """Return how full the volume is."""
        return self.below.usage(path)

    def unique_id(self) -> bytes:
        """Return 16 random bytes."""
        return self.below.unique_id()

    def boot_id(self) -> bytes:
        """Return an id of this run of the machine."""
        return self.below.boot_id()


def apply_changes(disk: Disk, changes: Iterable[Change]) -> None:
    """Carry out the changes of an overlay, synced when this returns. Raises OSError."""
    directories = set()
    for change in changes:
        directories.add(change.path.rpartition("/")[0])
        if change.what == "remove":
            disk.remove(change.path)
        elif change.what == "rename":
            disk.rename(change.path, change.target)
        elif change.what == "cut":
            file = disk.open(change.path)
            file.truncate(change.size)
            file.sync()
        else:
            disk.replace(change.path, change.data, sync=True)
    for directory in sorted(directories):
        disk.sync_dir(directory)

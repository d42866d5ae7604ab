"""A file system in memory that can lose unsynced data, tear writes, and fail.

The rule: it behaves as `OsDisk` does, and after `crash` as the worst disk that still keeps its promises: synced data
survives, any part of the rest may survive. Names are durable once their directory is synced, contents once the file is.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from barnabas.log.disk import Buffer, Entry, Stat, Usage

Fault = Callable[[str, str], OSError | None]
TOTAL_BYTES = 1 << 40


@dataclass(eq=False, slots=True)
class Inode:
    """A file or a directory: its visible state, its durable state, and the changes between them, in order."""

    is_dir: bool = False
    content: bytearray = field(default_factory=bytearray)
    synced_content: bytes = b""
    writes: list[tuple[int, bytes]] = field(
        default_factory=list
    )  # since the last sync; (size, b"") truncates
    names: dict[str, Inode] = field(default_factory=dict)
    synced_names: dict[str, Inode] = field(default_factory=dict)
    changes: list[list[tuple[str, Inode | None]]] = field(
        default_factory=list
    )  # each list is atomic, None: unlinked
    modified_ms: int = 0


Changes = list[tuple[str, Inode | None]]  # an atomic change of a directory's names, None: unlinked


class MemoryFile:
    """An open file."""

    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`, or as much as there is room for."""
        disk, content = self._disk, self._inode.content
        disk.meet("write", self._path)
        taken = bytes(data)
        grown = position + len(taken) - len(content)
        if disk.room is not None and grown > disk.room:
            taken = taken[: max(0, len(taken) - grown + disk.room)]
        if position > len(content):
            content.extend(bytes(position - len(content)))
        used = len(content)
        content[position : position + len(taken)] = taken
        self._inode.writes.append((position, taken))
        self._inode.modified_ms = disk.now_ms
        if disk.room is not None:
            disk.room -= len(content) - used
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "no space left on device", self._path)

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`, fewer only at the end of the file."""
        self._disk.meet("read", self._path)
        return bytes(self._inode.content[position : position + size])

    def region(self, position: int, size: int) -> bytes:
        """Return these bytes: there is no file that the kernel could send."""
        return self.read(size, position)

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        """Cut the file off at `size`, or extend it with zeros."""
        self._disk.meet("truncate", self._path)
        content = self._inode.content
        del content[size:]
        content.extend(bytes(size - len(content)))
        self._inode.writes.append((size, b""))
        self._inode.modified_ms = self._disk.now_ms

    def allocate(self, size: int) -> None:
        """Extend the file to `size` with zeros."""
        if size > self.size():
            self.truncate(size)

    def sync(self) -> None:
        """Make the content last."""
        self._disk.meet("sync", self._path)
        self._inode.synced_content = bytes(self._inode.content)
        self._inode.writes.clear()

    def is_at(self, path: str) -> bool:
        """Return whether `path` still names this file."""
        return self._disk.names(path, self._inode)


class MemoryLock:
    """A lock on a path, until its disk crashes."""

    __slots__ = ("_file", "_locks", "_path")

    def __init__(self, locks: dict[str, MemoryLock], path: str, file: MemoryFile) -> None:
        self._locks = locks
        self._path = path
        self._file = file

    def is_in_place(self) -> bool:
        """Return whether the path still names the locked file."""
        return self._file.is_at(self._path)

    def release(self) -> None:
        """Give it up."""
        if self._locks.get(self._path) is self:
            del self._locks[self._path]


class MemoryDisk:
    """A disk in memory. `now_ms` dates the files; `room` is the number of free bytes (None: unlimited).

    `fault` is asked before each operation ("write", "read", "truncate", "sync", "open", "rename", "remove",
    "list") on a path, and may return an error to raise.
    """

    def __init__(self, root: Inode | None = None) -> None:
        self.now_ms = 0
        self.room: int | None = None
        self.fault: Fault | None = None
        self.root = root or Inode(is_dir=True)
        self.locks: dict[str, MemoryLock] = {}
        self._ids = 0
        self.boots = 1  # how often the machine was started

    # --- faults ---------------------------------------------------------------------------------------------

    def meet(self, operation: str, path: str) -> None:
        """Raise the injected error for this operation, if any."""
        if self.fault is not None:
            error = self.fault(operation, path)
            if error is not None:
                raise error

    @contextmanager
    def failing(
        self, operation: str, suffix: str = "", *, after: int = 0, number: int = errno.EIO
    ) -> Iterator[None]:
        """Fail operations on paths with this suffix, after the first `after` of them."""
        remaining = after

        def fault(asked: str, path: str) -> OSError | None:
            nonlocal remaining
            if asked != operation or not path.endswith(suffix):
                return None
            remaining -= 1
            return OSError(number, f"{operation} failed", path) if remaining < 0 else None

        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before

    def crash(self, random: Random | None = None) -> MemoryDisk:
        """Return the disk after a power cut.

        Without `random` it has exactly the synced state. With it, unsynced writes and names survive at random: each
        write whole, torn or not at all; changes of names in their order.
        """
        survivor = MemoryDisk(_survivor(self.root, random, {}))
        survivor.now_ms = self.now_ms
        survivor._ids = self._ids
        survivor.boots = self.boots + 1
        return survivor

    def fork(self) -> MemoryDisk:
        """Return a copy of the disk, for the successor of a killed process.

        It has all written data, synced or not. Later changes of this disk do not affect it.
        """
        copy = MemoryDisk(_forked(self.root, {}))
        copy.now_ms, copy.room, copy.fault = self.now_ms, self.room, self.fault
        copy._ids, copy.boots = self._ids, self.boots
        return copy

    # --- the Disk protocol ----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Open a file."""
        self.meet("open", path)
        parent, name = self._parent(path)
        inode = parent.names.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode(modified_ms=self.now_ms)
            self._change(parent, [(name, inode)])
        if inode.is_dir:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return MemoryFile(self, path, inode)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        file = self.open(path)
        return file.read(file.size(), 0)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Put `data` in place of the file."""
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.write(data, 0)
        if sync:
            file.sync()
        self.rename(f"{path}.tmp", path)
        if sync:
            self.sync_dir(path.rpartition("/")[0])

    def make_private(self, path: str) -> None:
        """Create an empty file if it does not exist: the file system has only one user."""
        self.open(path, create=True)

    def make_private_dir(self, path: str) -> None:
        """Do nothing: the file system has only one user."""

    def list(self, path: str) -> list[Entry]:
        """Return the entries of a directory."""
        self.meet("list", path)
        inode = self._find(path)
        if not inode.is_dir:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return [Entry(name, child.is_dir) for name, child in inode.names.items()]

    def stat(self, path: str) -> Stat:
        """Return size and age of a file."""
        inode = self._find(path)
        return Stat(len(inode.content), inode.modified_ms)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Give a file another age."""
        self._find(path).modified_ms = modified_ms

    def make_dirs(self, path: str) -> None:
        """Create a directory and missing parents."""
        inode = self.root
        for name in path.strip("/").split("/"):
            child = inode.names.get(name)
            if child is None:
                child = Inode(is_dir=True)
                self._change(inode, [(name, child)])
            if not child.is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            inode = child

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; a file at `target` is replaced."""
        self.meet("rename", source)
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        inode = old_parent.names.get(old_name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if old_parent is new_parent:
            self._change(old_parent, [(old_name, None), (new_name, inode)])
        else:
            self._change(new_parent, [(new_name, inode)])
            self._change(old_parent, [(old_name, None)])

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        self.meet("remove", path)
        try:
            parent, name = self._parent(path)
        except FileNotFoundError:
            return
        if name in parent.names:
            self._change(parent, [(name, None)])

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents, if it exists."""
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory last."""
        self.meet("sync", path)
        inode = self._find(path)
        inode.synced_names = dict(inode.names)
        inode.changes.clear()

    def lock(self, path: str) -> MemoryLock:
        """Lock a file, created if it does not exist."""
        file = self.open(path, create=True)
        held = self.locks.get(path)
        if held is not None and held.is_in_place():
            raise BlockingIOError(errno.EAGAIN, "the lock is held", path)
        lock = self.locks[path] = MemoryLock(self.locks, path, file)
        return lock

    def usage(self, path: str) -> Usage:
        """Return how full it is."""
        self._find(path)
        return Usage(TOTAL_BYTES, TOTAL_BYTES if self.room is None else self.room)

    def unique_id(self) -> bytes:
        """Return 16 bytes that were not returned before."""
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def names(self, path: str, inode: Inode) -> bool:
        """Return whether that is the file or directory of this path."""
        try:
            return self._find(path) is inode
        except FileNotFoundError:
            return False

    def boot_id(self) -> bytes:
        """Return an id that differs after each crash."""
        return b"%d" % self.boots

    def _find(self, path: str) -> Inode:
        inode = self.root
        for name in filter(None, path.split("/")):
            child = inode.names.get(name)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            inode = child
        return inode

    def _parent(self, path: str) -> tuple[Inode, str]:
        directory, _, name = path.rpartition("/")
        parent = self._find(directory)
        if not parent.is_dir:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return parent, name

    def _change(self, directory: Inode, changes: Changes) -> None:
        directory.changes.append(changes)
        _apply(directory.names, changes)


def _apply(names: dict[str, Inode], changes: Changes) -> None:
    for name, inode in changes:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _forked(inode: Inode, copies: dict[Inode, Inode]) -> Inode:
    """Copy a file, or a directory and all that it names or has named."""
    if inode in copies:
        return copies[inode]
    copy = copies[inode] = Inode(inode.is_dir, modified_ms=inode.modified_ms)
    copy.content = bytearray(inode.content)
    copy.synced_content = inode.synced_content
    copy.writes = list(inode.writes)
    copy.names = {name: _forked(child, copies) for name, child in inode.names.items()}
    copy.synced_names = {name: _forked(child, copies) for name, child in inode.synced_names.items()}
    copy.changes = [
        [(name, child and _forked(child, copies)) for name, child in changes] for changes in inode.changes
    ]
    return copy


def _survivor(inode: Inode, random: Random | None, copies: dict[Inode, Inode]) -> Inode:
    """Copy the surviving state of a file, or of a directory tree."""
    if inode in copies:
        return copies[inode]
    copy = copies[inode] = Inode(inode.is_dir, modified_ms=inode.modified_ms)
    if not inode.is_dir:
        copy.content = _surviving_content(inode, random)
        copy.synced_content = bytes(copy.content)
        return copy
    names = dict(inode.synced_names)
    if random is not None:
        for changes in inode.changes[: random.randint(0, len(inode.changes))]:
            _apply(names, changes)
    copy.names = {name: _survivor(child, random, copies) for name, child in names.items()}
    copy.synced_names = dict(copy.names)
    return copy


def _surviving_content(inode: Inode, random: Random | None) -> bytearray:
    content = bytearray(inode.synced_content)
    if random is None:
        return content
    for position, data in inode.writes:
        kept = random.choice((0, len(data), random.randint(0, len(data))))
        if not data:  # truncated or extended
            if random.random() < 0.5:
                del content[position:]
                content.extend(bytes(position - len(content)))
        elif kept:
            content.extend(bytes(max(0, position - len(content))))
            content[position : position + kept] = data[:kept]
    return content

"""The file system as the log sees it: the `Disk` protocol, and the real one.

The rule: no other module of this package calls the operating system. All errors are OSErrors; a write that returns has
written everything, and unsynced data may be lost or torn in a crash.

Paths are absolute strings with "/" between names.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import NamedTuple, Protocol

from barnabas.system import files as system_files
from barnabas.wire.regions import FileRegion

Buffer = bytes | bytearray | memoryview
_FILE_MODE = 0o644
_PRIVATE_MODE = 0o600
_PRIVATE_DIR_MODE = 0o700


class Entry(NamedTuple):
    """A name in a directory."""

    name: str
    is_dir: bool


class Stat(NamedTuple):
    """Size in bytes and time of the last change in ms."""

    size: int
    modified_ms: int


class Usage(NamedTuple):
    """Bytes of a volume: the total, and those still usable by us."""

    total: int
    usable: int


class File(Protocol):
    """An open file.

    It stays open as long as it is referred to, also when it is renamed or removed meanwhile.
    """

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`. After an error, any part of it may have been written."""

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`, fewer only at the end of the file."""

    def region(self, position: int, size: int) -> FileRegion | bytes:
        """Return these bytes for sending: by the kernel, if it can."""

    def size(self) -> int:
        """Return the size in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file off at `size`, or extend it with zeros."""

    def allocate(self, size: int) -> None:
        """Extend the file to `size` with zeros that have their place on the medium."""

    def sync(self) -> None:
        """Return when all written data is on the medium."""

    def is_at(self, path: str) -> bool:
        """Return whether `path` still names this file, rather than no file or another one."""


class Lock(Protocol):
    """A lock on a directory, held until it is released or the process dies."""

    def is_in_place(self) -> bool:
        """Return whether the name still belongs to the locked file."""

    def release(self) -> None:
        """Release the lock."""


class Disk(Protocol):
    """File system operations of the log."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file to read and write; with `create`, create it if it does not exist."""

    def read(self, path: str) -> bytes:
        """Return the content of a file."""

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace the content of a file: after a crash a reader sees either the old or the new content, completely.

        Without `sync` it may be the old or an empty file even after this has returned. A file that only its owner can
        read stays so.
        """

    def make_private(self, path: str) -> None:
        """Create an empty file if it does not exist, and restrict it to its owner."""

    def make_private_dir(self, path: str) -> None:
        """Give only the owner access to a directory and its entries."""

    def list(self, path: str) -> list[Entry]:
        """Return the entries of a directory."""

    def stat(self, path: str) -> Stat:
        """Return size and age of a file."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Give a file another age."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; a file at `target` is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content; no error if it does not exist."""

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium."""

    def lock(self, path: str) -> Lock:
        """Lock a file, created if it does not exist. Raises BlockingIOError if another process or object holds it."""

    def usage(self, path: str) -> Usage:
        """Return how full the volume of `path` is."""

    def unique_id(self) -> bytes:
        """Return 16 random bytes, for names and ids."""

    def boot_id(self) -> bytes:
        """Return an id of this run of the machine, from boot to power cut; empty if it is unknown."""


def file_names(disk: Disk, path: str) -> list[str]:
    """Return the names of the files in a directory, without directories. Raises OSError."""
    return [entry.name for entry in disk.list(path) if not entry.is_dir]


class OsFile:
    """A file of the operating system; closed with the last reference to it."""

    __slots__ = ("fd",)

    def __init__(self, path: str, flags: int, mode: int = _FILE_MODE) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, mode)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(self.fd, data, position)
        if written != len(data):
            self._write_rest(data, position, written)

    def _write_rest(self, data: Buffer, position: int, written: int) -> None:
        with memoryview(data) as view:
            while written < len(view):
                count = os.pwrite(self.fd, view[written:], position + written)
                if not count:
                    raise OSError(errno.EIO, "nothing could be written")
                written += count

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`, fewer only at the end of the file."""
        data = os.pread(self.fd, size, position)
        if len(data) < size:
            parts = [data]
            remaining = size - len(data)
            while parts[-1] and remaining:
                parts.append(os.pread(self.fd, remaining, position + size - remaining))
                remaining -= len(parts[-1])
            data = b"".join(parts)
        return data

    def region(self, position: int, size: int) -> FileRegion:
        """Return these bytes for sending by the kernel."""
        return FileRegion(self.fd, position, size, self)

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        """Cut the file off at `size`, or extend it with zeros."""
        os.ftruncate(self.fd, size)

    def allocate(self, size: int) -> None:
        """Extend the file to `size` with zeros that have their place on the medium."""
        system_files.allocate(self.fd, 0, size)

    def sync(self) -> None:
        """Return when all written data is on the medium."""
        system_files.sync(self.fd)

    def is_at(self, path: str) -> bool:
        """Return whether `path` still names this file; its number is not given to another while it is open."""
        try:
            named = os.stat(path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self.fd))


def _is_private(path: str) -> bool:
    try:
        return stat.S_IMODE(os.stat(path).st_mode) == _PRIVATE_MODE
    except FileNotFoundError:
        return False


class OsLock:
    """A lock on a file that excludes Kafka and other locks of this process; the kernel drops it with the process."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        file = OsFile(path, os.O_RDWR | os.O_CREAT)
        try:
            system_files.lock(file.fd)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "the lock is held", path) from error
            raise
        self._file: OsFile | None = file

    def is_in_place(self) -> bool:
        """Return whether the name still belongs to the locked file."""
        return self._file is not None and self._file.is_at(self._path)

    def release(self) -> None:
        """Release the lock."""
        self._file = None


class OsDisk:
    """The real file system; with `read_only` files are opened for reading."""

    def __init__(self, *, read_only: bool = False) -> None:
        self._flags = os.O_RDONLY if read_only else os.O_RDWR

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open a file to read and write."""
        flags = self._flags | os.O_CREAT if create else self._flags
        try:
            return OsFile(path, flags | system_files.NO_ATIME)
        except PermissionError:  # only a file's owner may keep its time
            return OsFile(path, flags)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(fd, 65536)]
            while len(parts[-1]) == 65536:
                parts.append(os.read(fd, 65536))
        finally:
            os.close(fd)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Put `data` in place of the file."""
        temporary = f"{path}.tmp"
        is_private = _is_private(path)
        file = OsFile(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE_MODE if is_private else _FILE_MODE
        )
        if is_private:
            os.fchmod(file.fd, _PRIVATE_MODE)  # a file left by a crash may have another mode
        file.write(data, 0)
        if sync:
            file.sync()
        os.rename(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def make_private(self, path: str) -> None:
        """Create an empty file if it does not exist, and restrict it to its owner."""
        file = OsFile(path, os.O_RDWR | os.O_CREAT, _PRIVATE_MODE)
        os.fchmod(file.fd, _PRIVATE_MODE)

    def make_private_dir(self, path: str) -> None:
        """Restrict a directory to its owner."""
        os.chmod(path, _PRIVATE_DIR_MODE)

    def list(self, path: str) -> list[Entry]:
        """Return the entries of a directory."""
        with os.scandir(path) as entries:
            return [Entry(entry.name, entry.is_dir()) for entry in entries]

    def stat(self, path: str) -> Stat:
        """Return size and age of a file."""
        result = os.stat(path)
        return Stat(result.st_size, result.st_mtime_ns // 1_000_000)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Give a file another age."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory."""
        os.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        try:
            entries = self.list(path)
        except FileNotFoundError:
            return
        for entry in entries:
            inner = f"{path}/{entry.name}"
            if entry.is_dir and not os.path.islink(inner):
                self.remove_tree(inner)
            else:
                self.remove(inner)
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            system_files.sync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        """Lock a file."""
        return OsLock(path)

    def is_locked(self, path: str) -> bool:
        """Return whether a process holds the lock on a file; neither creates the file nor keeps a lock."""
        try:
            file = OsFile(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            system_files.lock(file.fd, is_shared=True)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return True
            raise
        return False

    def usage(self, path: str) -> Usage:
        """Return how full the volume of `path` is."""
        result = os.statvfs(path)
        return Usage(result.f_blocks * result.f_frsize, result.f_bavail * result.f_frsize)

    def unique_id(self) -> bytes:
        """Return 16 random bytes."""
        return os.urandom(16)

    def boot_id(self) -> bytes:
        """Return the random id that the system generates at each boot."""
        return system_files.boot_id()

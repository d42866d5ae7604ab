"""Objects by their keys, in a directory; `object_stores` has them in S3, GCS and Azure.

Every call blocks and is made in a worker thread, several concurrently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from barnabas.tiered.directory import failures, read_range, synchronize, write_durably
from barnabas.tiered.storage import RemoteStorageError

PARTIAL_SUFFIX: Final = ".partial"
_ATTEMPTS: Final = 3


class Objects(Protocol):
    """A store of objects."""

    def put(self, key: str, source: bytes | Path | Iterable[bytes]) -> int:
        """Store an object durably, replacing an older one; returns its size in bytes. Raises RemoteStorageError."""
        ...

    def get(self, key: str) -> bytes:
        """Return an object. Raises RemoteObjectNotFoundError, RemoteStorageError."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return this many bytes of an object. Raises RemoteObjectNotFoundError; RemoteStorageError if it is shorter."""
        ...

    def delete(self, keys: list[str]) -> None:
        """Remove objects; a missing object is no error. Raises RemoteStorageError."""
        ...

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Keys and bytes of the objects below a folder, or of all below "". Raises RemoteStorageError."""
        ...

    def modified_ms(self, key: str) -> int:
        """Time of an object's last write by the store's clock, in ms since 1970. Raises RemoteStorageError."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class DirectoryObjects:
    """Objects as files below a directory, in the layout of the plug-in's FileSystemStorage."""

    def __init__(self, root: Path, partial_suffix: str = PARTIAL_SUFFIX) -> None:
        """Take the directory, and the suffix of files while they are written: processes that share keys need their own."""
        self._root = root
        self._partial_suffix = partial_suffix

    def put(self, key: str, source: bytes | Path | Iterable[bytes]) -> int:
        """Write a file under a temporary name, flush it, and rename it. Raises RemoteStorageError."""
        path = self._root / key
        partial = path.with_name(path.name + self._partial_suffix)
        with failures(key, missing=RemoteStorageError):
            for attempt in range(_ATTEMPTS):
                self._make_folder(path.parent)
                try:
                    write_durably(partial, path, source)
                    break
                except FileNotFoundError:  # a deletion beside this removed the folder while it was empty
                    if path.parent.is_dir() or attempt == _ATTEMPTS - 1:
                        raise
            synchronize(path.parent)
            return path.stat().st_size

    def get(self, key: str) -> bytes:
        """Read a file. Raises RemoteStorageError."""
        with failures(key):
            return (self._root / key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read a part of a file. Raises RemoteStorageError."""
        with failures(key):
            data = read_range(self._root / key, start, length)
        if len(data) != length:
            raise RemoteStorageError(f"{key} ends at byte {start + len(data)}, before {start + length}")
        return data

    def delete(self, keys: list[str]) -> None:
        """Remove files, and the folders that become empty. Raises RemoteStorageError."""
        for key in keys:
            path = self._root / key
            with failures(key):
                path.unlink(missing_ok=True)
                path.with_name(path.name + self._partial_suffix).unlink(missing_ok=True)
                with suppress(OSError):  # it is not empty, or gone
                    for folder in path.parents:
                        if folder == self._root:
                            break
                        folder.rmdir()

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Files below a folder. Raises RemoteStorageError."""
        with failures(folder):
            for path in sorted((self._root / folder).rglob("*")):
                with suppress(FileNotFoundError):
                    if path.is_file():
                        yield path.relative_to(self._root).as_posix(), path.stat().st_size

    def modified_ms(self, key: str) -> int:
        """Time at which a file was written last, in ms since 1970. Raises RemoteStorageError."""
        with failures(key):
            return (self._root / key).stat().st_mtime_ns // 1_000_000

    def close(self) -> None:
        """Nothing is open between calls."""

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder.parent != folder and folder != self._root:
            self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        synchronize(folder.parent)

"""Objects in S3, GCS and Azure, by the package obstore; its calls block, and are made in worker threads.

The rule: each request has a deadline and is retried, within a deadline for all attempts. A write replaces the object
as a whole, so that a retry after a lost answer does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError, NotFoundError

from barnabas.tiered.storage import RemoteObjectNotFoundError, RemoteStorageError

_CONCURRENT_PARTS = 2
"""Parts of an object that are uploaded in parallel: each is in memory until it is stored."""


class StoreObjects:
    """Objects of a bucket or a container."""

    def __init__(self, store: Any, part_bytes: int, attributes: dict[str, str] | None = None) -> None:
        """Take a store of obstore, the bytes of a part of an upload, and attributes of each new object."""
        self._store = store
        self._part_bytes = part_bytes
        self._attributes = attributes

    def put(self, key: str, source: bytes | Path | Iterable[bytes]) -> int:
        """Upload an object, in parts if it is large. Raises RemoteStorageError."""
        counted = _Counted(source) if not isinstance(source, bytes | Path) else None
        with _failures(key, missing=RemoteStorageError):
            obstore.put(
                self._store,
                key,
                counted if counted is not None else source,
                attributes=self._attributes,
                chunk_size=self._part_bytes,
                max_concurrency=_CONCURRENT_PARTS,
            )
        if counted is not None:
            return counted.size
        return len(source) if isinstance(source, bytes) else Path(str(source)).stat().st_size

    def get(self, key: str) -> bytes:
        """Download an object. Raises RemoteStorageError."""
        with _failures(key):
            return bytes(obstore.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Download a part of an object. Raises RemoteStorageError."""
        with _failures(key):
            data = bytes(obstore.get_range(self._store, key, start=start, length=length))
        if len(data) != length:
            raise RemoteStorageError(f"{key} ends at byte {start + len(data)}, before {start + length}")
        return data

    def delete(self, keys: list[str]) -> None:
        """Remove objects, one after the other. Raises RemoteStorageError."""
        for key in keys:
            try:
                with _failures(key):
                    obstore.delete(self._store, key)
            except RemoteObjectNotFoundError:
                continue

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Objects below a folder, a page at a time. Raises RemoteStorageError."""
        with _failures(folder):
            for page in obstore.list(self._store, folder or None):
                for entry in page:
                    yield entry["path"], entry["size"]

    def modified_ms(self, key: str) -> int:
        """Time of an object's last write by the store's clock, in ms since 1970. Raises RemoteStorageError."""
        with _failures(key):
            return int(obstore.head(self._store, key)["last_modified"].timestamp() * 1000)

    def close(self) -> None:
        """Connections end with the store."""


class _Counted:
    """Parts of an upload, counting the bytes of the consumed ones."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self.size = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> bytes:
        part = next(self._parts)
        self.size += len(part)
        return part


@contextmanager
def _failures(key: str, missing: type[RemoteStorageError] = RemoteObjectNotFoundError) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise missing(f"{key}: there is no such object, or its bucket") from error
    except (BaseError, OSError) as error:
        message = str(error).partition("\n\nDebug source")[0]
        raise RemoteStorageError(f"{key}: {message}") from error

"""Pushing of log dirs: they become blobs, a manifest and, last, the record of a snapshot.

The rule: older snapshots are never changed; an interrupted push leaves blobs, which the next push reuses. Files up to
64 KiB are packed together, in the order of paths: a partition has half a dozen, and each request costs a round trip.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from barnabas import __version__
from barnabas.log.format import names
from barnabas.tools.snapshots.layout import (
    BLOB_BYTES,
    Blob,
    Extent,
    Manifest,
    SnapshotRecord,
    SnapshotStoreError,
    StoredFile,
    check_name,
    digest_of,
    manifest_key,
    snapshot_key,
)
from barnabas.tools.snapshots.leases import Lease, Work, WorkKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.tools.snapshots.sources import Source
    from barnabas.tools.snapshots.store import SnapshotStore

SMALL_BYTES: Final = 64 << 10
_PACKS_END: Final = 64
"""Files, on average, after which a pack ends: by a checksum of the path, so that a new file moves no other end."""
_PACK_BYTES: Final = 4 << 20


class Piece(NamedTuple):
    """Bytes of a file that become bytes of a blob; numbers of log dir and file, start in the file."""

    log_dir: int
    file: int
    path: str
    start: int
    length: int


class SourceFile(NamedTuple):
    """A file to store: path below its log dir, and size in bytes."""

    path: str
    size: int


class Pushed(NamedTuple):
    """Result of a push."""

    record: SnapshotRecord
    blobs: int
    sent_blobs: int
    sent_bytes: int
    interrupted: list[Work]


def push(
    store: SnapshotStore,
    source: Source,
    name: str,
    *,
    tags: Sequence[str] = (),
    is_replaced: bool = False,
    threads: int = 8,
    note_bytes: Callable[[int, int], None] = lambda _done, _total: None,
) -> Pushed:
    """Store a snapshot.

    Args:
        store: where to.
        source: log dirs that no process writes to.
        name: of the snapshot.
        tags: other names, which are taken from older snapshots.
        is_replaced: whether a snapshot of this name may exist already.
        threads: uploads at the same time; each holds 8 MiB at most.
        note_bytes: called with the number of finished bytes, and the total.

    Raises:
        SnapshotStoreError, RemoteStorageError, OSError.
    """
    for text in (name, *tags):
        check_name(text)
    with Lease(store, WorkKind.PUSH, name) as lease:
        if not is_replaced and store.contains(name):
            raise SnapshotStoreError(
                f"there is a snapshot {name} in {store.url} already; --replace replaces it"
            )
        files = [list_files(path) for path in source.log_dirs]
        total = sum(file.size for listed in files for file in listed)
        upload = _Upload(store, source.log_dirs, threads)
        for count in upload.run(_packs(files)):
            note_bytes(count, total)
        manifest = upload.manifest(files)
        missing = set(manifest.blobs) - store.blobs()
        if missing:
            raise SnapshotStoreError(
                f"{store.url} lacks {len(missing)} objects that were stored in it: push again"
            )
        encoded = manifest.encode()
        record = SnapshotRecord(
            name, time.time_ns() // 1_000_000, digest_of(encoded), sum(map(len, files)), total,
            len(topics_of(files)), len(files), _is_clean(files), source.cluster_id, __version__, tuple(sorted(tags)),
        )  # fmt: skip
        lease.check()
        store.put(manifest_key(record.manifest), encoded)
        store.put(snapshot_key(name), record.encode())
        for tag in tags:
            store.tag(tag, name)
        return Pushed(record, len(manifest.blobs), upload.sent_blobs, upload.sent_bytes, lease.interrupted)


def list_files(log_dir: str) -> list[SourceFile]:
    """List the files of a log dir, without its lock and files being removed. Raises SnapshotStoreError, OSError."""
    files = []
    for folder, directories, entries in os.walk(log_dir, onerror=_raise):
        directories[:] = sorted(path for path in directories if not path.endswith("-delete"))
        for entry in sorted(entries):
            path = f"{folder}/{entry}"
            if entry == names.LOCK or entry.endswith(names.DELETED):
                continue
            if not os.path.isfile(path) or os.path.islink(path):
                raise SnapshotStoreError(f"{path} is no plain file, and cannot be in a snapshot")
            files.append(SourceFile(os.path.relpath(path, log_dir), os.path.getsize(path)))
        if any(os.path.islink(f"{folder}/{path}") for path in directories):
            raise SnapshotStoreError(
                f"{folder} has a link to another directory, which cannot be in a snapshot"
            )
    return files


def topics_of(files: Sequence[Sequence[SourceFile]]) -> set[str]:
    """Topics with partitions, except the metadata topic."""
    folders = {file.path.partition("/")[0] for listed in files for file in listed if "/" in file.path}
    parsed = (names.parse_dir_name(folder) for folder in folders)
    return {place.topic for place in parsed if place is not None} - {names.CLUSTER_METADATA_TOPIC}


class _Upload:
    """Blobs of a push. Reads, checksums and requests are made by threads; the state is that of the caller's."""

    def __init__(self, store: SnapshotStore, log_dirs: Sequence[str], threads: int) -> None:
        self.sent_blobs = self.sent_bytes = 0
        self._store = store
        self._log_dirs = log_dirs
        self._threads = threads
        self._lock = Lock()
        self._existing = store.blobs()
        self._numbers: dict[Blob, int] = {}
        self._extents: dict[tuple[int, int], list[tuple[int, Extent]]] = {}

    def run(self, packs: Iterable[list[Piece]]) -> Iterator[int]:
        """Store packs; yields the bytes that are done after each."""
        done = 0
        running: dict[Future[tuple[Blob, bool]], list[Piece]] = {}
        with ThreadPoolExecutor(self._threads, "push") as pool:
            try:
                for pack in packs:
                    running[pool.submit(self._store_pack, pack)] = pack
                    if len(running) >= 2 * self._threads:
                        done += self._take(running)
                        yield done
                while running:
                    done += self._take(running)
                    yield done
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _take(self, running: dict[Future[tuple[Blob, bool]], list[Piece]]) -> int:
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        count = 0
        for future in ended:
            pack = running.pop(future)
            blob, is_sent = future.result()
            if is_sent:
                self.sent_blobs += 1
                self.sent_bytes += blob.size
            number = self._numbers.setdefault(blob, len(self._numbers))
            start = 0
            for piece in pack:
                extents = self._extents.setdefault((piece.log_dir, piece.file), [])
                extents.append((piece.start, Extent(number, start, piece.length)))
                start += piece.length
            count += start
        return count

    def _store_pack(self, pack: list[Piece]) -> tuple[Blob, bool]:
        parts = []
        for piece in pack:
            path = f"{self._log_dirs[piece.log_dir]}/{piece.path}"
            with open(path, "rb") as file:
                file.seek(piece.start)
                part = file.read(piece.length)
            if len(part) != piece.length:
                raise SnapshotStoreError(f"{path} has become shorter while it was read")
            parts.append(part)
        data = b"".join(parts)
        blob = Blob(digest_of(data), len(data))
        with self._lock:  # equal blobs are sent by one thread
            is_sent = blob not in self._existing
            self._existing.add(blob)
        if is_sent:
            self._store.put(blob.key, data)
        return blob, is_sent

    def manifest(self, files: Sequence[Sequence[SourceFile]]) -> Manifest:
        """Return the manifest; blobs have the order of the files, whichever thread finished first."""
        blobs = list(self._numbers)
        order: dict[int, int] = {}
        log_dirs = []
        for log_dir, listed in enumerate(files):
            stored = []
            for index, file in enumerate(listed):
                extents = []
                for _, extent in sorted(self._extents.get((log_dir, index), ())):
                    number = order.setdefault(extent.blob, len(order))
                    extents.append(Extent(number, extent.start, extent.length))
                stored.append(StoredFile(file.path, file.size, tuple(extents)))
            log_dirs.append(tuple(stored))
        return Manifest(tuple(log_dirs), tuple(blobs[number] for number in order))


def _packs(files: Sequence[Sequence[SourceFile]]) -> Iterator[list[Piece]]:
    """Split large files into pieces, and pack small ones together."""
    for log_dir, listed in enumerate(files):
        pack: list[Piece] = []
        pack_bytes = 0
        for index, (path, size) in enumerate(listed):
            if size > SMALL_BYTES:
                for start in range(0, size, BLOB_BYTES):
                    yield [Piece(log_dir, index, path, start, min(BLOB_BYTES, size - start))]
            elif size:
                pack.append(Piece(log_dir, index, path, 0, size))
                pack_bytes += size
                if pack_bytes >= _PACK_BYTES or crc32(path.encode()) % _PACKS_END == 0:
                    yield pack
                    pack, pack_bytes = [], 0
        if pack:
            yield pack


def _is_clean(files: Sequence[Sequence[SourceFile]]) -> bool:
    return all(any(file.path == names.CLEAN_SHUTDOWN for file in listed) for listed in files)


def _raise(error: OSError) -> None:
    raise error

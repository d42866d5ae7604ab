"""Pulling of a snapshot's files into new log dirs; and verification, which reads all files and writes none.

The rule: log dirs get their names once every byte is verified and synced; before that they are in `DIR.pulling`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.tiered.directory import synchronize
from barnabas.tools.snapshots.layout import DamagedSnapshotError, Manifest, SnapshotStoreError

if TYPE_CHECKING:
    from barnabas.log.disk import OsLock
    from barnabas.tools.snapshots.store import SnapshotStore

PULLING: Final = ".pulling"
_FREE_BYTES: Final = 16 << 20
"""Bytes of the volume that a pull leaves free."""
NoteBytes = Callable[[int, int], None]


class _Place(NamedTuple):
    """Bytes of a blob, and their place in a file."""

    path: str
    offset: int
    start: int
    length: int


def directories_of(manifest: Manifest, target: str) -> list[str]:
    """Return the log dirs of a pull: the target itself, or numbered directories below it."""
    if len(manifest.log_dirs) == 1:
        return [target]
    return [f"{target}/{number}" for number in range(1, len(manifest.log_dirs) + 1)]


def pull(
    store: SnapshotStore,
    manifest: Manifest,
    target: str,
    *,
    threads: int = 8,
    note_bytes: NoteBytes = lambda _done, _total: None,
) -> list[str]:
    """Create a directory with the contents of a snapshot; returns its log dirs.

    Raises:
        DamagedSnapshotError: the snapshot is incomplete; nothing is created.
        SnapshotStoreError: the directory exists and is not empty, or another process pulls into it.
        RemoteStorageError, OSError.
    """
    target = os.path.abspath(target)
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise SnapshotStoreError(f"{target} is not empty: pull into a directory that is not there")
    parent = os.path.dirname(target)
    os.makedirs(parent, exist_ok=True)
    free = shutil.disk_usage(parent).free - _FREE_BYTES
    if manifest.size > free:
        raise SnapshotStoreError(
            f"the snapshot has {manifest.size} bytes, and {parent} has space for {max(free, 0)}"
        )
    with _partial(target + PULLING) as partial:
        folders = [f"{partial}/{os.path.relpath(path, parent)}" for path in directories_of(manifest, target)]
        _make_files(manifest, folders)
        _fetch(store, manifest, _places(manifest, folders), threads, note_bytes)
        _synchronize(partial, threads)
        os.rename(f"{partial}/{os.path.basename(target)}", target)  # an empty directory there is replaced
        synchronize(Path(parent))
    return directories_of(manifest, target)


def verify(
    store: SnapshotStore,
    manifest: Manifest,
    *,
    threads: int = 8,
    note_bytes: NoteBytes = lambda _done, _total: None,
) -> list[str]:
    """Read all blobs of a snapshot; returns the problems. Raises RemoteStorageError."""
    problems = []
    total, done = sum(blob.size for blob in manifest.blobs), 0

    def problem_of(number: int) -> str | None:
        try:
            store.blob(manifest.blobs[number])
        except DamagedSnapshotError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(threads, "verify") as pool:
        for number, problem in enumerate(pool.map(problem_of, range(len(manifest.blobs)))):
            done += manifest.blobs[number].size
            note_bytes(done, total)
            if problem is not None:
                problems.append(problem)
    return problems


@contextmanager
def _partial(path: str) -> Iterator[str]:
    """Create the directory of a pull in progress, emptied after an interrupted pull. Raises SnapshotStoreError, OSError."""
    if os.path.isdir(path) and names.LOCK not in (entries := os.listdir(path)) and entries:
        raise SnapshotStoreError(f"{path} is in the way, and no pull has made it: move it, or pull elsewhere")
    os.makedirs(path, exist_ok=True)
    try:
        lock: OsLock = OsDisk().lock(f"{path}/{names.LOCK}")
    except BlockingIOError:
        raise SnapshotStoreError(f"another process pulls into {path.removesuffix(PULLING)}") from None
    try:
        for entry in os.listdir(path):
            if entry != names.LOCK:
                shutil.rmtree(f"{path}/{entry}")
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        lock.release()


def _make_files(manifest: Manifest, folders: Sequence[str]) -> None:
    for folder, files in zip(folders, manifest.log_dirs, strict=True):
        os.makedirs(folder)
        for file in files:
            path = f"{folder}/{file.path}"
            parent = os.path.dirname(path)
            if not os.path.isdir(parent):  # the metadata log has passwords of users, though not in the clear
                os.makedirs(
                    parent, 0o700 if os.path.basename(parent) == names.CLUSTER_METADATA_DIR else 0o755
                )
            with open(path, "xb") as target:
                target.truncate(file.size)


def _places(manifest: Manifest, folders: Sequence[str]) -> list[list[_Place]]:
    """Return the places of each blob's bytes."""
    places: list[list[_Place]] = [[] for _ in manifest.blobs]
    for folder, files in zip(folders, manifest.log_dirs, strict=True):
        for file in files:
            offset = 0
            for blob, start, length in file.extents:
                places[blob].append(_Place(f"{folder}/{file.path}", offset, start, length))
                offset += length
    return places


def _fetch(
    store: SnapshotStore, manifest: Manifest, places: list[list[_Place]], threads: int, note_bytes: NoteBytes
) -> None:
    def fetch(number: int) -> int:
        data = store.blob(manifest.blobs[number])
        for place in places[number]:
            with open(place.path, "r+b") as file:
                file.seek(place.offset)
                file.write(data[place.start : place.start + place.length])
        return sum(place.length for place in places[number])

    done, total = 0, manifest.size
    with ThreadPoolExecutor(threads, "pull") as pool:
        try:
            for count in pool.map(fetch, range(len(manifest.blobs))):
                done += count
                note_bytes(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _synchronize(partial: str, threads: int) -> None:
    paths = []
    for folder, _, files in os.walk(partial, topdown=False):
        paths += [Path(f"{folder}/{file}") for file in files if file != names.LOCK]
        paths.append(Path(folder))
    with ThreadPoolExecutor(threads, "sync") as pool:
        for _ in pool.map(synchronize, paths):
            pass

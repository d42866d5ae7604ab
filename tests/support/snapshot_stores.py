"""Stores of snapshots in a directory, and log dirs with arbitrary content in their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from barnabas.log.format import names
from barnabas.tools.snapshots.sources import Source
from barnabas.tools.snapshots.store import SnapshotStore
from barnabas.tools.snapshots.urls import StorePlace, open_place

SEGMENT = f"orders-0/{names.file_name(0, names.LOG)}"
CLUSTER = "yuMrfc5N92CF97tCWh6qwg"


def store_in(directory: Path) -> SnapshotStore:
    return SnapshotStore(open_place(f"file://{directory}", {}, {}))


def store_of(objects, url: str = "memory") -> SnapshotStore:
    return SnapshotStore(StorePlace(objects, "", url))


def log_dir_in(directory: Path, size: int = 100, partitions: int = 3) -> dict[str, bytes]:
    """Write files of a log dir; returns their bytes by path."""
    random = Random(size)
    content = {names.META_PROPERTIES: b"version=1\n", names.CLEAN_SHUTDOWN: b"{}"}
    for partition in range(partitions):
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            content[f"orders-{partition}/{names.file_name(0, suffix)}"] = random.randbytes(min(size, 1000))
        content[f"orders-{partition}/{names.PARTITION_METADATA}"] = b"version: 0\n"
    content[SEGMENT] = random.randbytes(size)
    content[f"orders-0/{names.file_name(0, names.TXN_INDEX)}"] = b""
    write_files(directory, content)
    (directory / names.LOCK).write_bytes(b"")
    return content


def write_files(directory: Path, content: Mapping[str, bytes]) -> None:
    for path, data in content.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != names.LOCK
    }


def source_of(*log_dirs: Path) -> Source:
    return Source(tuple(map(str, log_dirs)), CLUSTER)

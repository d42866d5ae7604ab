"""Objects of a store of snapshots: their keys, and the texts of records, tags and manifests.

    snapshots/NAME.json              record of a snapshot; names a manifest
    tags/TAG.json                    another name of a snapshot
    manifests/SHA256.json            files of a snapshot, and the blobs that hold their bytes
    blobs/HH/SHA256                  bytes; HH are the first two digits
    work/ID.json                     a push or a deletion that runs, or was interrupted

The rule: a text that was read is judged whole before anything is written by it; paths of a manifest stay below their log
dir.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

FORMAT: Final = 1
BLOB_BYTES: Final = 8 << 20
"""Most bytes of a blob: a larger file is cut, so that of a segment that has grown only its end is sent."""
SNAPSHOTS, TAGS, MANIFESTS, BLOBS, WORK = "snapshots", "tags", "manifests", "blobs", "work"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
_PATH_DEPTH_MAX: Final = 4


class SnapshotStoreError(Exception):
    """A snapshot cannot be stored, read or deleted; the text has the reason and a remedy."""


class DamagedSnapshotError(SnapshotStoreError):
    """An object of a snapshot is missing, cut off or changed."""


class Blob(NamedTuple):
    """Bytes in the store: their SHA-256 as hexadecimal text, and their number."""

    digest: str
    size: int

    @property
    def key(self) -> str:
        """Key of the object."""
        return f"{BLOBS}/{self.digest[:2]}/{self.digest}"


class Extent(NamedTuple):
    """Bytes of a file: the index of their blob, and their place in it."""

    blob: int
    start: int
    length: int


class StoredFile(NamedTuple):
    """A file of a log dir: path below it, bytes, and where these are."""

    path: str
    size: int
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Log dirs of a snapshot, each with its files, and all blobs."""

    log_dirs: tuple[tuple[StoredFile, ...], ...]
    blobs: tuple[Blob, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for files in self.log_dirs for file in files)

    def encode(self) -> bytes:
        """Return the manifest as JSON, equal for equal manifests."""
        value = {"format": FORMAT, "log_dirs": self.log_dirs, "blobs": self.blobs}
        return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot in the store; times are milliseconds since 1970, sizes bytes."""

    name: str
    created_ms: int
    manifest: str
    """SHA-256 of the manifest, as hexadecimal text."""
    files: int
    size: int
    topics: int
    log_dirs: int
    is_clean: bool
    """False if the broker was not shut down cleanly: the first start recovers the logs, as after a crash."""
    cluster_id: str
    version: str
    """Version of barnabas that has written it."""
    tags: tuple[str, ...] = field(default=())
    """Tags that name it; they are objects of their own."""

    def encode(self) -> bytes:
        """Return the record as JSON, without its tags."""
        value = {name: getattr(self, name) for name in self.__slots__ if name != "tags"}
        return json.dumps({"format": FORMAT, **value}, indent=1).encode()


def check_name(name: str) -> str:
    """Return a name of a snapshot or a tag. Raises SnapshotStoreError."""
    if not _NAME.match(name):
        raise SnapshotStoreError(
            f"{name!r} is no name for a snapshot: up to 100 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return name


def snapshot_key(name: str) -> str:
    """Return the key of a snapshot's record."""
    return f"{SNAPSHOTS}/{name}.json"


def tag_key(tag: str) -> str:
    """Return the key of a tag."""
    return f"{TAGS}/{tag}.json"


def manifest_key(digest: str) -> str:
    """Return the key of a manifest."""
    return f"{MANIFESTS}/{digest}.json"


def name_in(key: str, folder: str) -> str | None:
    """Return the name in the key of a record, a tag, a manifest or a work; None if the key is another's."""
    head, _, file = key.partition("/")
    name = file.removesuffix(".json")
    return name if head == folder and name != file and _NAME.match(name) else None


def blob_of(key: str, size: int) -> Blob | None:
    """Return the blob that a key names, None if the key is another's."""
    blob = Blob(key.rpartition("/")[2], size)
    return blob if _SHA256.match(blob.digest) and blob.key == key else None


def digest_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of bytes as hexadecimal text."""
    return sha256(data).hexdigest()


def decode_record(data: bytes, name: str) -> SnapshotRecord:
    """Decode the record of a snapshot. Raises DamagedSnapshotError."""
    subject = f"the record of snapshot {name}"
    value = _object(data, subject)
    try:
        record = SnapshotRecord(
            **{
                field: _typed(value[field], kind)
                for field, kind in (
                    ("name", str), ("created_ms", int), ("manifest", str), ("files", int), ("size", int),
                    ("topics", int), ("log_dirs", int), ("is_clean", bool), ("cluster_id", str), ("version", str),
                )
            }
        )  # fmt: skip
        if record.name != name or not _SHA256.match(record.manifest):
            raise ValueError("its name or its manifest is another's")
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedSnapshotError(f"{subject} is damaged: {error}") from error
    return record


def encode_tag(snapshot: str) -> bytes:
    """Return a tag of a snapshot as JSON."""
    return json.dumps({"format": FORMAT, "snapshot": snapshot}).encode()


def decode_tag(data: bytes, tag: str) -> str:
    """Return the name of a tag's snapshot. Raises DamagedSnapshotError."""
    value = _object(data, f"the tag {tag}")
    name = value.get("snapshot")
    if not isinstance(name, str) or not _NAME.match(name):
        raise DamagedSnapshotError(f"the tag {tag} is damaged: it names no snapshot")
    return name


def decode_manifest(data: bytes, digest: str) -> Manifest:
    """Decode a manifest of a known checksum. Raises DamagedSnapshotError."""
    subject = f"the manifest {digest}"
    if digest_of(data) != digest:
        raise DamagedSnapshotError(f"{subject} is damaged: its {len(data)} bytes have another checksum")
    value = _object(data, subject)
    try:
        blobs = tuple(Blob(_typed(digest, str), _typed(size, int)) for digest, size in value["blobs"])
        for blob in blobs:
            if not _SHA256.match(blob.digest) or not 0 < blob.size <= BLOB_BYTES:
                raise ValueError(f"blob {blob.digest} of {blob.size} bytes")
        log_dirs = tuple(tuple(_file(entry, blobs) for entry in files) for files in value["log_dirs"])
        for files in log_dirs:
            if len({file.path for file in files}) < len(files):
                raise ValueError("a path is there twice")
        if not log_dirs:
            raise ValueError("there is no log dir")
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedSnapshotError(f"{subject} is damaged: {error}") from error
    return Manifest(log_dirs, blobs)


def _file(entry: Any, blobs: Sequence[Blob]) -> StoredFile:
    path, size, extents = entry
    parts = _typed(path, str).split("/")
    if len(parts) > _PATH_DEPTH_MAX or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{path!r} is no path below a log dir")
    pieces = tuple(Extent(*(_typed(number, int) for number in extent)) for extent in extents)
    for piece in pieces:
        if min(piece) < 0 or piece.start + piece.length > blobs[piece.blob].size:
            raise ValueError(f"{path} has bytes outside of a blob")
    if sum(piece.length for piece in pieces) != _typed(size, int):
        raise ValueError(f"{path} has {size} bytes, and blobs for another number")
    return StoredFile(path, size, pieces)


def _object(data: bytes, subject: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedSnapshotError(f"{subject} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DamagedSnapshotError(f"{subject} is damaged: it is no JSON object")
    if value.get("format") != FORMAT:
        raise SnapshotStoreError(
            f"{subject} has format {value.get('format')}; this version reads format {FORMAT}"
        )
    return value


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} where a value of type {kind.__name__} is expected")
    return value

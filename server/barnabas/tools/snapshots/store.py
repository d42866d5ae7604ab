"""Snapshots in a store: records, tags, manifests and blobs, read with their checksums.

The rule: calls block, and are thread-safe. Data are verified before they are returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.tiered.storage import RemoteObjectNotFoundError
from barnabas.tools.snapshots.layout import (
    BLOBS,
    SNAPSHOTS,
    TAGS,
    Blob,
    DamagedSnapshotError,
    Manifest,
    SnapshotRecord,
    SnapshotStoreError,
    blob_of,
    check_name,
    decode_manifest,
    decode_record,
    decode_tag,
    digest_of,
    encode_tag,
    manifest_key,
    name_in,
    snapshot_key,
    tag_key,
)

if TYPE_CHECKING:
    from barnabas.tools.snapshots.urls import StorePlace


class SnapshotStore:
    """The snapshots of one store; methods raise RemoteStorageError if the store fails."""

    def __init__(self, place: StorePlace) -> None:
        self.url = place.url
        self._objects = place.objects
        self._prefix = place.prefix

    def put(self, key: str, data: bytes) -> None:
        """Store an object atomically; it replaces an older one."""
        self._objects.put(self._prefix + key, data)

    def get(self, key: str) -> bytes:
        """Return an object. Raises RemoteObjectNotFoundError."""
        return self._objects.get(self._prefix + key)

    def delete(self, keys: list[str]) -> None:
        """Remove objects; missing ones are ignored."""
        self._objects.delete([self._prefix + key for key in keys])

    def keys(self, folder: str) -> Iterator[tuple[str, int]]:
        """Keys and bytes of the objects in a folder."""
        for key, size in self._objects.list(f"{self._prefix}{folder}"):
            yield key[len(self._prefix) :], size

    def modified_ms(self, key: str) -> int:
        """Time of an object's last write by the store's clock. Raises RemoteObjectNotFoundError."""
        return self._objects.modified_ms(self._prefix + key)

    def blobs(self) -> set[Blob]:
        """All blobs that the store lists."""
        return {blob for key, size in self.keys(BLOBS) if (blob := blob_of(key, size)) is not None}

    def tags(self) -> dict[str, str]:
        """Tags, and the snapshot that each names. Raises DamagedSnapshotError."""
        names = (name_in(key, TAGS) for key, _ in self.keys(TAGS))
        return {tag: decode_tag(self.get(tag_key(tag)), tag) for tag in names if tag is not None}

    def records(self) -> list[SnapshotRecord]:
        """All snapshots with their tags, the oldest first. Raises DamagedSnapshotError."""
        by_snapshot: dict[str, list[str]] = {}
        for tag, snapshot in sorted(self.tags().items()):
            by_snapshot.setdefault(snapshot, []).append(tag)
        names = [name_in(key, SNAPSHOTS) for key, _ in self.keys(SNAPSHOTS)]
        records = [decode_record(self.get(snapshot_key(name)), name) for name in names if name is not None]
        records.sort(key=lambda record: (record.created_ms, record.name))
        return [replace(record, tags=tuple(by_snapshot.get(record.name, ()))) for record in records]

    def contains(self, name: str) -> bool:
        """Return whether there is a snapshot of this name."""
        return any(key == snapshot_key(name) for key, _ in self.keys(SNAPSHOTS))

    def resolve(self, name: str | None) -> SnapshotRecord:
        """Return the snapshot of a name or a tag, the newest if `name` is None. Raises SnapshotStoreError."""
        records = self.records()
        if name is None:
            if not records:
                raise SnapshotStoreError(f"there is no snapshot in {self.url}")
            return records[-1]
        check_name(name)
        for record in records:
            if record.name == name:
                return record
        for record in records:
            if name in record.tags:
                return record
        if name in self.tags():
            raise SnapshotStoreError(f"the tag {name} names a snapshot that was deleted")
        existing = ", ".join(record.name for record in records) or "none"
        raise SnapshotStoreError(f"there is no snapshot {name} in {self.url}; there are: {existing}")

    def tag(self, tag: str, snapshot: str) -> None:
        """Let a tag name this snapshot."""
        self.put(tag_key(check_name(tag)), encode_tag(snapshot))

    def manifest(self, digest: str) -> Manifest:
        """Return a manifest. Raises DamagedSnapshotError."""
        try:
            return decode_manifest(self.get(manifest_key(digest)), digest)
        except RemoteObjectNotFoundError as error:
            raise DamagedSnapshotError(f"the manifest {digest} is missing in {self.url}") from error

    def blob(self, blob: Blob) -> bytes:
        """Return the bytes of a blob. Raises DamagedSnapshotError."""
        try:
            data = self.get(blob.key)
        except RemoteObjectNotFoundError as error:
            raise DamagedSnapshotError(f"{blob.key} is missing in {self.url}") from error
        if len(data) != blob.size:
            raise DamagedSnapshotError(f"{blob.key} in {self.url} has {len(data)} bytes, and not {blob.size}")
        if digest_of(data) != blob.digest:
            raise DamagedSnapshotError(
                f"{blob.key} in {self.url} is damaged: its bytes have another checksum"
            )
        return data

"""Deletion of snapshots, and of objects that are no longer referenced.

The rule: deleting its record deletes a snapshot; blobs are deleted if no manifest of a record names them, and no push runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from barnabas.tools.snapshots.layout import (
    BLOBS,
    MANIFESTS,
    SnapshotStoreError,
    check_name,
    manifest_key,
    snapshot_key,
    tag_key,
)
from barnabas.tools.snapshots.leases import Lease, WorkKind, forget
from barnabas.tools.snapshots.store import SnapshotStore

_AT_ONCE = 100
"""Objects that are removed between two looks at the lease."""


class Pruned(NamedTuple):
    """Result of a deletion."""

    snapshots: list[str]
    tags: list[str]
    objects: int
    size: int
    """Bytes of blobs and manifests."""


def delete(store: SnapshotStore, names: Sequence[str], *, is_dry: bool = False, threads: int = 8) -> Pruned:
    """Remove snapshots and tags by name, then all unreferenced objects.

    A tag's name removes the tag alone. With `is_dry` nothing is removed.

    Raises:
        SnapshotStoreError: there is no such snapshot; another process writes to the store; a record cannot be read.
        RemoteStorageError.

    """
    for name in names:
        check_name(name)
    with Lease(store, WorkKind.DELETION, ", ".join(names) or "objects without a snapshot") as lease:
        records = store.records()
        tags = store.tags()
        existing = {record.name for record in records}
        for name in names:
            if name not in existing and name not in tags:
                raise SnapshotStoreError(
                    f"there is no snapshot or tag {name} in {store.url}; there are: {', '.join(sorted(existing)) or 'none'}"
                )
        gone = existing & set(names)
        gone_tags = [tag for tag, snapshot in tags.items() if tag in names or snapshot not in existing - gone]
        manifests = {record.manifest for record in records if record.name not in gone}
        used = {blob.key for digest in sorted(manifests) for blob in store.manifest(digest).blobs}
        used |= {manifest_key(digest) for digest in manifests}
        unused = [
            (key, size)
            for folder in (MANIFESTS, BLOBS)
            for key, size in store.keys(folder)
            if key not in used
        ]
        if not is_dry:
            lease.check()
            store.delete([*map(tag_key, gone_tags), *map(snapshot_key, sorted(gone))])
            with ThreadPoolExecutor(threads, "delete") as pool:
                for start in range(0, len(unused), _AT_ONCE):
                    lease.check()
                    keys = [[key] for key, _ in unused[start : start + _AT_ONCE]]
                    for _ in pool.map(store.delete, keys):
                        pass
            forget(store, lease.interrupted)
        return Pruned(sorted(gone), sorted(gone_tags), len(unused), sum(size for _, size in unused))

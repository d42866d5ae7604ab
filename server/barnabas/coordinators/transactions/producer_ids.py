"""Producer ids: each is allocated once, even across crashes.

The rule: a block of ids is recorded in the cluster's metadata, by this broker or by the controller, before its first id
is used; after a crash the rest of a block is never used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.metadata.changes import ProducerIdsAllocated
from barnabas.cluster.metadata.image import Change, ClusterImage

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore

BLOCK_SIZE = 1000
"""Ids of a block, as in Kafka."""


async def note_block(store: MetadataStore) -> tuple[int, int]:
    """Record a block of ids in the metadata; returns its first id and its size. Raises StorageError."""
    first = 0

    def decide(image: ClusterImage) -> list[Change]:
        nonlocal first
        first = image.next_producer_id
        return [ProducerIdsAllocated(first + BLOCK_SIZE)]

    await store.change(decide)
    return first, BLOCK_SIZE


class LocalProducerIds:
    """Implements `ports.ProducerIds` with blocks in the metadata store."""

    __slots__ = ("_end", "_next", "_store")

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = self._end = 0

    async def next(self) -> int:
        """Return a producer id that was never allocated before. Raises StorageError if a new block cannot be recorded."""
        if self._next == self._end:
            first, count = await note_block(self._store)
            self._next, self._end = first, first + count
        self._next += 1
        return self._next - 1

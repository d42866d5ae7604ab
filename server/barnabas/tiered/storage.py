"""Port to a remote store of segments (KIP-405's RemoteStorageManager).

Every call blocks and is made in a worker thread, several concurrently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from barnabas.tiered.segment import RemoteSegment, TopicIdPartition


class RemoteStorageError(Exception):
    """A request to a store failed: it may have taken effect nevertheless, and may be repeated."""


class RemoteObjectNotFoundError(RemoteStorageError):
    """The store has no such segment, or no such index of it."""


class IndexKind(Enum):
    """Files of a segment beside its log."""

    OFFSET = "index"
    TIMESTAMP = "timeindex"
    TRANSACTION = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCH = "leader_epoch_checkpoint"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The local files of a closed segment.

    Attributes:
        log: its records.
        offset_index: a complete offset index.
        time_index: a complete time index.
        producer_snapshot: state of producers at the offset after the segment's last one.
        leader_epochs: bytes of a leader epoch checkpoint up to the segment's end.
        transaction_index: None when the segment has no aborted transaction.
    """

    log: Path
    offset_index: Path
    time_index: Path
    producer_snapshot: Path
    leader_epochs: bytes
    transaction_index: Path | None = None


class RemoteStorage(Protocol):
    """A store of segments."""

    def copy(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Store a segment; when this returns, all of it is durable.

        Returns:
            Custom metadata that the segment's record keeps, None for nothing.

        Raises:
            RemoteStorageError: a part may be stored, and is removed by `delete`.

        """
        ...

    def read(self, segment: RemoteSegment, start: int, length: int) -> bytes:
        """Bytes of the segment's log from position `start`, fewer than `length` only at its end.

        Raises:
            RemoteObjectNotFoundError: the store has no such segment.
            RemoteStorageError: the store failed, or its object is damaged.

        """
        ...

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Whole bytes of an index.

        Raises:
            RemoteObjectNotFoundError: the store has no such index.
            RemoteStorageError: the store failed, or its object is damaged.

        """
        ...

    def delete(self, segment: RemoteSegment) -> None:
        """Remove all objects of a segment; a missing object is no error.

        Raises:
            RemoteStorageError: some may remain, and the call must be repeated.
        """
        ...

    def objects(self, partition: TopicIdPartition) -> Iterator[tuple[str, int, str]]:
        """Objects of a partition, for the check of what is stored: id of the segment, bytes, name of the object.

        Raises:
            RemoteStorageError: the store failed.

        """
        ...

    def close(self) -> None:
        """Release connections, caches and threads."""
        ...

"""Producers of a partition at an offset within a remote segment, for a log that begins there. Blocking: for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.tiering.reading import RemoteFile
from barnabas.log.config import UNBOUNDED
from barnabas.log.format import CorruptFileError, snapshot
from barnabas.log.producers import ProducerState, is_end_marker
from barnabas.log.scan import iter_headers, read_marker
from barnabas.log.timestamps import SCAN_BYTES
from barnabas.records.errors import RecordsError
from barnabas.tiered.storage import IndexKind, RemoteStorageError

if TYPE_CHECKING:
    from barnabas.tiered.segment import RemoteSegment
    from barnabas.tiered.storage import RemoteStorage


def producers_at(
    storage: RemoteStorage, segment: RemoteSegment, before: RemoteSegment | None, offset: int
) -> bytes:
    """Return the bytes of a snapshot of producers at an offset of a segment, or at its end.

    The store has a snapshot of each segment's end. For an offset within the segment its batches are replayed, from the end
    of the segment `before` it on. Raises RemoteStorageError.
    """
    if offset > segment.end_offset:
        data = storage.read_index(segment, IndexKind.PRODUCER_SNAPSHOT)
        _entries(segment, data)
        return data
    producers = ProducerState(expiration_ms=UNBOUNDED)
    producers.clear(segment.start_offset)
    if before is not None:
        data = storage.read_index(before, IndexKind.PRODUCER_SNAPSHOT)
        producers.load(_entries(before, data), segment.start_offset, 0)
    file = RemoteFile(storage, segment)
    try:
        for position, header in iter_headers(file, 0, segment.size, chunk_bytes=SCAN_BYTES):
            if header.base_offset >= offset:
                break
            if header.producer_id < 0:
                continue
            if not is_end_marker(header):
                producers.append(header)
            elif (marker := read_marker(file, position, header)) is not None:
                producers.append_marker(header, marker)
    except RecordsError as error:
        raise RemoteStorageError(f"segment {segment.segment_id} is damaged: {error}") from error
    return snapshot.encode(producers.snapshot())


def _entries(segment: RemoteSegment, data: bytes) -> list[snapshot.SnapshotEntry]:
    try:
        return snapshot.decode(data)
    except CorruptFileError as error:
        raise RemoteStorageError(
            f"the producers of segment {segment.segment_id} are damaged: {error}"
        ) from error

"""Comparison of an index entry with the batches of its segment.

The rule: indexes have no checksums, and to check whole indexes at the start would be too slow. So each lookup checks the
entries that it uses: one header each.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.log.disk import File
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.time_index import TimeIndex
from barnabas.records.batch import HEADER_SIZE, BatchHeader, read_any_header
from barnabas.records.errors import CorruptRecordsError, RecordsError


class IndexedSegment(Protocol):
    """Parts of a segment that the index checks read. Its methods raise OSError."""

    @property
    def base_offset(self) -> int:
        """The lowest possible offset in the segment."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def file(self) -> File:
        """The file of batches."""

    @property
    def offset_index(self) -> OffsetIndex:
        """Positions by offset."""

    @property
    def time_index(self) -> TimeIndex:
        """Offsets by timestamp."""

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the batch that contains `offset`, or of the next one; None after the last batch."""


def offset_entry_holds(segment: IndexedSegment, slot: int) -> bool:
    """Return whether a batch that ends at or before the entry's offset begins at its position; true without an entry.

    Raises OSError.
    """
    index = segment.offset_index
    if not 0 <= slot < len(index):
        return True
    offset, position = index.entry(slot)
    if not 0 <= position < segment.size:
        return False
    header = _header_at(segment, position)
    return header is not None and segment.base_offset <= header.base_offset <= header.last_offset <= offset


def time_entry_holds(segment: IndexedSegment, slot: int) -> bool:
    """Return whether the batch at the entry's offset has its timestamp, and the entry fits between its neighbours.

    True without such an entry. Raises OSError.
    """
    index = segment.time_index
    if not 0 <= slot < len(index):
        return True
    timestamp, offset = index.entry(slot)
    if slot and not _rises(index.entry(slot - 1), (timestamp, offset)):
        return False
    if slot + 1 < len(index) and not _rises((timestamp, offset), index.entry(slot + 1)):
        return False
    if offset < segment.base_offset:
        return False
    try:
        batch = segment.find(offset)
    except CorruptRecordsError:  # the log is damaged there, and readers will report it
        return True
    if batch is None:
        return False
    header = batch[1]
    begins_later = header.magic == 2 and header.base_offset > offset
    return header.max_timestamp == timestamp and not begins_later


def _rises(before: tuple[int, int], after: tuple[int, int]) -> bool:
    return before[0] < after[0] and before[1] <= after[1]


def _header_at(segment: IndexedSegment, position: int) -> BatchHeader | None:
    try:
        header = read_any_header(segment.file.read(min(HEADER_SIZE, segment.size - position), position))
    except RecordsError:
        return None
    return header if header.size <= segment.size - position else None

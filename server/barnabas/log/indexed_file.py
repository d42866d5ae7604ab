"""A file of batches with its offset and time index.

The rule: files are opened and indexes loaded when they are needed, and released when the pool asks.

Indexes live in memory and reach their files when the segment is sealed, flushed or closed. A crash loses no
more than recovery rebuilds anyway: it trusts no index of a segment that was not flushed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from errno import ENOENT

from barnabas.errors import lacks_room
from barnabas.log.damage import find_sound_batch
from barnabas.log.disk import Disk, File
from barnabas.log.format import CorruptFileError, names
from barnabas.log.format.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from barnabas.log.format.offset_index import OFFSET_DELTA_MAX, OffsetIndex
from barnabas.log.format.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from barnabas.log.format.time_index import NO_TIMESTAMP, TimeIndex
from barnabas.log.index_checks import time_entry_holds
from barnabas.log.openfiles import OpenFiles
from barnabas.log.scan import SWEEP_BYTES, iter_headers
from barnabas.records.batch import BatchHeader, require_order
from barnabas.records.errors import CorruptRecordsError

log = logging.getLogger(__name__)


class IndexedFile:
    """The batches from `base_offset` on, with their positions by offset and by timestamp."""

    __slots__ = (
        "_file",
        "_index_bytes_wanted",
        "_is_index_new",
        "_is_pooled",
        "_offset_index",
        "_offset_written",
        "_pool",
        "_time_index",
        "_time_known",
        "_time_written",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "dir",
        "disk",
        "first_timestamp",
        "index_interval_bytes",
        "is_closed",
        "is_preallocated",
        "mark",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
        "time_hint",
        "used",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: str,
        base_offset: int,
        size: int,
        *,
        index_interval_bytes: int = 4096,
        mark: str = "",
    ) -> None:
        self.disk = disk
        self.dir = directory
        self.base_offset = base_offset
        self.size = size
        self.index_interval_bytes = index_interval_bytes
        self.mark = mark
        self.is_preallocated = False
        self.is_closed = False  # for good: its path may now name a file of another log
        self.bytes_since_index = 0
        self.created_ms = -1  # when the first batch came, on the broker's clock; -1: not in this life
        self.first_timestamp: int | None = None  # the first batch's largest one, None: not read yet
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        # A timestamp in ms, and a position before which no batch of the log has a timestamp that large.
        self.time_hint: tuple[int, int] | None = None
        self.used = False
        self._is_index_new = False  # made in this life from the batches, so that damage is not its fault
        self._time_known = size == 0  # whether max_timestamp has been read
        self._pool = pool
        self._is_pooled = False
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._offset_written = 0  # bytes of the index that are in its file
        self._time_index: TimeIndex | None = None
        self._time_written = 0
        # Bytes of the larger index after its next entry, 0: not computed yet.
        self._index_bytes_wanted = 0

    def __repr__(self) -> str:
        return f"<segment {self.path(names.LOG)}, {self.size} bytes>"

    def path(self, suffix: str) -> str:
        """Return the path of the file of that type."""
        return f"{self.dir}/{names.file_name(self.base_offset, suffix, self.mark)}"

    # --- resources ------------------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        """The log file, opened if necessary. Raises OSError."""
        file = self._file
        if file is None:
            self._check_open()
            file = self._file = self.disk.open(self.path(names.LOG))
            self._touch()
        else:
            self.used = True
        return file

    def _check_open(self) -> None:
        if self.is_closed:
            raise FileNotFoundError(ENOENT, "the log was closed, deleted or moved", self.path(names.LOG))

    def is_in_place(self) -> bool:
        """Return whether the log file still has its name, as far as that can be checked. Raises OSError."""
        file, path = self._file, self.path(names.LOG)
        if file is not None:
            return file.is_at(path)
        try:
            self.disk.stat(path)
        except FileNotFoundError:
            return False
        return True

    def _touch(self) -> None:
        self.used = True
        if not self._is_pooled:
            self._is_pooled = True
            self._pool.add(self)

    def release(self) -> None:
        """Close the file, and unload the indexes once they are completely in their files."""
        self._is_pooled = False
        self._file = None
        try:
            self.write_indexes()
        except OSError as error:  # the next use of them raises it, for its own log dir
            log.warning("cannot write the indexes of %s: %s", self.path(names.LOG), error)
        else:
            self._forget_indexes()

    def close(self) -> None:
        """Write the indexes and close all files for good. Raises OSError."""
        self.write_indexes()
        self.abandon()

    def abandon(self) -> None:
        """Close all files without a write: they will be deleted, or their disk has failed."""
        if self._is_pooled:
            self._pool.discard(self)
        self._is_pooled = False
        self._file = None
        self._forget_indexes()

    def _forget_indexes(self) -> None:
        self._offset_index = self._time_index = None
        self._index_bytes_wanted = 0

    def count_in(self, pool: OpenFiles) -> None:
        """Count open resources against this pool, in place of the former one."""
        self._pool = pool
        if self._is_pooled:
            pool.add(self)

    def move_to(self, pool: OpenFiles) -> None:
        """Close all files, and count later ones against another pool. Raises OSError."""
        self.close()
        self._pool = pool

    # --- indexes --------------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index; rebuilt if its file is missing or damaged. Raises OSError."""
        index = self._offset_index
        return self._load_indexes()[0] if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; rebuilt if its file is missing or damaged. Raises OSError."""
        index = self._time_index
        return self._load_indexes()[1] if index is None else index

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        self._check_open()
        try:
            offsets = OffsetIndex.decode(
                self.base_offset, self.disk.read(self.path(names.OFFSET_INDEX)), self.size
            )
            times = TimeIndex.decode(self.base_offset, self.disk.read(self.path(names.TIME_INDEX)))
        except (CorruptFileError, FileNotFoundError) as error:
            if self.size:
                log.warning("rebuilding the indexes of %s: %s", self.path(names.LOG), error)
            self.rebuild_indexes()
            assert self._offset_index is not None
            assert self._time_index is not None
            return self._offset_index, self._time_index
        self._offset_index, self._time_index = offsets, times
        self._offset_written, self._time_written = len(offsets.entries), len(times.entries)
        self._touch()
        return offsets, times

    def reset_indexes(self) -> None:
        """Begin with empty indexes; the next `write_indexes` writes their files."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._offset_written = self._time_written = -1  # the files may be damaged
        self.bytes_since_index = self._index_bytes_wanted = 0
        self._is_index_new = True
        self.max_timestamp, self.max_timestamp_offset, self._time_known = NO_TIMESTAMP, self.base_offset, True
        self.first_timestamp = None
        self._touch()

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batches, and write them. Raises OSError.

        Damaged parts are skipped: readers report them, and later batches can be found.
        """
        file = self.file  # if it cannot be opened, the indexes stay unchanged
        self.reset_indexes()
        position, next_offset = 0, self.base_offset
        end_offset = next_offset + OFFSET_DELTA_MAX + 1
        while position < self.size:
            try:
                for at, header in iter_headers(file, position, self.size, chunk_bytes=SWEEP_BYTES):
                    position = at
                    require_order(header, next_offset, end_offset)
                    self.index_batch(at, header)
                    position, next_offset = at + header.size, header.next_offset
            except CorruptRecordsError as damage:
                log.warning("%s is damaged at position %d: %s", self.path(names.LOG), position, damage)
                sound_batch = find_sound_batch(file, position, self.size, first_offset=next_offset)
                position = sound_batch.position if sound_batch else self.size
        try:
            self.seal()
        except OSError as error:
            if not lacks_room(error):
                raise
            log.warning(
                "no room for the indexes of %s, they are kept in memory: %s", self.path(names.LOG), error
            )

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Add a batch of the file to the indexes."""
        if position == 0:
            self.first_timestamp = header.max_timestamp
        self._index(position, header.size, header.last_offset, header.max_timestamp, header.last_offset)

    def _index(
        self, position: int, size: int, last_offset: int, timestamp: int, timestamp_offset: int
    ) -> None:
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = timestamp_offset
        if self.bytes_since_index > self.index_interval_bytes and (
            last_offset - self.base_offset <= OFFSET_DELTA_MAX  # old releases could write larger distances
        ):
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = self._index_bytes_wanted = 0
        self.bytes_since_index += size

    def write_indexes(self) -> None:
        """Bring the index files up to date. Raises OSError."""
        if self._offset_index is not None:
            entries = self._offset_index.entries
            self._offset_written = self._write_index(names.OFFSET_INDEX, entries, self._offset_written)
        if self._time_index is not None:
            entries = self._time_index.entries
            self._time_written = self._write_index(names.TIME_INDEX, entries, self._time_written)

    def _write_index(self, suffix: str, entries: bytearray, written: int) -> int:
        size = len(entries)
        if size != written:
            file = self.disk.open(self.path(suffix), create=True)
            start = max(0, written)
            if start < size:
                file.write(entries[start:size], start)
            if start > size or written < 0:
                file.truncate(size)
        return size

    def has_index_room(self, index_bytes_max: int) -> bool:
        """Return whether the next entry fits both indexes; the last slot of the time index is reserved for `seal`."""
        bytes_needed = self._index_bytes_wanted
        if not bytes_needed:
            bytes_needed = self._index_bytes_wanted = max(
                len(self.offset_index.entries) + OFFSET_ENTRY_SIZE,
                len(self.time_index.entries) + 2 * TIME_ENTRY_SIZE,
            )
        return bytes_needed <= index_bytes_max

    def load_max_timestamp(self) -> int:
        """Return the largest timestamp in ms, NO_TIMESTAMP without any; sets `max_timestamp_offset` too."""
        if not self._time_known:
            index = self.time_index
            if not self._is_index_new and not time_entry_holds(self, len(index) - 1):
                self._rebuild_contradicted("time", len(index) - 1)
            else:
                self.max_timestamp, self.max_timestamp_offset = index.last()
                self._time_known = True
        return self.max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp in ms; without any, the time of the file's last change."""
        return self.find_largest_timestamp()

    def find_largest_timestamp(self) -> int:
        """Return `largest_timestamp`; may read the time index. Raises OSError."""
        timestamp = self.load_max_timestamp()
        return timestamp if timestamp >= 0 else self.disk.stat(self.path(names.LOG)).modified_ms

    def scan_start(self, timestamp_ms: int, position: int) -> int:
        """Return the position from which to search for a timestamp: `position`, or a later one that an earlier scan
        reached."""
        hint = self.time_hint
        return max(position, hint[1]) if hint is not None and timestamp_ms >= hint[0] else position

    def load_first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, from which the segment's age counts, or NO_TIMESTAMP."""
        if self.first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            _, header = next(iter_headers(self.file, 0, self.size))
            self.first_timestamp = header.max_timestamp
        return self.first_timestamp

    def seal(self) -> None:
        """Write the indexes finally, with the largest timestamp as the last entry. Raises OSError."""
        if self.is_preallocated:
            self.file.truncate(self.size)
            self.is_preallocated = False
        if (
            self.load_max_timestamp() >= 0
            and self.max_timestamp_offset - self.base_offset <= OFFSET_DELTA_MAX
        ):
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self._index_bytes_wanted = 0
        self.write_indexes()

    # --- lookups --------------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the batch that contains `offset`, or of the next one; None after the last batch.

        Raises OSError, CorruptRecordsError.
        """
        try:
            return self._find(offset)
        except CorruptRecordsError as error:
            if self._is_index_new:
                raise
            log.warning("rebuilding the indexes of %s: %s", self.path(names.LOG), error)
            self.rebuild_indexes()
            return self._find(offset)

    def _find(self, offset: int) -> tuple[int, BatchHeader] | None:
        indexed_offset, start = self.offset_index.floor(offset)
        if start and not 0 < start < self.size:
            raise CorruptRecordsError(f"the index says {indexed_offset} is at {start} of {self.size} bytes")
        for position, header in iter_headers(self.file, start, self.size):
            last_offset = header.base_offset + header.last_offset_delta
            if position == start and start and not self.base_offset <= last_offset <= indexed_offset:
                raise CorruptRecordsError(f"the index says {indexed_offset} is at {start}, not {last_offset}")
            if last_offset >= offset:
                return position, header
        return None

    def _rebuild_contradicted(self, which: str, slot: int) -> None:
        log.warning(
            "rebuilding the indexes of %s: entry %d of the %s index is not what the batches say",
            self.path(names.LOG), slot, which,
        )  # fmt: skip
        self.rebuild_indexes()

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Iterate over all batches from `position`, the start of a batch. Raises OSError, CorruptRecordsError."""
        return iter_headers(self.file, position, self.size, chunk_bytes=SWEEP_BYTES)

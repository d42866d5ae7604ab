"""One segment: a file of batches with its offset, time and transaction index.

The rule: `size` counts the bytes of complete writes; the rest of a failed write behind it is cut off or overwritten.
`indexed_file` opens files and loads indexes.
"""

from __future__ import annotations

import logging

from barnabas.log.background_write import BackgroundWrite
from barnabas.log.config import LogConfig
from barnabas.log.disk import Buffer, Disk
from barnabas.log.format import names, txn_index
from barnabas.log.format.time_index import NO_TIMESTAMP
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.index_checks import offset_entry_holds, time_entry_holds
from barnabas.log.indexed_file import IndexedFile
from barnabas.log.openfiles import OpenFiles
from barnabas.log.scan import SWEEP_BYTES, iter_headers

log = logging.getLogger(__name__)


class Segment(IndexedFile):
    """The batches from `base_offset` on, up to the next segment.

    Lifecycle: `create` or `Segment(...)` for existing files; `append` while it is active; `seal` when the next one is
    rolled; `mark_files` renames its files before removal or after a swap.
    """

    __slots__ = ("_aborted", "_background", "has_txn_index")

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: str,
        base_offset: int,
        size: int,
        *,
        index_interval_bytes: int = 4096,
        has_txn_index: bool = False,
        mark: str = "",
    ) -> None:
        super().__init__(
            disk, pool, directory, base_offset, size, index_interval_bytes=index_interval_bytes, mark=mark
        )
        self.has_txn_index = has_txn_index
        self._aborted: list[AbortedTransaction] | None = None
        self._background: BackgroundWrite | None = None  # of records to be appended next

    @classmethod
    def create(
        cls, disk: Disk, pool: OpenFiles, directory: str, base_offset: int, config: LogConfig, mark: str = ""
    ) -> Segment:
        """Create a new, empty segment; files of that name are emptied. Raises OSError."""
        segment = cls(
            disk,
            pool,
            directory,
            base_offset,
            0,
            index_interval_bytes=config.index_interval_bytes,
            mark=mark,
        )
        file = disk.open(segment.path(names.LOG), create=True)
        if file.size():
            file.truncate(0)
        if config.preallocate and not mark:
            file.allocate(config.segment_bytes)
            segment.is_preallocated = True  # until it is sealed
        disk.remove(segment.path(names.TXN_INDEX))
        segment._file = file
        segment.reset_indexes()
        segment._touch()
        return segment

    def release(self) -> None:
        """Close the files, and unload the indexes once they are completely in their files."""
        self._aborted = None
        super().release()

    def abandon(self) -> None:
        """Close all files without a write: they will be deleted, or their disk has failed."""
        self._aborted = None
        write, self._background = self._background, None
        if write is not None:
            write.give_up()  # do not write to a file that may soon belong to another log
        super().abandon()

    # --- aborted transactions -------------------------------------------------------------------------------

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The transactions with their abort marker in this segment. Raises OSError, CorruptFileError."""
        if self._aborted is None:
            if not self.has_txn_index:
                return []
            self._aborted = txn_index.decode(self.disk.read(self.path(names.TXN_INDEX)), self.base_offset)
            self._touch()
        return self._aborted

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction. Raises OSError."""
        aborted = self.aborted
        file = self.disk.open(self.path(names.TXN_INDEX), create=True)
        file.write(txn_index.encode([transaction]), len(aborted) * txn_index.ENTRY_SIZE)
        self.has_txn_index = True
        self._aborted = [*aborted, transaction]
        self._touch()

    def set_aborted(self, aborted: list[AbortedTransaction]) -> None:
        """Replace all entries; without any, there is no file. Raises OSError."""
        had_index, self.has_txn_index = self.has_txn_index, bool(aborted)
        self._aborted = aborted
        self._touch()
        if aborted:
            data = txn_index.encode(aborted)
            file = self.disk.open(self.path(names.TXN_INDEX), create=True)
            if file.size() != len(data) or file.read(len(data), 0) != data:
                file.truncate(0)
                file.write(data, 0)
        elif had_index:
            self.disk.remove(self.path(names.TXN_INDEX))

    # --- writing --------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        last_offset: int,
        first_timestamp: int,
        max_timestamp: int,
        timestamp_offset: int,
    ) -> None:
        """Write whole batches at the end, in one write.

        Timestamps in ms: `first_timestamp` is of the first batch, `max_timestamp` of all, first reached by the batch
        that ends at `timestamp_offset`. Raises OSError, and then the segment is unchanged.
        """
        position = self.size
        try:
            if self._background is None or not self._take_write(records):
                self.file.write(records, position)
        except OSError:
            self._cut_off(position)
            raise
        if not self._time_known:
            self.load_max_timestamp()
        size = len(records)
        if not position:
            self.first_timestamp = first_timestamp
        self._index(position, size, last_offset, max_timestamp, timestamp_offset)
        self.size = position + size

    def begin_write(self, records: Buffer) -> BackgroundWrite:
        """Return a write of the next batches, for a thread to run before `append`. Raises OSError."""
        self._end_write()
        write = self._background = BackgroundWrite(self.file, records, self.size)
        return write

    def end_write(self, write: BackgroundWrite) -> None:
        """Undo the written bytes of such a write, unless its records were appended. Raises OSError."""
        if self._background is write:
            self._end_write()

    def _end_write(self) -> None:
        write, self._background = self._background, None
        if write is not None and write.give_up():
            self.file.truncate(self.size)

    def _take_write(self, records: Buffer) -> bool:
        """Return whether the write in the background has written exactly these records. Raises OSError."""
        write, self._background = self._background, None
        assert write is not None
        if write.take(records, self.size):
            return True
        if write.give_up():
            self.file.truncate(self.size)
        return False

    def seal(self) -> None:
        """Write the indexes finally, as no appends will follow. Raises OSError."""
        self._end_write()
        super().seal()

    def _cut_off(self, size: int) -> None:
        try:
            self.file.truncate(size)
        except OSError as error:  # recovery does it; bytes beyond `size` are never read
            log.warning("cannot cut off what a failed write left in %s: %s", self.path(names.LOG), error)

    def sync(self) -> None:
        """Sync the files: all written bytes are on disk afterwards. Raises OSError."""
        self.write_indexes()
        self.file.sync()
        for path in self.index_paths():
            self.disk.open(path).sync()

    def index_paths(self) -> list[str]:
        """Return the paths of the index files of a sealed segment."""
        paths = [self.path(names.OFFSET_INDEX), self.path(names.TIME_INDEX)]
        return [*paths, self.path(names.TXN_INDEX)] if self.has_txn_index else paths

    def truncate(self, offset: int) -> None:
        """Remove the batch that contains `offset`, and all after it. Raises OSError."""
        batch = self.find(offset)
        if batch is None:
            return
        position = batch[0]
        self._end_write()
        self.time_hint = None
        first_timestamp = self.first_timestamp
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.file.truncate(position)
        self.size = position
        self.bytes_since_index = self._index_bytes_wanted = 0
        if position:
            self._find_max_timestamp()
        else:
            self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
            self._time_known = True
            first_timestamp = None
            self.created_ms = -1
        self.first_timestamp = first_timestamp
        if self.has_txn_index:
            self.set_aborted([entry for entry in self.aborted if entry.last_offset < offset])
        self.write_indexes()

    def _find_max_timestamp(self) -> None:
        index = self.time_index
        timestamp, timestamp_offset = NO_TIMESTAMP, self.base_offset
        if self._is_index_new or time_entry_holds(self, len(index) - 1):
            timestamp, timestamp_offset = index.last()
        start = self.checked_start(timestamp_offset)
        for _, header in iter_headers(self.file, start, self.size, chunk_bytes=SWEEP_BYTES):
            if header.max_timestamp > timestamp:
                timestamp, timestamp_offset = header.max_timestamp, header.last_offset
        self.max_timestamp, self.max_timestamp_offset, self._time_known = timestamp, timestamp_offset, True

    def mark_files(self, mark: str, *, may_be_gone: bool = False) -> None:
        """Rename the files to have the suffix `mark` ("" for none). Raises OSError.

        With `may_be_gone`, a missing log file is no error: it was to be removed.
        """
        suffixes = [names.OFFSET_INDEX, names.TIME_INDEX, names.LOG]
        if self.has_txn_index:
            suffixes.insert(0, names.TXN_INDEX)
        for suffix in suffixes:
            target = f"{self.dir}/{names.file_name(self.base_offset, suffix, mark)}"
            try:
                self.disk.rename(self.path(suffix), target)
            except FileNotFoundError:
                if suffix == names.LOG:
                    if not may_be_gone:
                        raise
                    log.warning("%s was to be removed, and is gone already", self.path(suffix))
        self.mark = mark

    # --- reading --------------------------------------------------------------------------------------------

    def checked_start(self, offset: int) -> int:
        """Return the nearest indexed position at or before the batch that contains `offset`.

        If an entry contradicts the batch at its position, the indexes are rebuilt. Raises OSError.
        """
        index = self.offset_index
        slot = index.slots_up_to(offset) - 1
        if not self._is_index_new and not offset_entry_holds(self, slot):
            self._rebuild_contradicted("offset", slot)
            return self.offset_index.lookup(offset)
        return index.entry(slot)[1] if slot >= 0 else 0

    def offset_before(self, timestamp: int) -> int:
        """Return an offset up to which no record is newer than `timestamp`.

        The entries of the time index around it are compared with their batches: if one is damaged, the indexes are
        rebuilt, so that no records are hidden. Raises OSError.
        """
        index = self.time_index
        slot = index.slots_up_to(timestamp) - 1
        if not self._is_index_new:
            for entry_slot in (slot, slot + 1):
                if not time_entry_holds(self, entry_slot):
                    self._rebuild_contradicted("time", entry_slot)
                    return self.time_index.lookup(timestamp)
        return index.entry(slot)[1] if slot >= 0 else self.base_offset

    def offset_bound(self, position: int) -> int | None:
        """Return an upper bound of the offsets before `position`, None if the index has none. Raises OSError."""
        index = self.offset_index
        slot = index.slots_before(position)
        if not self._is_index_new and not offset_entry_holds(self, slot):
            self._rebuild_contradicted("offset", slot)
            index = self.offset_index
            slot = index.slots_before(position)
        return index.entry(slot)[0] if slot < len(index) else None

    def read_end_offset(self) -> int:
        """Return the offset after the last batch. Raises OSError, CorruptRecordsError."""
        last = len(self.offset_index) - 1
        if not self._is_index_new and not offset_entry_holds(self, last):
            self._rebuild_contradicted("offset", last)
        end_offset = self._read_end_offset()
        if self.offset_index.last_offset >= end_offset and not self._is_index_new:
            self._rebuild_contradicted("offset", last)
        return end_offset

    def _read_end_offset(self) -> int:
        end_offset = self.base_offset
        index = self.offset_index
        position = index.entry(len(index) - 1)[1] if len(index) else 0
        for _, header in iter_headers(self.file, position, self.size):
            end_offset = header.next_offset
        return end_offset

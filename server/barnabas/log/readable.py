"""The log of one partition as its readers see it: batches, positions, and offset limits.

The rule: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`, and nothing here moves any of
them: `partition_log` does.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeVar

from barnabas.errors import RequestError
from barnabas.log.errors import Code, failure_of, guarded
from barnabas.log.format import CorruptFileError, names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.parts import LogParts
from barnabas.log.replay import rebuild_txn_index
from barnabas.log.results import ReadResult
from barnabas.log.scan import iter_headers
from barnabas.log.segment import Segment
from barnabas.log.segments import Segments
from barnabas.log.timestamps import (
    TimestampOffset,
    find_max_timestamp_steps,
    find_timestamp_steps,
    segment_times_steps,
)
from barnabas.records.batch import LENGTH_OFFSET, LOG_OVERHEAD, BatchHeader
from barnabas.records.steps import Steps, run

T = TypeVar("T")


class ReadableLog:
    """Queries of a log, which do not change it. Methods raise StorageError when the disk fails."""

    __slots__ = (
        "config",
        "dir",
        "disk",
        "epochs",
        "high_watermark",
        "last_stable_offset",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "name",
        "partition",
        "store",
        "topic",
    )

    def __init__(self, topic: str, partition: int, parts: LogParts) -> None:
        self.topic = topic
        self.partition = partition
        self.name = names.dir_name(topic, partition)
        self.config = parts.config
        loaded, disk = parts.loaded, parts.disk
        self.log_dir = parts.log_dir
        self.dir = f"{parts.log_dir}/{self.name}"
        self.disk = disk
        self.store = Segments(
            loaded.segments,
            loaded.snapshots,
            directory=self.dir,
            disk=disk,
            pool=parts.pool,
            trash=parts.trash,
        )
        self.epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        # records that are deleted, or only in tiered storage, were committed
        committed = max(parts.high_watermark, loaded.log_start_offset, loaded.segments[0].base_offset)
        self.high_watermark = min(committed, loaded.log_end_offset)
        self.last_stable_offset = self.high_watermark

    def __repr__(self) -> str:
        return (
            f"<log {self.dir}: start {self.log_start_offset}, last stable {self.last_stable_offset}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}>"
        )

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in order, the active one last; an immutable value."""
        return self.store.all

    @property
    def active(self) -> Segment:
        """The segment to which records are appended."""
        return self.store.active

    @property
    def local_log_start_offset(self) -> int:
        """First offset of the records in the log dir; records before it, from the log start on, are in tiered storage."""
        return max(self.log_start_offset, self.store.bases[0])

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return self.store.size_bytes

    @guarded
    def missing_file(self, *, all_segments: bool = False) -> str | None:
        """Return the path of a log file that was removed or replaced since it was opened; None if all are in place.

        Checks the active segment, the others only with `all_segments`. Outside the thread that owns the log the answer
        may be wrong: the files may just be renamed. Raises StorageError.
        """
        for segment in self.segments if all_segments else (self.active,):
            if not segment.is_in_place():
                return segment.path(names.LOG)
        return None

    # --- reading --------------------------------------------------------------------------------------------

    @guarded
    def first_batches(self) -> list[tuple[int, BatchHeader]]:
        """Return base offset and first batch of each segment that has any. Raises StorageError, CorruptRecordsError."""
        return [
            (segment.base_offset, next(iter_headers(segment.file, 0, segment.size))[1])
            for segment in self.segments
            if segment.size
        ]

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        upper_offset: int,
        min_one_batch: bool = True,
        is_end_wanted: bool = True,
    ) -> ReadResult:
        """Return the batches of one segment, undecoded, from the one that contains `offset` on.

        None of them begins at or after `upper_offset`: the high watermark, the last stable offset or the log end,
        depending on the reader. At most `max_bytes`, so the last batch may be cut off; but the first one is whole with
        `min_one_batch`. The first may begin before `offset`. With `is_end_wanted` false a search in the offset index is
        saved: the result's `next_offset` may then be much too large. Raises RequestError (OFFSET_OUT_OF_RANGE, or
        OFFSET_MOVED_TO_TIERED_STORAGE below the local log start), StorageError, and CorruptRecordsError if the log is
        damaged there.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise RequestError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.name} has offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        if offset >= upper_offset or offset == self.log_end_offset:
            return ReadResult(b"", offset)
        try:
            return self._read(offset, max_bytes, upper_offset, min_one_batch, is_end_wanted)
        except OSError as error:
            raise failure_of("read", self, error) from error

    def _read(
        self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool, is_end_wanted: bool
    ) -> ReadResult:
        store = self.store
        if offset < store.bases[0]:
            raise RequestError(
                Code.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"{self.name} has offset {offset} in tiered storage only: the local log begins at {store.bases[0]}",
            )
        place = store.find(offset)
        if place is None:
            return ReadResult(b"", offset)
        segment, position = place
        end, next_offset = store.end_within(segment, upper_offset, self.log_end_offset)
        size = end - position
        if size > max_bytes:
            size = self._limit(segment, position, size, max_bytes, min_one_batch=min_one_batch)
            if is_end_wanted:
                bound = segment.offset_bound(position + size)
                if bound is not None and bound < next_offset:
                    next_offset = bound + 1
        elif segment is store.active:
            store.note_place(next_offset, segment, end)
        if size <= 0:
            return ReadResult(b"", offset)
        file = segment.file
        return ReadResult(file.region(position, size), next_offset, file, position)

    def _limit(
        self, segment: Segment, position: int, size: int, max_bytes: int, *, min_one_batch: bool
    ) -> int:
        if not min_one_batch:
            return max_bytes
        length = segment.file.read(4, position + LENGTH_OFFSET)
        return min(size, max(max_bytes, LOG_OVERHEAD + int.from_bytes(length, "big")))

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records from `start_offset` up to before `upper_offset`.

        Raises StorageError.
        """
        try:
            return self._aborted_transactions(start_offset, upper_offset)
        except OSError as error:
            raise failure_of("aborted_transactions", self, error) from error

    def _aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        aborted: list[AbortedTransaction] = []
        for segment in self.segments[self.store.index_of(start_offset) :]:
            if not segment.has_txn_index:
                continue
            transactions = self._load_aborted(segment)
            first = bisect_left(transactions, start_offset, key=lambda entry: entry.last_offset)
            for index in range(first, len(transactions)):
                transaction = transactions[index]
                if transaction.first_offset < upper_offset:
                    aborted.append(transaction)
                if transaction.last_stable_offset >= upper_offset:
                    return aborted
        return aborted

    def _load_aborted(self, segment: Segment) -> list[AbortedTransaction]:
        try:
            return segment.aborted
        except (CorruptFileError, FileNotFoundError):
            rebuild_txn_index(self.segments, segment, self.store.snapshots)
            return segment.aborted

    # --- timestamps -----------------------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Find the first record with a timestamp of at least `timestamp_ms`.

        Raises StorageError, RecordsError.
        """
        return run(self.timestamp_steps(timestamp_ms))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Find the first record that has the largest timestamp of all (KIP-734).

        Raises StorageError, RecordsError.
        """
        return run(self.max_timestamp_steps())

    def timestamp_steps(self, timestamp_ms: int) -> Steps[TimestampOffset | None]:
        """Do the same as `offset_for_timestamp`, in steps; the log may change between them."""
        return self._guarded_steps(
            find_timestamp_steps(
                lambda: self.segments,
                timestamp_ms,
                self.log_start_offset,
                self.config.max_decompressed_message_bytes,
            )
        )

    def max_timestamp_steps(self) -> Steps[TimestampOffset | None]:
        """Do the same as `offset_of_max_timestamp`, in steps; the log may change between them."""
        return self._guarded_steps(
            find_max_timestamp_steps(lambda: self.segments, self.config.max_decompressed_message_bytes)
        )

    def segment_times_steps(self) -> Steps[list[tuple[int, int]]]:
        """Return base offset and largest timestamp in ms of each segment that is not empty, in steps."""
        return self._guarded_steps(segment_times_steps(lambda: self.segments))

    def _guarded_steps(self, steps: Steps[T]) -> Steps[T]:
        try:
            return (yield from steps)
        except OSError as error:
            raise failure_of("a look for a timestamp", self, error) from error

    # --- epochs ---------------------------------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to `epoch`, (-1, -1) if it is unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

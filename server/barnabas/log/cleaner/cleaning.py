"""One cleaning of one log: read the dirty part into a map, write new segments, swap them in.

The rule: the thread that owns the log creates a `CleaningTask` and calls its `finish_steps` or `discard`; `run` may be
called in any thread. After a crash at any point `recovery` finishes or undoes the cleaning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.log.cleaner.filter import BatchFilter, LastRecord, control_type_of
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.cleaner.planner import CleanableRange, SegmentFacts, group_segments
from barnabas.log.cleaner.transactions import TransactionTracker
from barnabas.log.format import names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.openfiles import OpenFiles
from barnabas.log.scan import iter_whole
from barnabas.log.segment import Segment
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, read_any_header, require_crc, require_order
from barnabas.records.steps import Steps

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

OPEN_FILES_MAX = 16
Throttle = Callable[[int], None]


class CleaningAbortedError(Exception):
    """The log was deleted or truncated, or the broker stops, while it was cleaned: nothing has changed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A segment to clean, as it was when the task was created."""

    facts: SegmentFacts
    segment: Segment
    path: str
    modified_ms: int


@dataclass(slots=True)
class CleaningStats:
    """Statistics of one cleaning."""

    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0
    keyless_count: int = 0


@dataclass(slots=True)
class CleaningTotals:
    """Totals of all cleanings since the start."""

    count: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    last_recopy_percent: int = 0

    def add(self, stats: CleaningStats) -> None:
        """Add the statistics of one cleaning."""
        self.count += 1
        self.bytes_read += stats.bytes_read
        self.bytes_written += stats.bytes_written
        self.last_recopy_percent = 100 * stats.bytes_written // max(stats.bytes_read, 1)


@dataclass(slots=True)
class CleaningTask:
    """A planned cleaning, with all facts about the log that it needs.

    `sources` are the segments from the first one to the end of the cleanable range. `throttle` is called with
    the number of bytes read or written, and may wait. After `run`, the part of the log before `clean_offset` is clean.
    """

    partition_log: PartitionLog
    range: CleanableRange
    sources: list[Source]
    aborted: list[AbortedTransaction]
    last_records: dict[int, LastRecord]
    now_ms: int
    dedupe_bytes: int
    load_factor: float = 0.9
    throttle: Throttle | None = None
    generation: int = 0  # of the log, when the task was created
    is_cancelled: bool = False
    clean_offset: int = -1
    stats: CleaningStats = field(default_factory=CleaningStats)
    replacements: list[tuple[list[Source], Segment]] = field(default_factory=list)

    def cancel(self) -> None:
        """Ask `run` to stop soon; from any thread."""
        self.is_cancelled = True

    # --- in any thread --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Write the new segments, as `.cleaned` files, synced when this returns.

        Raises OSError, RecordsError if the log is damaged, CleaningAbortedError; then `discard` removes the files.
        """
        offsets = self._build_map()
        self.clean_offset = offsets.latest_offset + 1
        self.stats.keys = len(offsets)
        config = self.partition_log.config
        sources = [source for source in self.sources if source.facts.base_offset < self.clean_offset]
        groups = group_segments(
            [source.facts for source in sources],
            segment_bytes=config.segment_bytes,
            index_bytes=config.segment_index_bytes,
            end_offset=self.range.end_offset,
        )
        batch_filter = BatchFilter(
            offsets,
            self._tracker(),
            self.last_records,
            self.now_ms,
            config.delete_retention_ms,
            self.range.end_offset,
            record_bytes_max=config.max_decompressed_message_bytes,
        )
        legacy_horizon_ms = self._legacy_horizon_ms(config.delete_retention_ms)
        remaining = iter(sources)
        for group in groups:
            self._clean_group([next(remaining) for _ in group], batch_filter, legacy_horizon_ms)
        self.stats.keyless_count = batch_filter.keyless_count

    def _build_map(self) -> OffsetMap:
        offsets = OffsetMap(self.dedupe_bytes, self.load_factor)
        tracker = self._tracker(self.range.dirty_offset)
        next_bases = [*(source.facts.base_offset for source in self.sources[1:]), self.range.end_offset]
        for source, next_base in zip(self.sources, next_bases, strict=True):
            if next_base <= self.range.dirty_offset:
                continue
            if not self._map_segment(source, offsets, tracker):
                break
            offsets.latest_offset = next_base - 1
        return offsets

    def _map_segment(self, source: Source, offsets: OffsetMap, tracker: TransactionTracker) -> bool:
        """Add the keys of a segment to the map; returns whether all of them fit."""
        dirty_offset = self.range.dirty_offset
        record_bytes_max = self.partition_log.config.max_decompressed_message_bytes
        for header, data in self._batches(source):
            if header.last_offset < dirty_offset:
                continue
            if header.is_control:
                tracker.see_marker(header, control_type_of(data))
            elif not tracker.see_batch(header):
                for record in iter_any_records(data, record_bytes_max=record_bytes_max):
                    if record.key is not None and record.offset >= dirty_offset:
                        if offsets.is_full:
                            return False
                        offsets.put(record.key, record.offset)
            offsets.latest_offset = header.last_offset
        return True

    def _tracker(self, from_offset: int = 0) -> TransactionTracker:
        tracker = TransactionTracker()
        tracker.expect(entry for entry in self.aborted if entry.last_offset >= from_offset)
        return tracker

    def _legacy_horizon_ms(self, delete_retention_ms: int) -> int:
        """Return the time before which a segment must have been written for its v0 and v1 tombstones to be removed."""
        clean = [source for source in self.sources if source.facts.base_offset < self.range.dirty_offset]
        return clean[-1].modified_ms - delete_retention_ms if clean else 0

    def _clean_group(self, sources: list[Source], batch_filter: BatchFilter, legacy_horizon_ms: int) -> None:
        partition_log = self.partition_log
        self._check_wanted()
        cleaned = Segment.create(
            partition_log.disk,
            OpenFiles(OPEN_FILES_MAX),
            partition_log.dir,
            sources[0].facts.base_offset,
            partition_log.config,
            names.CLEANED,
        )
        self.replacements.append((sources, cleaned))
        for source in sources:
            batch_filter.keep_legacy_tombstones = source.modified_ms > legacy_horizon_ms
            for header, data in self._batches(source):
                kept = batch_filter.filter(header, data)
                if kept is not None:
                    self._write(cleaned, kept)
        cleaned.set_aborted(batch_filter.transactions.take_aborted())
        cleaned.seal()
        cleaned.sync()
        modified_ms = sources[-1].modified_ms
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            partition_log.disk.set_modified(cleaned.path(suffix), modified_ms)

    def _write(self, cleaned: Segment, kept: bytes | memoryview) -> None:
        header = read_any_header(kept)
        timestamp = header.max_timestamp
        cleaned.append(kept, header.last_offset, timestamp, timestamp, header.last_offset)
        self.stats.bytes_written += header.size
        if self.throttle is not None:
            self.throttle(header.size)

    def _check_wanted(self) -> None:
        """Stop if the log was deleted or moved: its paths may soon belong to another log."""
        if self.is_cancelled or self.partition_log.is_closed:
            raise CleaningAbortedError(f"the cleaning of {self.partition_log.name} was cancelled")

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches of a segment. Raises CorruptRecordsError: damaged bytes must not get a valid checksum here."""
        next_offset = source.facts.base_offset
        try:
            file = self.partition_log.disk.open(source.path)
        except FileNotFoundError:
            raise CleaningAbortedError(f"{source.path} is gone") from None
        for _, header, data in iter_whole(file, source.facts.size):
            self._check_wanted()
            self.stats.bytes_read += header.size
            if self.throttle is not None:
                self.throttle(header.size)
            require_order(header, next_offset, self.partition_log.log_end_offset)
            require_crc(data, 0, header)
            next_offset = header.next_offset
            yield header, data

    # --- in the thread that owns the log --------------------------------------------------------------------

    def finish_steps(self, now_ms: int) -> Steps[bool]:
        """Swap the new segments in, in steps: renaming the files of one segment takes a millisecond.

        Returns False if the log has changed so much that some of them could not be swapped in. Raises StorageError.
        """
        partition_log = self.partition_log
        try:
            for sources, cleaned in self.replacements:
                if not self._may_replace(sources):
                    self.discard()
                    return False
                cleaned.move_to(partition_log.store.pool)
                old = [source.segment for source in sources]
                for _ in partition_log.replace_segments(old, cleaned, now_ms=now_ms):
                    yield None
                    if partition_log.is_closed:  # the task's files may be gone or moved
                        self.discard()
                        return False
                yield None
        except OSError as error:
            self.discard()
            raise StorageError(partition_log.log_dir, error) from error
        partition_log.clean_offset = self.clean_offset
        log.info(
            "cleaned %s up to offset %d: %d bytes became %d, %d keys",
            partition_log.name, self.clean_offset, self._source_bytes(), self.stats.bytes_written,
            self.stats.keys,
        )  # fmt: skip
        if self.stats.keyless_count:
            log.warning(
                "%d records without a key were removed from %s", self.stats.keyless_count, partition_log.name
            )
        self.replacements.clear()
        return True

    def _may_replace(self, sources: list[Source]) -> bool:
        partition_log = self.partition_log
        if partition_log.is_closed or self.is_cancelled or partition_log.generation != self.generation:
            return False
        current = set(partition_log.segments)
        return all(source.segment in current for source in sources)

    def _source_bytes(self) -> int:
        return sum(source.facts.size for sources, _ in self.replacements for source in sources)

    def discard(self) -> None:
        """Remove the files that `run` has written and that are not part of the log, as far as possible."""
        current = set(self.partition_log.segments)
        for _, cleaned in self.replacements:
            if cleaned not in current:
                cleaned.abandon()
                self._remove(cleaned)
        self.replacements.clear()

    def _remove(self, cleaned: Segment) -> None:
        for mark in (names.CLEANED, names.SWAP):
            cleaned.mark = mark
            for suffix in names.SEGMENT_SUFFIXES:
                try:
                    self.partition_log.disk.remove(cleaned.path(suffix))
                except OSError as error:
                    log.warning("cannot remove %s: %s", cleaned.path(suffix), error)

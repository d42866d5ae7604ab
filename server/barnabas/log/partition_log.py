"""The log of one partition: what may be appended, what can be read, and how far.

The rule: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`, and the log end is
never past what was written whole. All changes are made by one thread; `segments` is replaced, never changed,
so that others may look.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass
from zlib import crc32

from barnabas.errors import RequestError, StorageError
from barnabas.log import retention
from barnabas.log.config import LogConfig
from barnabas.log.disk import Disk
from barnabas.log.errors import Code
from barnabas.log.flushing import FlushTask
from barnabas.log.format import CorruptFileError, names, properties
from barnabas.log.format.offset_index import OFFSET_DELTA_MAX
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.loading import (
    LoadedLog,
    aborted_entry,
    load_snapshot,
    rebuild_txn_index,
    replay_producers,
    save_epochs,
    save_snapshot,
)
from barnabas.log.openfiles import OpenFiles
from barnabas.log.producers import is_end_marker
from barnabas.log.segment import Segment
from barnabas.log.timestamps import TimestampOffset, find_max_timestamp, find_timestamp
from barnabas.log.trash import Trash
from barnabas.records.batch import (
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    BatchHeader,
    check_crc,
    iter_batches,
    read_records,
    whole_size,
)
from barnabas.records.control import EndMarker, parse_end_marker
from barnabas.records.errors import CorruptRecordsError
from barnabas.records.validate import Origin, validate_produce
from barnabas.wire.regions import FileRegion

log = logging.getLogger(__name__)

RECENT_BATCHES_MAX = 16  # per log: consumers that keep up ask for one of these
PRODUCE_VERSION_LATEST = 13


@dataclass(slots=True)
class AppendResult:
    """What became of appended records: offsets as assigned, or as they were the first time for a duplicate.

    `log_append_time_ms` is -1 unless the broker set the timestamps. `size` counts bytes written, 0 for a
    duplicate.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int = 0
    size: int = 0
    duplicate: bool = False


@dataclass(slots=True)
class ReadResult:
    """What was read: whole batches, perhaps with a part of one at the end.

    `position` is where it begins in the segment with that base offset. All records in it are before
    `next_offset`, which may be a little too large.
    """

    records: FileRegion | bytes
    next_offset: int
    segment_base_offset: int = -1
    position: int = -1

    def to_bytes(self) -> bytes:
        """Return the bytes themselves. Raises OSError."""
        records = self.records
        if isinstance(records, FileRegion):
            return records.owner.read(records.size, records.position)  # type: ignore[attr-defined, no-any-return]
        return records


class PartitionLog:
    """The log of one partition, opened by LogManager.

    `config` may be replaced at any time. Methods raise StorageError when the disk fails; what was
    acknowledged before stays as it is, and it is for the manager to take the log dir offline.
    """

    __slots__ = (
        "_bases",
        "_generation",
        "_known_end",
        "_recent",
        "clean_offset",
        "config",
        "dir",
        "disk",
        "epochs",
        "high_watermark",
        "is_closed",
        "is_dir_synced",
        "last_flush_ms",
        "last_stable_offset",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "name",
        "partition",
        "pool",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
        "trash",
        "unflushed_messages",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        log_dir: str,
        config: LogConfig,
        disk: Disk,
        pool: OpenFiles,
        trash: Trash,
        loaded: LoadedLog,
        topic_id: bytes | None,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = names.dir_name(topic, partition)
        self.log_dir = log_dir
        self.dir = f"{log_dir}/{self.name}"
        self.config = config
        self.disk = disk
        self.pool = pool
        self.trash = trash
        self.topic_id = topic_id
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = set(loaded.snapshots)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = min(max(high_watermark, loaded.log_start_offset), loaded.log_end_offset)
        self.last_stable_offset = self.high_watermark
        self.clean_offset: int | None = None  # up to where the log has been compacted, None: never
        self.last_flush_ms = now_ms
        self.is_closed = False  # for good: closed, deleted, or its disk has failed
        self.is_dir_synced = False  # whether the directory's own name is known to last
        self.unflushed_messages = 0
        self.segments: tuple[Segment, ...] = ()
        self._bases: list[int] = []
        self._generation = 0  # counts truncations
        self._recent: dict[
            int, int
        ] = {}  # base offset -> position, of the last batches of the active segment
        self._known_end: tuple[int, Segment, int] | None = (
            None  # an upper offset that was looked up, and where it is
        )
        self._set_segments(loaded.segments)
        self.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()

    def __repr__(self) -> str:
        return (
            f"<log {self.dir}: start {self.log_start_offset}, last stable {self.last_stable_offset}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}>"
        )

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return sum(segment.size for segment in self.segments)

    def _set_segments(self, segments: list[Segment] | tuple[Segment, ...]) -> None:
        self.segments = tuple(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._known_end = None

    def _failed(self, error: OSError) -> StorageError:
        log.error("%s failed: %s", self.dir, error)
        return StorageError(self.log_dir, error)

    # --- appending ------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytes | bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        api_version: int = PRODUCE_VERSION_LATEST,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Validate the records of one partition in a produce request, give them offsets, and append them.

        `records` is patched in place if it is writable. Raises RequestError as `validate_produce` and
        `ProducerState.check` do, and StorageError; then nothing was appended.
        """
        base_offset = self.log_end_offset
        valid = validate_produce(
            records,
            api_version=api_version,
            config=self.config.rules,
            now_ms=now_ms,
            first_offset=base_offset,
            leader_epoch=leader_epoch,
            origin=origin,
        )
        if not valid.batches:
            return AppendResult(-1, -1, -1, self.log_start_offset)
        header = valid.batches[0]
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            if is_end_marker(header):
                marker = _read_marker(valid.records, header)
                if marker is not None:
                    self.producers.check_marker(header, marker)
            else:
                repeated = self.producers.check(header, from_client=origin is Origin.CLIENT)
                if repeated is not None:
                    return AppendResult(
                        repeated.base_offset, repeated.last_offset, repeated.timestamp, self.log_start_offset,
                        duplicate=True,
                    )  # fmt: skip
        size = len(valid.records)
        try:
            if leader_epoch != self.epochs.latest:
                self._assign_epoch(leader_epoch, base_offset)
            segment = self._segment_for(size, valid.max_timestamp, base_offset, valid.last_offset, now_ms)
            position = segment.size
            segment.append(
                valid.records,
                valid.last_offset,
                header.max_timestamp,
                valid.max_timestamp,
                valid.offset_of_max_timestamp,
            )
            self._appended(base_offset, position, valid.last_offset)
            if header.producer_id >= 0:
                self._update_producers(header, marker)
        except OSError as error:
            raise self._failed(error) from error
        self.unflushed_messages += valid.record_count
        return AppendResult(
            base_offset, valid.last_offset, valid.log_append_time_ms, self.log_start_offset,
            valid.record_count, size
        )  # fmt: skip

    def append_as_follower(self, records: bytes | bytearray | memoryview, *, now_ms: int) -> AppendResult:
        """Append what the leader sent, with offsets and epochs as they come; a partial batch at the end is
        left out.

        Raises CorruptRecordsError for a bad checksum or offsets that do not rise,
        RequestError(OFFSET_OUT_OF_RANGE) if they begin before the log end, StorageError. Nothing was appended
        then.
        """
        size = whole_size(records)
        entries = list(iter_batches(memoryview(records)[:size]))
        next_offset = self.log_end_offset
        for position, header in entries:
            if not check_crc(records, position, header):
                raise CorruptRecordsError(f"the batch at offset {header.base_offset} has a wrong checksum")
            if header.base_offset < next_offset:
                raise RequestError(
                    Code.OFFSET_OUT_OF_RANGE,
                    f"offset {header.base_offset} came to {self.name}, where {next_offset} is next",
                )
            next_offset = header.next_offset
        if not entries:
            return AppendResult(-1, -1, -1, self.log_start_offset)
        first = entries[0][1]
        fullest = max((header for _, header in entries), key=lambda header: header.max_timestamp)
        try:
            for _, header in entries:
                if header.magic == 2 and header.leader_epoch != self.epochs.latest:
                    self._assign_epoch(header.leader_epoch, header.base_offset)
            last_offset = entries[-1][1].last_offset
            segment = self._segment_for(size, fullest.max_timestamp, first.base_offset, last_offset, now_ms)
            start = segment.size
            with memoryview(records) as view:
                segment.append(
                    view[:size], last_offset, first.max_timestamp, fullest.max_timestamp, fullest.last_offset
                )
            for position, header in entries:
                self._appended(header.base_offset, start + position, header.last_offset)
                if header.producer_id >= 0:
                    marker = None
                    if is_end_marker(header):
                        marker = _read_marker(memoryview(records)[position:], header)
                    self._update_producers(header, marker)
        except OSError as error:
            raise self._failed(error) from error
        count = sum(max(header.records_count, 0) for _, header in entries)
        self.unflushed_messages += count
        return AppendResult(first.base_offset, last_offset, -1, self.log_start_offset, count, size)

    def _appended(self, base_offset: int, position: int, last_offset: int) -> None:
        recent = self._recent
        if len(recent) >= RECENT_BATCHES_MAX:
            del recent[next(iter(recent))]
        recent[base_offset] = position
        self.log_end_offset = last_offset + 1

    def _update_producers(self, header: BatchHeader, marker: EndMarker | None) -> None:
        producers = self.producers
        if marker is not None:
            completed = producers.append_marker(header, marker)
            if completed is not None and completed.is_aborted:
                self._load_aborted(self.active)
                self.active.append_aborted(aborted_entry(completed, producers))
        elif not is_end_marker(header):
            producers.append(header)
        if marker is not None or header.is_transactional:
            self._update_last_stable()

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs.assign(epoch, start_offset):
            save_epochs(self.disk, self.dir, self.epochs, sync=False)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins, before anything is written in it (a new leader does so)."""
        try:
            self._assign_epoch(epoch, start_offset)
        except OSError as error:
            raise self._failed(error) from error

    # --- rolling --------------------------------------------------------------------------------------------

    def _segment_for(
        self, size: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """Return the segment that takes the next `size` bytes: the active one, or a new one."""
        segment = self.segments[-1]
        config = self.config
        if not segment.size:
            if last_offset - segment.base_offset > OFFSET_DELTA_MAX:
                return self._roll(first_offset)
            segment.created_ms = now_ms
            return segment
        if (
            segment.size > config.segment_bytes - size
            or last_offset - segment.base_offset > OFFSET_DELTA_MAX
            or self._waited_ms(segment, max_timestamp, now_ms) > self._roll_after_ms(segment)
            or not segment.has_index_room(config.segment_index_bytes)
        ):
            return self._roll(first_offset)
        return segment

    def _waited_ms(self, segment: Segment, timestamp: int, now_ms: int) -> int:
        first_timestamp = segment.first_timestamp
        if first_timestamp is None:
            first_timestamp = segment.load_first_timestamp()
        if first_timestamp >= 0:
            return timestamp - first_timestamp
        if segment.created_ms < 0:
            segment.created_ms = now_ms
        return now_ms - segment.created_ms

    def _roll_after_ms(self, segment: Segment) -> int:
        config = self.config
        roll_ms = config.roll_ms
        if not config.segment_jitter_ms:
            return roll_ms
        # Not random, so that it needs no state: what matters is that partitions differ.
        seed = crc32(f"{self.name}/{segment.base_offset}".encode())
        return roll_ms - seed % min(config.segment_jitter_ms, roll_ms)

    def roll(self) -> Segment:
        """Begin a new segment at the log end, unless the active one is empty. Raises StorageError."""
        try:
            return self._roll(self.log_end_offset) if self.active.size else self.active
        except OSError as error:
            raise self._failed(error) from error

    def _roll(self, base_offset: int) -> Segment:
        old = self.active
        if old.base_offset == base_offset:
            return old
        old.seal()
        self.producers.end_offset = self.log_end_offset
        new = Segment.create(
            self.disk, self.pool, self.dir, base_offset, index_interval_bytes=self.config.index_interval_bytes
        )
        if base_offset == self.log_end_offset:
            self.take_snapshot()
        kept = self.segments if old.size else self.segments[:-1]
        self._set_segments((*kept, new))
        if not old.size:  # an empty one whose base offset is out of reach of what comes
            self._discard_segments([old], due_ms=0)
        self._recent.clear()
        return new

    def take_snapshot(self) -> None:
        """Write a snapshot of the producers at the log end, unless there is one. Raises OSError."""
        producers = self.producers
        producers.end_offset = self.log_end_offset
        if producers.end_offset > max(self.snapshots, default=self.log_start_offset):
            save_snapshot(self.disk, self.dir, producers)
            self.snapshots.add(producers.end_offset)

    # --- reading --------------------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, upper_offset: int, min_one_batch: bool = True
    ) -> ReadResult:
        """Return the batches from the one that holds `offset` on, of one segment, not decoded.

        None of them begins at or after `upper_offset`, which is the high watermark, the last stable offset or
        the log end, as the reader may see. At most `max_bytes`, so the last batch may be cut off; but the
        first one is whole with `min_one_batch`. The first may begin before `offset`. Raises
        RequestError(OFFSET_OUT_OF_RANGE), StorageError, and CorruptRecordsError if the log is damaged there.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise RequestError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.name} has offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        if offset >= upper_offset or offset == self.log_end_offset:
            return ReadResult(b"", offset)
        try:
            position = self._recent.get(offset)
            segment = self.segments[-1]
            if position is None:
                found = self._find(offset)
                if found is None:
                    return ReadResult(b"", offset)
                segment, position = found
            end, next_offset = self._end_within(segment, upper_offset)
            size = end - position
            if size > max_bytes:
                size = self._limit(segment, position, size, max_bytes, min_one_batch=min_one_batch)
                bound = segment.offset_index.upper_bound(position + size)
                if bound is not None and bound < next_offset:
                    next_offset = bound + 1
            if size <= 0:
                return ReadResult(b"", offset)
            records = segment.file.region(position, size)
        except OSError as error:
            raise self._failed(error) from error
        return ReadResult(records, next_offset, segment.base_offset, position)

    def _limit(
        self, segment: Segment, position: int, size: int, max_bytes: int, *, min_one_batch: bool
    ) -> int:
        if not min_one_batch:
            return max_bytes
        length = segment.file.read(4, position + LENGTH_OFFSET)
        return min(size, max(max_bytes, LOG_OVERHEAD + int.from_bytes(length, "big")))

    def _find(self, offset: int) -> tuple[Segment, int] | None:
        """Find the batch that holds `offset`, or the next one: its segment and position."""
        n = max(0, bisect_right(self._bases, offset) - 1)
        for segment in self.segments[n:]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def _end_within(self, segment: Segment, upper_offset: int) -> tuple[int, int]:
        """Return where a reader must stop in `segment`, and the offset that it will not reach."""
        if upper_offset >= self.log_end_offset:
            if segment is self.segments[-1]:
                return segment.size, self.log_end_offset
        elif segment is self.segments[-1] or upper_offset < self._base_after(segment):
            known = self._known_end
            if known is not None and known[0] == upper_offset and known[1] is segment:
                return known[2], upper_offset
            position = self._recent.get(upper_offset) if segment is self.segments[-1] else None
            if position is None:
                found = segment.find(upper_offset)
                position = segment.size if found is None else found[0]
            self._known_end = (upper_offset, segment, position)
            return position, upper_offset
        return segment.size, self._base_after(segment)

    def _base_after(self, segment: Segment) -> int:
        n = bisect_right(self._bases, segment.base_offset)
        return self._bases[n] if n < len(self._bases) else self.log_end_offset

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records from `start_offset` up to before `upper_offset`.

        Raises StorageError.
        """
        aborted: list[AbortedTransaction] = []
        n = max(0, bisect_right(self._bases, start_offset) - 1)
        try:
            for segment in self.segments[n:]:
                if not segment.has_txn_index:
                    continue
                for transaction in self._load_aborted(segment):
                    if transaction.last_offset >= start_offset and transaction.first_offset < upper_offset:
                        aborted.append(transaction)
                    if transaction.last_stable_offset >= upper_offset:
                        return aborted
        except OSError as error:
            raise self._failed(error) from error
        return aborted

    def _load_aborted(self, segment: Segment) -> list[AbortedTransaction]:
        try:
            return segment.aborted
        except (CorruptFileError, FileNotFoundError):
            rebuild_txn_index(self.disk, self.dir, self.segments, segment, self.snapshots)
            return segment.aborted

    # --- timestamps -----------------------------------------------------------------------------------------

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Find the first record whose timestamp is at least `timestamp_ms`.

        Raises StorageError, RecordsError.
        """
        try:
            return find_timestamp(self.segments, timestamp_ms, self.log_start_offset)
        except OSError as error:
            raise self._failed(error) from error

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Find the first record that has the largest timestamp of all (KIP-734).

        Raises StorageError, RecordsError.
        """
        try:
            return find_max_timestamp(self.segments)
        except OSError as error:
            raise self._failed(error) from error

    # --- epochs ---------------------------------------------------------------------------------------------

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which `offset` was written, or -1."""
        return self.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to `epoch`, (-1, -1) if it is unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- how far readers may see ----------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to `offset`, not back nor past the log end; says whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        self._update_last_stable()
        return True

    def _update_last_stable(self) -> None:
        first_unstable = self.producers.first_unstable_offset
        last_stable = self.high_watermark
        if first_unstable is not None and first_unstable < last_stable:
            last_stable = max(first_unstable, self.log_start_offset)
        self.last_stable_offset = last_stable

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset`, -1 for the high watermark; returns the log start.

        Whole segments before it go with the next `apply_retention`. Raises RequestError(OFFSET_OUT_OF_RANGE)
        beyond the high watermark, StorageError.
        """
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise RequestError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.name} cannot begin at {offset}, its high watermark is {self.high_watermark}",
            )
        try:
            self._move_start(offset)
        except OSError as error:
            raise self._failed(error) from error
        return self.log_start_offset

    def _move_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        if self.high_watermark < offset:
            self.high_watermark = offset
        if self.epochs.truncate_from_start(offset):
            save_epochs(self.disk, self.dir, self.epochs, sync=False)
        self._update_last_stable()

    # --- retention ------------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Drop the oldest segments that the settings no longer want; returns how many. Raises StorageError.

        Their files are renamed now and removed by the manager's `remove_due`.
        """
        try:
            plan = retention.plan_retention(
                self._ages(),
                config=self.config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
            )
            if not plan.segment_count:
                return 0
            if plan.segment_count == len(self.segments):
                self._roll(self.log_end_offset)
            dropped = self.segments[: plan.segment_count]
            log.info("dropping %d segments of %s: %s", plan.segment_count, self.name, plan.reason)
            self._move_start(self.segments[plan.segment_count].base_offset)
            self._set_segments(self.segments[plan.segment_count :])
            self._discard_segments(list(dropped), due_ms=now_ms + self.config.file_delete_delay_ms)
        except OSError as error:
            raise self._failed(error) from error
        return plan.segment_count

    def _ages(self) -> list[retention.SegmentAge]:
        ends = [*self._bases[1:], self.log_end_offset]
        wants_age = self.config.is_deleted and self.config.retention_ms >= 0
        return [
            retention.SegmentAge(
                segment.base_offset, end, segment.size, segment.largest_timestamp if wants_age else 0
            )
            for segment, end in zip(self.segments, ends, strict=True)
        ]

    def replace_segments(self, old: list[Segment], new: Segment, *, now_ms: int) -> None:
        """Put a compacted segment, whose files are marked `.cleaned`, in the place of its neighbours `old`.

        Raises OSError; a crash or an error in between leaves what recovery finishes.
        """
        first = self.segments.index(old[0])
        assert self.segments[first : first + len(old)] == tuple(old)
        assert new.base_offset == old[0].base_offset
        new.mark_files(names.SWAP)
        self._set_segments((*self.segments[:first], new, *self.segments[first + len(old) :]))
        self._discard_segments(old, due_ms=now_ms + self.config.file_delete_delay_ms)
        new.mark_files("")

    def _discard_segments(self, segments: list[Segment], *, due_ms: int) -> None:
        """Rename the files of segments that the log no longer has, and have them removed at `due_ms`."""
        for segment in segments:
            segment.abandon()
            segment.mark_files(names.DELETED)
            suffixes = list(names.SEGMENT_SUFFIXES)
            paths = [segment.path(suffix) for suffix in suffixes]
            if segment.base_offset in self.snapshots and segment.base_offset not in self._bases:
                self.snapshots.discard(segment.base_offset)
                path = f"{self.dir}/{names.file_name(segment.base_offset, names.SNAPSHOT)}"
                self.disk.rename(path, path + names.DELETED)
                paths.append(path + names.DELETED)
            self.trash.add(due_ms, self.log_dir, paths)

    # --- truncating -----------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Drop `offset` and all after it (a follower does, whose leader has another history).

        Returns whether anything was dropped. Raises StorageError.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            return False
        try:
            if offset <= self.segments[0].base_offset and offset < self.log_start_offset:
                self._start_anew(offset)
            else:
                self._truncate(offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`. Raises StorageError."""
        try:
            self._start_anew(offset)
        except OSError as error:
            raise self._failed(error) from error

    def _truncate(self, offset: int, now_ms: int) -> None:
        n = max(1, bisect_right(self._bases, offset - 1)) if offset else 1
        dropped = self.segments[n:]
        kept = self.segments[:n]
        self._load_aborted(kept[-1])
        kept[-1].truncate(offset)
        self._set_segments(kept)
        self._truncated(offset)
        self._discard_segments(list(dropped), due_ms=now_ms + self.config.file_delete_delay_ms)
        load_snapshot(
            self.disk, self.dir, self.producers, self.snapshots, self.log_start_offset, offset, now_ms
        )
        replay_producers(self.segments, self.producers, offset)
        self.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()
        if self.epochs.truncate_from_end(offset):
            save_epochs(self.disk, self.dir, self.epochs, sync=True)

    def _start_anew(self, offset: int) -> None:
        dropped = list(self.segments)
        for snapshot_offset in sorted(self.snapshots):
            self.disk.remove(f"{self.dir}/{names.file_name(snapshot_offset, names.SNAPSHOT)}")
        self.snapshots.clear()
        for segment in dropped:
            segment.abandon()
            for suffix in names.SEGMENT_SUFFIXES:
                self.disk.remove(segment.path(suffix))
        new = Segment.create(
            self.disk, self.pool, self.dir, offset, index_interval_bytes=self.config.index_interval_bytes
        )
        self._set_segments((new,))
        self.log_start_offset = offset
        self._truncated(offset)
        self.high_watermark = offset
        self.producers.clear(offset)
        self._update_last_stable()
        if self.epochs.clear():
            save_epochs(self.disk, self.dir, self.epochs, sync=True)

    def _truncated(self, offset: int) -> None:
        self._recent.clear()
        self._generation += 1
        self.unflushed_messages = 0
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.clean_offset is not None:
            self.clean_offset = min(self.clean_offset, offset)

    # --- lasting --------------------------------------------------------------------------------------------

    @property
    def wants_flush(self) -> bool:
        """Whether flush.messages asks for a flush now, before anybody is told that the records are safe."""
        return self.unflushed_messages >= self.config.flush_messages

    def begin_flush(self) -> FlushTask | None:
        """Return what makes all that was appended so far survive a power cut; None if it does already.

        Indexes of the active segment are left out: recovery would make them anew. Raises StorageError.
        """
        end_offset = self.log_end_offset
        if end_offset <= self.recovery_point or self.is_closed:
            return None
        # The segment before the recovery point was perhaps active then, so that its indexes are not safe.
        first = max(0, bisect_right(self._bases, self.recovery_point - 1) - 1)
        directories = [self.dir] if self.is_dir_synced else [self.dir, self.log_dir]
        files, paths = [], []
        try:
            for segment in self.segments[first:-1]:
                segment.write_indexes()
                files.append(segment.file)
                paths += segment.index_paths()
            files.append(self.active.file)
            if self.active.has_txn_index:
                paths.append(self.active.path(names.TXN_INDEX))
        except OSError as error:
            raise self._failed(error) from error
        return FlushTask(
            self, end_offset, self._generation, self.unflushed_messages, self.disk, files, paths, directories
        )

    def flushed(self, task: FlushTask, now_ms: int) -> None:
        """Take note of a flush that was run."""
        self.last_flush_ms = now_ms
        self.is_dir_synced = True
        if task.generation == self._generation:
            self.recovery_point = max(self.recovery_point, task.end_offset)
            self.unflushed_messages -= task.message_count

    def flush(self, now_ms: int) -> None:
        """Return when everything appended so far survives a power cut. Raises StorageError."""
        task = self.begin_flush()
        if task is not None:
            task.run()
            task.finish(now_ms)

    def close(self) -> None:
        """Flush, write what belongs to a clean end, and let all files go. Raises StorageError."""
        try:
            self.active.seal()
            self.take_snapshot()
            task = self.begin_flush()
            if task is not None:
                task.paths.extend(self.active.index_paths())
                task.run()
                task.finish(self.last_flush_ms)
            for segment in self.segments:
                segment.close()
            self.is_closed = True
        except OSError as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """Let all files go as they are: the partition is deleted, or its disk has failed."""
        self.is_closed = True
        for segment in self.segments:
            segment.abandon()

    def save_topic_id(self, topic_id: bytes) -> None:
        """Write `partition.metadata`. Raises StorageError."""
        path = f"{self.dir}/{names.PARTITION_METADATA}"
        try:
            self.disk.replace(path, properties.encode_partition_metadata(topic_id), sync=False)
        except OSError as error:
            raise self._failed(error) from error
        self.topic_id = topic_id


def _read_marker(records: bytes | bytearray | memoryview, header: BatchHeader) -> EndMarker | None:
    found = read_records(memoryview(records)[: header.size])
    return parse_end_marker(found[0]) if found else None

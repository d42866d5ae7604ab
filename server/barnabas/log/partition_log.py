"""The log of one partition: appends, retention and truncation.

Its base classes read it (`readable`) and sync it (`durable`). The rule: `log_start_offset <= last_stable_offset <=
high_watermark <= log_end_offset`, and the log end is never beyond completely written batches. All changes are made by
one thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.errors import RequestError
from barnabas.log import retention
from barnabas.log.background_write import BackgroundWrite
from barnabas.log.durable import DurableLog
from barnabas.log.errors import Code, failure_of, guarded, in_doubt
from barnabas.log.flushing import FlushTask
from barnabas.log.incoming import check_replicated, read_end_marker
from barnabas.log.parts import LogParts
from barnabas.log.producers import ProducedBatch, is_end_marker
from barnabas.log.replay import aborted_entry, replay_producers
from barnabas.log.results import AppendResult
from barnabas.log.segment import Segment
from barnabas.records.at_once import validate_at_once
from barnabas.records.batch import BatchHeader
from barnabas.records.control import EndMarker
from barnabas.records.steps import Steps, run
from barnabas.records.validate import Origin, validate_own, validate_steps
from barnabas.records.validated import ValidatedBatches

if TYPE_CHECKING:
    from barnabas.log.tiered_start import TieredStart

log = logging.getLogger(__name__)

PRODUCE_VERSION_LATEST: Final = 13


class PartitionLog(DurableLog):
    """The log of one partition, opened by LogManager.

    `config` may be replaced at any time. Methods raise StorageError when the disk fails; acknowledged records stay
    readable, and the manager takes the log dir offline.
    """

    __slots__ = (
        "clean_offset",
        "producers",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, parts: LogParts) -> None:
        super().__init__(topic, partition, parts)
        self.producers = parts.loaded.producers
        self.clean_offset: int | None = None  # offset up to which the log is compacted, None: never
        self.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()

    def take_over(self, old: PartitionLog) -> None:
        """Replace `old`, of which this log is a copy with the same end."""
        assert (self.log_start_offset, self.log_end_offset) == (old.log_start_offset, old.log_end_offset)
        self.config = old.config
        self.topic_id = old.topic_id
        self.producers = old.producers
        self.epochs = old.epochs
        self.highest_remote_offset = old.highest_remote_offset
        self.last_flush_ms = old.last_flush_ms
        self.high_watermark = old.high_watermark
        self.last_stable_offset = old.last_stable_offset

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
        """Validate the records of one partition in a produce request, assign offsets, and append them.

        Does not yield. Raises the errors of `validation` and `append_valid`; then nothing was appended.
        """
        if origin is Origin.COORDINATOR and isinstance(records, bytearray):
            valid = validate_own(records, config=self.config.rules, now_ms=now_ms)
        else:
            valid = run(self.validation(records, now_ms=now_ms, api_version=api_version, origin=origin))
        return self.append_valid(valid, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)

    def validation(
        self,
        records: bytes | bytearray | memoryview,
        *,
        now_ms: int,
        api_version: int = PRODUCE_VERSION_LATEST,
        origin: Origin = Origin.CLIENT,
    ) -> Steps[ValidatedBatches]:
        """Return the steps that validate the records of one partition in a produce request, for `append_valid`.

        `records` is patched in place if it is writable. They raise RequestError as `validate_steps` does. They read only
        the settings of the log, which may change meanwhile.
        """
        return validate_steps(
            records, api_version=api_version, config=self.config.rules, now_ms=now_ms, origin=origin
        )

    def validate_at_once(
        self, records: memoryview, *, now_ms: int, api_version: int
    ) -> ValidatedBatches | None:
        """Validate a producer's records as `validation` does; None if that takes several steps."""
        return validate_at_once(records, api_version=api_version, config=self.config.rules, now_ms=now_ms)

    @guarded
    def begin_background_write(
        self, valid: ValidatedBatches, *, leader_epoch: int, now_ms: int
    ) -> BackgroundWrite | None:
        """Return a write of a producer's validated records to the log end, for a thread to run before `append_valid`.

        `append_valid` uses the written bytes, or writes them itself if the log has changed; call `end_background_write`
        afterwards in any case. None if the records would not go to the active segment. Raises RequestError like
        `append_valid`, and StorageError.
        """
        records = valid.records
        if not valid.batches or self.is_closed:
            return None
        valid.place(self.log_end_offset, leader_epoch)
        header = valid.batches[0]
        if header.producer_id >= 0 and self._repeated(header, Origin.CLIENT) is not None:
            return None
        store, active = self.store, self.store.active
        if active.is_preallocated or store.must_roll(
            len(records), valid.max_timestamp, valid.last_offset, config=self.config, now_ms=now_ms
        ):
            return None
        return active.begin_write(records)

    @guarded
    def end_background_write(self, write: BackgroundWrite) -> None:
        """Undo the written bytes of records that were not appended. Raises StorageError."""
        if not self.is_closed:
            self.store.active.end_write(write)

    def _repeated(self, header: BatchHeader, origin: Origin) -> ProducedBatch | None:
        """Return the earlier batch that a producer repeats, None if it is new.

        Raises RequestError like `ProducerState.check`.
        """
        return self.producers.check(
            header, from_client=origin is Origin.CLIENT, high_watermark=self.high_watermark
        )

    def append_valid(
        self,
        valid: ValidatedBatches,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Assign offsets to validated records, and append them.

        Raises RequestError as `ProducerState.check` does, and StorageError; then nothing was appended.
        """
        if not valid.batches:
            return AppendResult(-1, -1, -1, self.log_start_offset)
        valid.place(self.log_end_offset, leader_epoch)
        header = valid.batches[0]
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            if is_end_marker(header):
                marker = read_end_marker(valid.records, 0, header)
                if marker is not None:
                    self.producers.check_marker(header, marker)
            else:
                repeated = self._repeated(header, origin)
                if repeated is not None:
                    return AppendResult(
                        repeated.base_offset, repeated.last_offset, repeated.timestamp, self.log_start_offset,
                        duplicate=True,
                    )  # fmt: skip
        try:
            return self._append_valid(valid, header, marker, leader_epoch, now_ms)
        except OSError as error:
            raise failure_of("append_as_leader", self, error) from error

    def _append_valid(
        self,
        valid: ValidatedBatches,
        header: BatchHeader,
        marker: EndMarker | None,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Write one batch with the offset of the log end."""
        base_offset, last_offset = valid.base_offset, valid.last_offset
        records, max_timestamp = valid.records, valid.max_timestamp
        size = len(records)
        if leader_epoch != self.epochs.latest:
            self._assign_epoch(leader_epoch, base_offset)
        segment = self._segment_for(size, max_timestamp, base_offset, last_offset, now_ms)
        segment.append(
            records, last_offset, header.max_timestamp, max_timestamp, valid.offset_of_max_timestamp
        )
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0:
            self._update_producers(header, marker)
        count = valid.record_count
        self.appended_messages += count
        return AppendResult(
            base_offset, last_offset, valid.log_append_time_ms, self.log_start_offset, count, size
        )

    @guarded
    def append_as_follower(self, records: bytes | bytearray | memoryview, *, now_ms: int) -> AppendResult:
        """Append a leader's batches with their offsets and epochs; a partial batch at the end is ignored.

        Raises CorruptRecordsError for a bad checksum or offsets that do not rise, RequestError(OFFSET_OUT_OF_RANGE) if
        they begin before the log end, StorageError. Then nothing was appended.
        """
        entries = check_replicated(records, self.log_end_offset, self.name)
        if not entries:
            return AppendResult(-1, -1, -1, self.log_start_offset)
        first = entries[0][1]
        size = entries[-1][0] + entries[-1][1].size
        latest = max((header for _, header in entries), key=lambda header: header.max_timestamp)
        for _, header in entries:
            if header.magic == 2 and header.leader_epoch != self.epochs.latest:
                self._assign_epoch(header.leader_epoch, header.base_offset)
        last_offset = entries[-1][1].last_offset
        segment = self._segment_for(size, latest.max_timestamp, first.base_offset, last_offset, now_ms)
        with memoryview(records) as view:
            segment.append(
                view[:size], last_offset, first.max_timestamp, latest.max_timestamp, latest.last_offset
            )
        for position, header in entries:
            self.log_end_offset = header.next_offset
            if header.producer_id >= 0:
                marker = read_end_marker(records, position, header) if is_end_marker(header) else None
                self._update_producers(header, marker)
        count = sum(max(header.records_count, 0) for _, header in entries)
        self.appended_messages += count
        return AppendResult(first.base_offset, last_offset, -1, self.log_start_offset, count, size)

    def _update_producers(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """Update the producers with a batch at the log end; the last stable offset moves later, with the high watermark."""
        producers = self.producers
        if marker is not None:
            completed = producers.append_marker(header, marker)
            if completed is not None and completed.is_aborted:
                try:
                    self._load_aborted(self.active)
                    self.active.append_aborted(aborted_entry(completed, producers))
                except FileNotFoundError:  # the directory is gone, and the log goes offline
                    raise
                except OSError as error:  # the marker is written, but readers would not learn of the abort
                    raise in_doubt(error) from error
        elif not is_end_marker(header):
            producers.append(header)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs.assign(epoch, start_offset):
            try:
                self._save_epochs(sync=False)
            except OSError:
                self.epochs.truncate_from_end(start_offset)  # so that the next append tries again
                raise

    # --- rolling --------------------------------------------------------------------------------------------

    def _segment_for(
        self, size: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """Return the segment for the next `size` bytes: the active one, or a new one."""
        store = self.store
        if store.must_roll(size, max_timestamp, last_offset, config=self.config, now_ms=now_ms):
            return self._roll(first_offset)
        return store.active

    @guarded
    def roll(self) -> Segment:
        """Begin a new segment at the log end, unless the active one is empty. Raises StorageError."""
        return self._roll(self.log_end_offset) if self.active.size else self.active

    def _roll(self, base_offset: int) -> Segment:
        if self.active.base_offset == base_offset:
            return self.active
        new = self.store.roll(base_offset, config=self.config)
        if base_offset == self.log_end_offset:
            self.take_snapshot()
        return new

    def take_snapshot(self) -> None:
        """Write a snapshot of the producers at the log end, unless there is one. Raises OSError."""
        producers = self.producers
        producers.end_offset = self.log_end_offset
        if producers.end_offset > max(self.store.snapshots.offsets, default=self.log_start_offset):
            self.store.snapshots.save(producers)

    # --- visibility to readers ------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most the log end; returns whether it moved."""
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

    @guarded
    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset`, -1 for the high watermark; returns the log start.

        The next `apply_retention` deletes whole segments before it. Raises RequestError(OFFSET_OUT_OF_RANGE) beyond the
        high watermark, StorageError.
        """
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise RequestError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.name} cannot begin at {offset}, its high watermark is {self.high_watermark}",
            )
        self._move_start(offset)
        return self.log_start_offset

    @guarded
    def raise_start(self, offset: int) -> None:
        """Raise the log start to `offset`: records before it are deleted in tiered storage.

        Raises StorageError.
        """
        self._move_start(min(offset, self.high_watermark))

    def _move_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        if self.high_watermark < offset:
            self.high_watermark = offset
        if self.epochs.truncate_from_start(offset):
            self._save_epochs(sync=False)
        self._update_last_stable()

    # --- retention ------------------------------------------------------------------------------------------

    @guarded
    def apply_retention(self, now_ms: int, count_max: int | None = None) -> int:
        """Delete the oldest segments by the retention settings; returns how many. Raises StorageError.

        Of a tiered log only the local log start moves; its log start moves when segments are deleted remotely. Their
        files are renamed now and removed by the manager's `remove_due`. At most `count_max` are deleted; then more may
        be due.
        """
        if self.is_closed:
            return 0
        is_copied = self.is_tiered and not self.config.remote_log_copy_disable
        plan = retention.plan_retention(
            self.store.ages(self.log_end_offset),
            config=self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            remote_end_offset=self.highest_remote_offset + 1 if is_copied else None,
        )
        count = plan.segment_count if count_max is None else min(plan.segment_count, count_max)
        if not count:
            return 0
        if count == len(self.segments):
            self._roll(self.log_end_offset)
        log.info("dropping %d segments of %s: %s", count, self.name, plan.reason)
        if not is_copied:
            self._move_start(self.segments[count].base_offset)
        self.store.drop_oldest(count, due_ms=now_ms + self.config.file_delete_delay_ms)
        return count

    def replace_segments(self, old: list[Segment], new: Segment, *, now_ms: int) -> Steps[None]:
        """Replace the neighbouring segments `old` by a compacted one, in steps. Raises OSError."""
        return self.store.replace(old, new, due_ms=now_ms + self.config.file_delete_delay_ms)

    # --- truncating -----------------------------------------------------------------------------------------

    @guarded
    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Truncate to `offset`, as a follower does if its leader has another history. Returns whether anything was removed.

        Raises StorageError.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            return False
        if offset < self.segments[0].base_offset or (
            offset == self.segments[0].base_offset and offset < self.log_start_offset
        ):
            self._restart_at(offset)
        else:
            self._truncate(offset, now_ms)
        return True

    @guarded
    def truncate_fully_and_start_at(self, offset: int, *, keeps: bool = False) -> None:
        """Remove all records, or keep them aside; the log is then empty and begins at `offset`. Raises StorageError."""
        self._restart_at(offset, keeps=keeps)

    @guarded
    def begin_after_tier(self, start: TieredStart, *, now_ms: int) -> None:
        """Remove all records; the log is then empty locally, and begins in tiered storage. Raises StorageError."""
        from barnabas.log.tiered_start import finish_start, save_start  # only for such logs

        save_start(self.disk, self.dir, start)
        offset = start.offset
        try:
            self.store.restart_at(offset, config=self.config)
            self.epochs = finish_start(self.disk, self.dir, start)
        except OSError as error:
            raise in_doubt(error) from error
        self._truncated(offset)
        self.log_start_offset = start.log_start_offset
        self.high_watermark = self.recovery_point = offset
        self.highest_remote_offset = offset - 1
        self.store.snapshots.offsets.add(offset)
        self.store.snapshots.load(self.producers, start.log_start_offset, offset, now_ms)
        self.producers.on_high_watermark(offset)
        self._update_last_stable()

    def _truncate(self, offset: int, now_ms: int) -> None:
        self._load_aborted(self.segments[self.store.index_of(offset - 1)])
        self.store.truncate(offset, due_ms=now_ms + self.config.file_delete_delay_ms)
        self._truncated(offset)
        self._flushed_messages -= offset - self.recovery_point  # the rest may be unsynced
        ended = self.producers.ended_before(offset)
        self.store.snapshots.load(self.producers, self.log_start_offset, offset, now_ms)
        replay_producers(self.segments, self.producers, offset)
        self.producers.keep_ended(ended)
        self.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()
        if self.epochs.truncate_from_end(offset):
            self._save_epochs(sync=True)

    def _restart_at(self, offset: int, *, keeps: bool = False) -> None:
        is_in_tier = self.is_tiered and self.log_start_offset < offset < self.store.bases[0]
        self.store.restart_at(offset, config=self.config, keeps=keeps)
        if not is_in_tier:
            self.log_start_offset = offset
        self._truncated(offset)
        self.high_watermark = offset
        self.producers.clear(offset)
        self._update_last_stable()
        if self.epochs.truncate_from_end(offset) if is_in_tier else self.epochs.clear():
            self._save_epochs(sync=True)

    def _truncated(self, offset: int) -> None:
        self._generation += 1
        self.needs_sync = True
        self._flushed_messages = self.appended_messages
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)
        if self.clean_offset is not None:
            self.clean_offset = min(self.clean_offset, offset)

    # --- closing ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, write the files of a clean shutdown, and close all files. Raises StorageError."""
        task = self.begin_close()
        if task is not None:
            task.run()
        self.finish_close(task)

    @guarded
    def begin_close(self) -> FlushTask | None:
        """Write the files of a clean shutdown; returns the sync that must follow, if any. Raises StorageError."""
        self.settle()
        if not self.needs_sync and self.log_end_offset <= self.recovery_point:
            return None
        task = self._plan_flush()
        task.paths.extend(self.active.index_paths())
        return task

    @guarded
    def settle(self) -> None:
        """Write the files that a copy of the directory needs to be opened without recovery; appends may follow.

        Raises StorageError.
        """
        self.active.seal()
        self.take_snapshot()

"""The log of one partition: what may be appended, what is dropped, and what lasts. `readable` is how it is read.

The rule: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`, and the log end is
never past what was written whole. All changes are made by one thread.
"""

from __future__ import annotations

import logging

from barnabas.errors import RequestError
from barnabas.log import retention
from barnabas.log.config import LogConfig
from barnabas.log.disk import Disk
from barnabas.log.errors import Code, failure_of, guarded, in_doubt
from barnabas.log.flushing import FlushTask, unsynced_files
from barnabas.log.format import names, properties
from barnabas.log.incoming import check_replicated, read_end_marker
from barnabas.log.loading import LoadedLog, save_epochs
from barnabas.log.openfiles import OpenFiles
from barnabas.log.producers import is_end_marker
from barnabas.log.readable import ReadableLog
from barnabas.log.replay import aborted_entry, replay_producers
from barnabas.log.results import AppendResult
from barnabas.log.segment import Segment
from barnabas.log.trash import Trash
from barnabas.records.batch import BatchHeader
from barnabas.records.control import EndMarker
from barnabas.records.steps import Steps, run
from barnabas.records.validate import Origin, ValidatedBatches, validate_steps

log = logging.getLogger(__name__)

PRODUCE_VERSION_LATEST = 13
FROM_ZERO_SINCE = 12
"""The version of Produce from which on transactions are of version 2."""


class PartitionLog(ReadableLog):
    """The log of one partition, opened by LogManager.

    `config` may be replaced at any time. Methods raise StorageError when the disk fails; what was
    acknowledged before stays as it is, and it is for the manager to take the log dir offline.
    """

    __slots__ = (
        "_flushed_messages",
        "_generation",
        "appended_messages",
        "are_epochs_synced",
        "clean_offset",
        "config",
        "is_closed",
        "is_dir_synced",
        "last_flush_ms",
        "needs_sync",
        "producers",
        "recovery_point",
        "topic_id",
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
        super().__init__(
            topic,
            partition,
            log_dir=log_dir,
            disk=disk,
            pool=pool,
            trash=trash,
            loaded=loaded,
            high_watermark=high_watermark,
        )
        self.config = config
        self.topic_id = topic_id
        self.producers = loaded.producers
        self.recovery_point = loaded.recovery_point
        self.clean_offset: int | None = None  # up to where the log has been compacted, None: never
        self.last_flush_ms = now_ms
        self.appended_messages = 0  # in this life
        self._flushed_messages = 0  # those of them that are known to last
        self.is_closed = False  # for good: closed, deleted, or its disk has failed
        self.is_dir_synced = False  # whether the directory's own name is known to last
        self.needs_sync = not loaded.is_clean  # whether a clean end must sync even if nothing was appended
        self.are_epochs_synced = True  # whether the file of the leader epochs is known to last
        self._generation = 0  # counts truncations
        self.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()

    @property
    def generation(self) -> int:
        """How often the log was truncated in this life: offsets may have other records since."""
        return self._generation

    def take_over(self, old: PartitionLog) -> None:
        """Be, from now on, what `old` was: a copy of it with the same end."""
        assert (self.log_start_offset, self.log_end_offset) == (old.log_start_offset, old.log_end_offset)
        self.config = old.config
        self.topic_id = old.topic_id
        self.producers = old.producers
        self.epochs = old.epochs
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
        """Validate the records of one partition in a produce request, give them offsets, and append them.

        All at once; `validation` and `append_valid` say what is raised. Then nothing was appended.
        """
        valid = run(self.validation(records, now_ms=now_ms, api_version=api_version, origin=origin))
        return self.append_valid(
            valid, leader_epoch=leader_epoch, now_ms=now_ms, api_version=api_version, origin=origin
        )

    def validation(
        self,
        records: bytes | bytearray | memoryview,
        *,
        now_ms: int,
        api_version: int = PRODUCE_VERSION_LATEST,
        origin: Origin = Origin.CLIENT,
    ) -> Steps[ValidatedBatches]:
        """Return the steps that validate the records of one partition in a produce request, for `append_valid`.

        `records` is patched in place if it is writable. They raise RequestError as `validate_steps` says. Nothing of
        the log is looked at but its settings, so it may change meanwhile.
        """
        return validate_steps(
            records, api_version=api_version, config=self.config.rules, now_ms=now_ms, origin=origin
        )

    def append_valid(
        self,
        valid: ValidatedBatches,
        *,
        leader_epoch: int,
        now_ms: int,
        api_version: int = PRODUCE_VERSION_LATEST,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Give validated records their offsets, and append them.

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
                from_client = origin is Origin.CLIENT
                repeated = self.producers.check(
                    header,
                    from_client=from_client,
                    from_zero=from_client and api_version >= FROM_ZERO_SINCE,
                    high_watermark=self.high_watermark,
                )
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
        """Write one batch whose place is the log end."""
        base_offset, last_offset = valid.base_offset, valid.last_offset
        records, max_timestamp = valid.records, valid.max_timestamp
        size = len(records)
        if leader_epoch != self.epochs.latest:
            self._assign_epoch(leader_epoch, base_offset)
        segment = self._segment_for(size, max_timestamp, base_offset, last_offset, now_ms)
        position = segment.size
        segment.append(
            records, last_offset, header.max_timestamp, max_timestamp, valid.offset_of_max_timestamp
        )
        self.store.remember(base_offset, position)
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
        """Append what the leader sent, with offsets and epochs as they come; a partial batch at the end is
        left out.

        Raises CorruptRecordsError for a bad checksum or offsets that do not rise,
        RequestError(OFFSET_OUT_OF_RANGE) if they begin before the log end, StorageError. Nothing was appended
        then.
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
        start = segment.size
        with memoryview(records) as view:
            segment.append(
                view[:size], last_offset, first.max_timestamp, latest.max_timestamp, latest.last_offset
            )
        for position, header in entries:
            self.store.remember(header.base_offset, start + position)
            self.log_end_offset = header.next_offset
            if header.producer_id >= 0:
                marker = read_end_marker(records, position, header) if is_end_marker(header) else None
                self._update_producers(header, marker)
        count = sum(max(header.records_count, 0) for _, header in entries)
        self.appended_messages += count
        return AppendResult(first.base_offset, last_offset, -1, self.log_start_offset, count, size)

    def _update_producers(self, header: BatchHeader, marker: EndMarker | None) -> None:
        producers = self.producers
        if marker is not None:
            completed = producers.append_marker(header, marker)
            if completed is not None and completed.is_aborted:
                try:
                    self._load_aborted(self.active)
                    self.active.append_aborted(aborted_entry(completed, producers))
                except FileNotFoundError:  # the directory is gone, and the log goes offline
                    raise
                except OSError as error:  # the marker is written, and nothing tells readers of it
                    raise in_doubt(error) from error
        elif not is_end_marker(header):
            producers.append(header)
        if marker is not None or header.is_transactional:
            self._update_last_stable()

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if self.epochs.assign(epoch, start_offset):
            try:
                self._save_epochs(sync=False)
            except OSError:
                self.epochs.truncate_from_end(start_offset)  # so that the next append tries again
                raise

    def _save_epochs(self, *, sync: bool) -> None:
        save_epochs(self.disk, self.dir, self.epochs, sync=sync)
        self.are_epochs_synced = sync

    @guarded
    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins, before anything is written in it (a new leader does so)."""
        self._assign_epoch(epoch, start_offset)

    # --- rolling --------------------------------------------------------------------------------------------

    def _segment_for(
        self, size: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """Return the segment that takes the next `size` bytes: the active one, or a new one."""
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

    @guarded
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
        self._move_start(offset)
        return self.log_start_offset

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
        """Drop the oldest segments that the settings no longer want; returns how many. Raises StorageError.

        Their files are renamed now and removed by the manager's `remove_due`. At most `count_max` go: there may be
        more then.
        """
        if self.is_closed:
            return 0
        plan = retention.plan_retention(
            self.store.ages(self.log_end_offset),
            config=self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        count = plan.segment_count if count_max is None else min(plan.segment_count, count_max)
        if not count:
            return 0
        if count == len(self.segments):
            self._roll(self.log_end_offset)
        log.info("dropping %d segments of %s: %s", count, self.name, plan.reason)
        self._move_start(self.segments[count].base_offset)
        self.store.drop_oldest(count, due_ms=now_ms + self.config.file_delete_delay_ms)
        return count

    def replace_segments(self, old: list[Segment], new: Segment, *, now_ms: int) -> None:
        """Put a compacted segment in the place of its neighbours `old`. Raises OSError."""
        self.store.replace(old, new, due_ms=now_ms + self.config.file_delete_delay_ms)

    # --- truncating -----------------------------------------------------------------------------------------

    @guarded
    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Drop `offset` and all after it (a follower does, whose leader has another history).

        Returns whether anything was dropped. Raises StorageError.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            return False
        if offset <= self.segments[0].base_offset and offset < self.log_start_offset:
            self._start_anew(offset)
        else:
            self._truncate(offset, now_ms)
        return True

    @guarded
    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`. Raises StorageError."""
        self._start_anew(offset)

    def _truncate(self, offset: int, now_ms: int) -> None:
        store = self.store
        self._load_aborted(self.segments[store.index_of(offset - 1)])
        store.truncate(offset, due_ms=now_ms + self.config.file_delete_delay_ms)
        self._truncated(offset)
        store.snapshots.load(self.producers, self.log_start_offset, offset, now_ms)
        replay_producers(self.segments, self.producers, offset)
        self.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()
        if self.epochs.truncate_from_end(offset):
            self._save_epochs(sync=True)

    def _start_anew(self, offset: int) -> None:
        self.store.start_anew(offset, config=self.config)
        self.log_start_offset = offset
        self._truncated(offset)
        self.high_watermark = offset
        self.producers.clear(offset)
        self._update_last_stable()
        if self.epochs.clear():
            self._save_epochs(sync=True)

    def _truncated(self, offset: int) -> None:
        self._generation += 1
        self.needs_sync = True
        self._flushed_messages = self.appended_messages
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.clean_offset is not None:
            self.clean_offset = min(self.clean_offset, offset)

    # --- lasting --------------------------------------------------------------------------------------------

    @property
    def unflushed_messages(self) -> int:
        """How many records were appended since the last flush began."""
        return self.appended_messages - self._flushed_messages

    @property
    def wants_flush(self) -> bool:
        """Whether flush.messages asks for a flush now, before anybody is told that the records are safe."""
        return self.appended_messages - self._flushed_messages >= self.config.flush_messages

    def is_flush_due(self, now_ms: int) -> bool:
        """Return whether a flush is due by flush.ms, or as a segment has been rolled.

        The one that flush.messages asks for is due with the append (`wants_flush`).
        """
        return self.recovery_point < self.log_end_offset and (
            self.recovery_point < self.active.base_offset
            or now_ms - self.last_flush_ms >= self.config.flush_ms
        )

    @guarded
    def begin_flush(self) -> FlushTask | None:
        """Return what makes all that was appended so far survive a power cut; None if it does already.

        Raises StorageError.
        """
        if self.log_end_offset <= self.recovery_point or self.is_closed:
            return None
        return self._plan_flush()

    def _plan_flush(self) -> FlushTask:
        files, paths = unsynced_files(self.store, self.recovery_point)
        directories = [self.dir]
        if not self.are_epochs_synced:
            paths.append(f"{self.dir}/{names.LEADER_EPOCH_CHECKPOINT}")
        if not self.is_dir_synced:
            paths.append(f"{self.dir}/{names.PARTITION_METADATA}")
            directories.append(self.log_dir)
        return FlushTask(
            self,
            end_offset=self.log_end_offset,
            generation=self._generation,
            appended_messages=self.appended_messages,
            leader_epoch=self.epochs.latest,
            disk=self.disk,
            files=files,
            paths=paths,
            directories=directories,
        )

    def flushed(self, task: FlushTask, now_ms: int) -> None:
        """Take note of a flush that was run."""
        self.last_flush_ms = now_ms
        self.is_dir_synced = True
        if task.generation == self._generation:
            self.are_epochs_synced = self.are_epochs_synced or task.leader_epoch == self.epochs.latest
            self.recovery_point = max(self.recovery_point, task.end_offset)
            self._flushed_messages = max(self._flushed_messages, task.appended_messages)

    def flush(self, now_ms: int) -> None:
        """Return when everything appended so far survives a power cut. Raises StorageError."""
        task = self.begin_flush()
        if task is not None:
            task.run()
            task.finish(now_ms)

    def close(self) -> None:
        """Flush, write what belongs to a clean end, and let all files go. Raises StorageError."""
        task = self.begin_close()
        if task is not None:
            task.run()
        self.finish_close(task)

    @guarded
    def begin_close(self) -> FlushTask | None:
        """Write what belongs to a clean end; returns what must be synced, if anything. Raises StorageError."""
        self.active.seal()
        self.take_snapshot()
        if not self.needs_sync and self.log_end_offset <= self.recovery_point:
            return None
        task = self._plan_flush()
        task.paths.extend(self.active.index_paths())
        return task

    @guarded
    def finish_close(self, task: FlushTask | None) -> None:
        """Take note of what was synced, and let all files go. Raises StorageError."""
        if task is not None:
            task.finish(self.last_flush_ms)
        for segment in self.segments:
            segment.close()
        self.is_closed = True

    @guarded
    def settle(self) -> None:
        """Write what a copy of the directory needs to be opened without recovery; appends may follow.

        Raises StorageError.
        """
        self.active.seal()
        self.take_snapshot()

    def abandon(self) -> None:
        """Let all files go as they are: the partition is deleted, or its disk has failed."""
        self.is_closed = True
        self.store.abandon()

    @guarded
    def save_topic_id(self, topic_id: bytes) -> None:
        """Write `partition.metadata`. Raises StorageError."""
        path = f"{self.dir}/{names.PARTITION_METADATA}"
        self.disk.replace(path, properties.encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id

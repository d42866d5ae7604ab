"""Opens a partition's directory: finishes interrupted steps, checks possibly damaged parts, rebuilds missing files.

The rule: a log that was closed cleanly is trusted, if it ends at the offset of its closing; any other log is checked by
a `CrashRecovery`. If that changes files, the directory is read again from the beginning.
"""

from __future__ import annotations

import logging
from errno import ENOENT
from typing import NamedTuple

from barnabas.log.config import LogConfig
from barnabas.log.derived_files import DerivedFiles
from barnabas.log.disk import Disk, file_names
from barnabas.log.epoch_file import load_epochs, save_epochs
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import names
from barnabas.log.logdir import LogGoneError
from barnabas.log.openfiles import OpenFiles
from barnabas.log.producers import ProducerState
from barnabas.log.recovery.plan import (
    Inventory,
    SegmentFiles,
    plan_leftovers,
    plan_swap,
    stray_snapshots,
    take_inventory,
)
from barnabas.log.recovery.repair import CrashRecovery, FilesChangedError
from barnabas.log.replay import load_producers
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.errors import CorruptRecordsError, RecordsError

log = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """Content of a partition's directory, in order: at least one segment, the last one active."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_clean: bool


class Loader:
    """Opens one partition. `now_ms` decides which producers have expired.

    `recovery_point`, `log_start_offset` and `clean_offset` (the end of its last compaction) come from checkpoints.
    `is_cache_intact`: the machine has not restarted since the log was written, so unsynced writes are not lost.
    `was_there`: the log had segments before. `recovery` describes the bytes removed from the log.
    """

    __slots__ = (
        "_derived",
        "_disk",
        "_is_clean",
        "_log_start_offset",
        "_now_ms",
        "_opened",
        "_producer_expiration_ms",
        "_recovery_point",
        "_was_there",
        "config",
        "directory",
        "pool",
        "recovery",
    )

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        producer_expiration_ms: int,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_offset: int = 0,
        is_cache_intact: bool = False,
        was_there: bool = False,
    ) -> None:
        self.pool = pool
        self.directory = directory
        self.config = config
        self._disk = disk
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._is_clean = is_clean
        self._was_there = was_there
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._opened: list[Segment] = []
        self._derived = DerivedFiles(directory)
        self.recovery = CrashRecovery(
            disk, directory, config, self._derived,
            now_ms=now_ms, recovery_point=recovery_point, log_start_offset=log_start_offset,
            clean_offset=clean_offset, is_cache_intact=is_cache_intact, was_closed=is_clean,
        )  # fmt: skip

    def load(self) -> LoadedLog:
        """Open the log. Raises OSError if the disk fails, LogGoneError if its segments are gone."""
        while True:
            try:
                return self._load()
            except FilesChangedError:
                self._is_clean = False
                for segment in self._opened:
                    segment.abandon()
                self._opened.clear()

    def _load(self) -> LoadedLog:
        inventory = self._tidy_up()
        if not inventory.segments and (self._was_there or inventory.snapshots):
            if file_names(self._disk, self.directory):
                raise LogGoneError(ENOENT, "all of its segments are gone", self.directory)
            log.error("%s is empty, and had a log: it begins anew", self.directory)
        for name in inventory.orphans:
            log.warning("removing %s/%s: there is no segment to it", self.directory, name)
            self._disk.remove(f"{self.directory}/{name}")
        segments = [self._open_segment(files) for files in inventory.segments]
        known_epochs = load_epochs(self._disk, self.directory)
        epochs = known_epochs or self._rebuild_epochs(segments)
        is_new = not (inventory.segments or inventory.snapshots or self._log_start_offset)
        epochs_before = epochs.entries if known_epochs or is_new else None
        producers = ProducerState(
            self.directory.rpartition("/")[2], expiration_ms=self._producer_expiration_ms
        )
        snapshots = ProducerSnapshots(self._disk, self.directory, inventory.snapshots)
        is_clean = self._is_clean or is_new  # an empty log has nothing to lose
        if is_clean:
            try:
                end_offset = self._check_end(segments)
            except RecordsError as error:
                log.warning("%s was closed cleanly, but its end is damaged: %s", segments[-1], error)
                is_clean = False
        if not is_clean:
            end_offset = self.recovery.recover(segments, epochs, producers, snapshots)
        if end_offset < self._log_start_offset:
            end_offset = self.recovery.begin_empty(segments, epochs, snapshots, end_offset)
        if not segments:
            segments.append(Segment.create(self._disk, self.pool, self.directory, end_offset, self.config))
        log_start_offset = self._start_of(segments[0].base_offset, epochs)
        snapshots.remove(stray_snapshots(sorted(snapshots.offsets), [s.base_offset for s in segments]))
        load_producers(segments, producers, snapshots, log_start_offset, end_offset, self._now_ms)
        epochs.truncate_from_end(end_offset)
        epochs.truncate_from_start(log_start_offset)
        if epochs.entries != epochs_before:
            self._derived.write(lambda: save_epochs(self._disk, self.directory, epochs, sync=True))
        recovery_point = end_offset if is_clean else min(self._recovery_point, end_offset)
        return LoadedLog(
            segments, epochs, producers, snapshots, log_start_offset, end_offset, recovery_point, is_clean
        )

    def _start_of(self, local_start: int, epochs: LeaderEpochs) -> int:
        """Return the log start offset: the start of the local segments, or an earlier offset in tiered storage.

        Without a checkpoint it is the start of the first leader epoch.
        """
        if self.config.is_tiered and epochs.entries:
            local_start = min(local_start, epochs.entries[0][1])
        return max(self._log_start_offset, local_start)

    # --- files ----------------------------------------------------------------------------------------------

    def _tidy_up(self) -> Inventory:
        present = file_names(self._disk, self.directory)
        if names.TIERED_START in present:
            from barnabas.log.tiered_start import resume_start  # hardly ever needed

            start = resume_start(self._disk, self.directory)
            if start is not None:
                self._log_start_offset = start.log_start_offset
            present = file_names(self._disk, self.directory)
        leftovers = plan_leftovers(present)
        if leftovers.remove or leftovers.swap_files:
            for name in leftovers.remove:
                self._disk.remove(f"{self.directory}/{name}")
            ranges = []
            for base_offset in leftovers.swapped_logs:
                swapped = self._segment(SegmentFiles(base_offset), mark=names.SWAP)
                end_offset = base_offset
                for _, header in swapped.headers():
                    end_offset = header.next_offset
                swapped.abandon()
                ranges.append((base_offset, end_offset))
            remove, renames = plan_swap(file_names(self._disk, self.directory), leftovers, ranges)
            for name in remove:
                log.info("removing %s/%s: it was compacted", self.directory, name)
                self._disk.remove(f"{self.directory}/{name}")
            for rename in renames:
                self._disk.rename(f"{self.directory}/{rename.source}", f"{self.directory}/{rename.target}")
            present = file_names(self._disk, self.directory)
        return take_inventory(present)

    def _segment(self, files: SegmentFiles, mark: str = "") -> Segment:
        path = f"{self.directory}/{names.file_name(files.base_offset, names.LOG, mark)}"
        return Segment(
            self._disk, self.pool, self.directory, files.base_offset, self._disk.stat(path).size,
            index_interval_bytes=self.config.index_interval_bytes,
            has_txn_index=files.has_txn_index, mark=mark,
        )  # fmt: skip

    def _open_segment(self, files: SegmentFiles) -> Segment:
        segment = self._segment(files)
        self._opened.append(segment)
        if self._is_clean and not files.has_indexes and segment.size:
            log.warning("rebuilding the indexes of %s: a file is missing", segment)
            segment.rebuild_indexes()
        return segment

    # --- the end of the log ---------------------------------------------------------------------------------

    def _check_end(self, segments: list[Segment]) -> int:
        """Return the end offset of a log that was closed cleanly.

        Raises RecordsError if its end is damaged, or differs from the offset of its closing: no checksum covers base
        offsets.
        """
        if not segments:
            return self._log_start_offset
        last = segments[-1]
        end_offset = last.read_end_offset() if last.size else last.base_offset
        if self._recovery_point and last.size and end_offset != self._recovery_point:
            raise CorruptRecordsError(
                f"it ends at offset {end_offset}, and was closed at {self._recovery_point}"
            )
        return end_offset

    def _rebuild_epochs(self, segments: list[Segment]) -> LeaderEpochs:
        """Read the leader epochs from all batches."""
        epochs = LeaderEpochs()
        for segment in segments:
            try:
                for _, header in segment.headers():
                    if header.magic == 2 and header.leader_epoch > epochs.latest:
                        epochs.assign(header.leader_epoch, header.base_offset)
            except RecordsError as error:
                log.warning("the epochs of %s are known up to a damaged batch only: %s", segment, error)
        return epochs

"""Opening a partition's directory: finish what was interrupted, check what may be damaged, rebuild what is
missing.

The rule: after a crash nothing behind the recovery point is believed. Each batch there is checked, the log
ends before the first one that is not sound or missing, and every cut is told in one WARNING line with file,
position and reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.log.config import UNBOUNDED, LogConfig
from barnabas.log.disk import Disk
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import CorruptFileError, checkpoints, names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.openfiles import OpenFiles
from barnabas.log.producers import CompletedTransaction, ProducerState, is_end_marker
from barnabas.log.recovery import (
    Inventory,
    SegmentFiles,
    first_to_check,
    plan_leftovers,
    plan_swap,
    stray_snapshots,
    take_inventory,
)
from barnabas.log.scan import iter_checked, read_marker
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.batch import BatchHeader
from barnabas.records.errors import RecordsError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLog:
    """What was found in a directory, in order: at least one segment, the last one active."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_clean: bool


@dataclass(slots=True)
class Loader:
    """Opens one partition. `now_ms` decides which producers have expired."""

    disk: Disk
    pool: OpenFiles
    directory: str
    config: LogConfig
    now_ms: int
    producer_expiration_ms: int
    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    clean_offset: int = 0  # up to where the log was once compacted

    def load(self) -> LoadedLog:
        """Do it. Raises OSError if the disk fails."""
        inventory = self._tidy_up()
        for name in inventory.orphans:
            log.warning("removing %s/%s: there is no segment to it", self.directory, name)
            self.disk.remove(f"{self.directory}/{name}")
        segments = [self._open_segment(files) for files in inventory.segments]
        known_epochs = load_epochs(self.disk, self.directory)
        epochs = known_epochs or self._rebuild_epochs(segments)
        epochs_before = epochs.entries if known_epochs else None
        producers = ProducerState(
            self.directory.rpartition("/")[2], expiration_ms=self.producer_expiration_ms
        )
        snapshots = ProducerSnapshots(self.disk, self.directory, inventory.snapshots)
        is_clean = self.is_clean
        if is_clean:
            try:
                end_offset = self._check_end(segments)
            except RecordsError as error:
                log.warning("%s was closed cleanly, but its end is damaged: %s", segments[-1], error)
                is_clean = False
        if not is_clean:
            end_offset = self._recover(segments, epochs, producers, snapshots)
        if end_offset < self.log_start_offset:
            log.warning(
                "%s ends at offset %d, before its log start offset %d: beginning anew there",
                self.directory, end_offset, self.log_start_offset,
            )  # fmt: skip
            for segment in segments:
                self._remove_segment(segment, snapshots)
            segments.clear()
            epochs.clear()
            end_offset = self.log_start_offset
            producers.clear(end_offset)
        if not segments:
            segments.append(Segment.create(self.disk, self.pool, self.directory, end_offset, self.config))
        log_start_offset = max(self.log_start_offset, segments[0].base_offset)
        snapshots.remove(stray_snapshots(sorted(snapshots.offsets), [s.base_offset for s in segments]))
        self._load_producers(segments, producers, snapshots, log_start_offset, end_offset)
        epochs.truncate_from_end(end_offset)
        epochs.truncate_from_start(log_start_offset)
        if epochs.entries != epochs_before:
            save_epochs(self.disk, self.directory, epochs, sync=True)
        recovery_point = end_offset if is_clean else min(self.recovery_point, end_offset)
        return LoadedLog(
            segments, epochs, producers, snapshots, log_start_offset, end_offset, recovery_point, is_clean
        )

    # --- files ----------------------------------------------------------------------------------------------

    def _tidy_up(self) -> Inventory:
        file_names = self._list()
        leftovers = plan_leftovers(file_names)
        if leftovers.remove or leftovers.swap_files:
            for name in leftovers.remove:
                self.disk.remove(f"{self.directory}/{name}")
            ranges = []
            for base_offset in leftovers.swapped_logs:
                swapped = self._segment(SegmentFiles(base_offset), mark=names.SWAP)
                end_offset = base_offset
                for _, header in swapped.headers():
                    end_offset = header.next_offset
                swapped.abandon()
                ranges.append((base_offset, end_offset))
            remove, renames = plan_swap(self._list(), leftovers, ranges)
            for name in remove:
                log.info("removing %s/%s: it was compacted", self.directory, name)
                self.disk.remove(f"{self.directory}/{name}")
            for rename in renames:
                self.disk.rename(f"{self.directory}/{rename.source}", f"{self.directory}/{rename.target}")
            file_names = self._list()
        return take_inventory(file_names)

    def _list(self) -> list[str]:
        return [entry.name for entry in self.disk.list(self.directory) if not entry.is_dir]

    def _segment(self, files: SegmentFiles, mark: str = "") -> Segment:
        path = f"{self.directory}/{names.file_name(files.base_offset, names.LOG, mark)}"
        return Segment(
            self.disk, self.pool, self.directory, files.base_offset, self.disk.stat(path).size,
            index_interval_bytes=self.config.index_interval_bytes,
            has_txn_index=files.has_txn_index, mark=mark,
        )  # fmt: skip

    def _open_segment(self, files: SegmentFiles) -> Segment:
        segment = self._segment(files)
        if self.is_clean and not files.has_indexes and segment.size:
            log.warning("rebuilding the indexes of %s: a file is missing", segment)
            segment.rebuild_indexes()
        return segment

    def _remove_segment(self, segment: Segment, snapshots: ProducerSnapshots) -> None:
        segment.abandon()
        for suffix in names.SEGMENT_SUFFIXES:
            self.disk.remove(segment.path(suffix))
        snapshots.remove([segment.base_offset])

    # --- the end of the log ---------------------------------------------------------------------------------

    def _check_end(self, segments: list[Segment]) -> int:
        """Return the end offset of a log that was closed cleanly.

        Raises RecordsError if its end is damaged.
        """
        if not segments:
            return self.log_start_offset
        last = segments[-1]
        return last.read_end_offset() if last.size else last.base_offset

    def _recover(
        self,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
    ) -> int:
        """Check all that was written after the recovery point, and rebuild what is derived from it."""
        if not segments:
            return self.log_start_offset
        first = first_to_check([s.base_offset for s in segments], self.recovery_point, is_clean=False)
        start = segments[first].base_offset
        snapshots.remove([offset for offset in snapshots.offsets if offset > start])
        self._load_producers(segments[:first], producers, snapshots, self.log_start_offset, start)
        end_offset = start
        kept = first
        for segment in segments[first:]:
            if segment.base_offset > end_offset:
                if not self.config.is_compacted and end_offset >= self.clean_offset:
                    # Nobody but a cleaner takes the end of a segment away: it was not written when the power
                    # went, and without it what follows must not be seen.
                    log.warning("offsets %d on are missing before %s", end_offset, segment)
                    break
                end_offset = segment.base_offset
            if kept > first:
                producers.end_offset = segment.base_offset
                snapshots.save(producers)
            kept += 1
            end_offset, is_cut = self._recover_segment(segment, epochs, producers, end_offset)
            if is_cut:
                break
        for later in segments[kept:]:
            log.warning("removing %s: it follows what was lost", later)
            self._remove_segment(later, snapshots)
        if segments[kept:]:
            self.disk.sync_dir(self.directory)
        del segments[kept:]
        producers.end_offset = end_offset
        return end_offset

    def _recover_segment(
        self, segment: Segment, epochs: LeaderEpochs, producers: ProducerState, end_offset: int
    ) -> tuple[int, bool]:
        """Check a segment and rebuild its indexes: (its end offset, whether a damaged part was cut off)."""
        size = segment.size
        segment.reset_indexes()
        aborted: list[AbortedTransaction] = []
        problems: list[tuple[int, str]] = []
        valid_bytes = 0
        for position, header in iter_checked(
            segment.file,
            size,
            base_offset=segment.base_offset,
            on_problem=lambda *args: problems.append(args),
        ):
            if header.producer_id >= 0:
                try:
                    entry = replay_batch(segment, position, header, producers)
                except RecordsError as error:
                    problems.append((position, error.message))
                    break
                if entry is not None:
                    aborted.append(entry)
            segment.index_batch(position, header)
            if header.leader_epoch > epochs.latest and header.magic == 2:
                epochs.assign(header.leader_epoch, header.base_offset)
            valid_bytes = position + header.size
            end_offset = header.next_offset
        for position, reason in problems:
            log.warning(
                "cutting off %d bytes of %s at position %d, offset %d: %s",
                size - valid_bytes, segment.path(names.LOG), position, end_offset, reason,
            )  # fmt: skip
        if valid_bytes < size:
            segment.file.truncate(valid_bytes)
            segment.file.sync()
            segment.size = valid_bytes
        segment.set_aborted(aborted)
        segment.seal()
        return end_offset, bool(problems)

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

    # --- producers ------------------------------------------------------------------------------------------

    def _load_producers(
        self,
        segments: list[Segment],
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        log_start_offset: int,
        end_offset: int,
    ) -> None:
        """Bring the producers' state to `end_offset`: by the newest good snapshot, and the log after it."""
        if producers.end_offset == end_offset:
            return
        snapshots.load(producers, log_start_offset, end_offset, self.now_ms)
        try:
            replay_producers(segments, producers, end_offset)
        except RecordsError as error:
            log.warning("the producers of %s are known up to a damaged batch only: %s", self.directory, error)
            producers.end_offset = end_offset


def load_epochs(disk: Disk, directory: str) -> LeaderEpochs | None:
    """Read the leader epochs; None if the file is damaged. Raises OSError."""
    path = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
    try:
        data = disk.read(path)
        if not data:
            raise CorruptFileError("it is empty")
        return LeaderEpochs(checkpoints.decode_epochs(data))
    except FileNotFoundError:
        return LeaderEpochs()
    except CorruptFileError as error:
        log.warning("%s is damaged, the leader epochs are read from the log: %s", path, error)
        return None


def save_epochs(disk: Disk, directory: str, epochs: LeaderEpochs, *, sync: bool) -> None:
    """Write the leader epochs. Raises OSError."""
    path = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
    disk.replace(path, checkpoints.encode_epochs(epochs.entries), sync=sync)


def replay_producers(segments: Sequence[Segment], producers: ProducerState, end_offset: int) -> None:
    """Take in the batches between the producers' end offset and `end_offset`.

    Raises OSError, RecordsError.
    """
    for n, segment in enumerate(segments):
        next_base = segments[n + 1].base_offset if n + 1 < len(segments) else end_offset
        if next_base <= producers.end_offset or segment.base_offset >= end_offset or not segment.size:
            continue
        found = segment.find(max(producers.end_offset, segment.base_offset))
        if found is None:
            continue
        for position, header in segment.headers(found[0]):
            if header.next_offset > end_offset:
                break
            replay_batch(segment, position, header, producers)
    producers.end_offset = end_offset


def replay_batch(
    segment: Segment, position: int, header: BatchHeader, producers: ProducerState
) -> AbortedTransaction | None:
    """Take in one batch; returns the entry for the transaction index if it aborts a transaction.

    Raises OSError, RecordsError.
    """
    if header.producer_id < 0:
        return None
    if not is_end_marker(header):
        producers.append(header)
        return None
    marker = read_marker(segment.file, position, header)
    completed = producers.append_marker(header, marker) if marker else None
    return aborted_entry(completed, producers) if completed and completed.is_aborted else None


def aborted_entry(completed: CompletedTransaction, producers: ProducerState) -> AbortedTransaction:
    """Return the entry for the transaction index of a transaction that was just aborted."""
    undecided = producers.first_undecided_offset
    last_stable_offset = completed.last_offset + 1 if undecided is None else undecided
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
    )


def rebuild_txn_index(segments: Sequence[Segment], damaged: Segment, snapshots: ProducerSnapshots) -> None:
    """Make the transaction index of one segment anew, from the batches. Raises OSError, RecordsError."""
    log.warning("rebuilding the transaction index of %s", damaged.path(names.LOG))
    producers = ProducerState(expiration_ms=UNBOUNDED)
    snapshots.peek(producers, segments[0].base_offset, damaged.base_offset)
    replay_producers(segments, producers, damaged.base_offset)
    aborted = []
    for position, header in damaged.headers():
        entry = replay_batch(damaged, position, header, producers)
        if entry is not None:
            aborted.append(entry)
    damaged.set_aborted(aborted)

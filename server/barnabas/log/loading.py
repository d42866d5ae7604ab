"""Opening a partition's directory: finish what was interrupted, check what may be damaged, rebuild what is
missing.

The rule: after a crash nothing behind the recovery point is believed: each batch there is checked. A torn end is cut off.
Damage that sound batches follow is cut out if all that was written is still there (only the broker ended, not the
machine), or if it is before the recovery point; else the log ends before it. What is cut then is kept beside the log
(`barnabas.log.damage`), and one ERROR line says which offsets are lost, where, why, and what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.errors import lacks_room
from barnabas.log.config import UNBOUNDED, LogConfig
from barnabas.log.damage import (
    Damage,
    find_sound_batch,
    is_known_gap,
    keep_damaged,
    split_off,
    true_base_offset,
)
from barnabas.log.disk import Disk
from barnabas.log.epoch_file import load_epochs, save_epochs
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.openfiles import OpenFiles
from barnabas.log.producers import ProducerState
from barnabas.log.recovery import (
    Inventory,
    SegmentFiles,
    first_to_check,
    plan_leftovers,
    plan_swap,
    stray_snapshots,
    take_inventory,
)
from barnabas.log.replay import replay_batch, replay_producers
from barnabas.log.scan import iter_checked, sound_header_at
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.errors import CorruptRecordsError, RecordsError

log = logging.getLogger(__name__)

RESTORED_OFFSETS_MAX = 100


class _FilesChangedError(Exception):
    """Files of the directory were changed while it was read: read it again."""


class LoadedLog(NamedTuple):
    """What was found in a directory, in order: at least one segment, the last one active."""

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

    `is_cache_intact` says that the machine has run since the log was written: what was not synced is there all the same.
    `damages` is what was cut out, and what was left behind it.
    """

    __slots__ = (
        "_checked_offset",
        "_is_full_logged",
        "_opened",
        "_restored_offsets",
        "clean_offset",
        "config",
        "damages",
        "directory",
        "disk",
        "is_cache_intact",
        "is_clean",
        "log_start_offset",
        "lost_bytes",
        "now_ms",
        "pool",
        "producer_expiration_ms",
        "recovery_point",
    )

    def __init__(
        self,
        disk: Disk,
        pool: OpenFiles,
        directory: str,
        config: LogConfig,
        now_ms: int,
        producer_expiration_ms: int,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_offset: int = 0,
        is_cache_intact: bool = False,
        _restored_offsets: int = 0,
        _is_full_logged: bool = False,
    ) -> None:
        self.disk = disk
        self.pool = pool
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.producer_expiration_ms = producer_expiration_ms
        self.is_clean = is_clean
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.clean_offset = clean_offset  # up to where the log was once compacted
        self.is_cache_intact = is_cache_intact
        self.damages: list[Damage] = []
        self.lost_bytes = 0  # what was taken out of the log
        self._opened: list[Segment] = []
        self._checked_offset = 0  # all before it has been checked already
        self._restored_offsets = _restored_offsets
        self._is_full_logged = _is_full_logged

    def load(self) -> LoadedLog:
        """Open the log. Raises OSError if the disk fails."""
        while True:
            try:
                return self._load()
            except _FilesChangedError:
                self.is_clean = False
                for segment in self._opened:
                    segment.abandon()
                self._opened.clear()

    def _load(self) -> LoadedLog:
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
        is_new = not (inventory.segments or inventory.snapshots or self.log_start_offset)
        is_clean = self.is_clean or is_new  # in an empty log there is nothing that could be lost
        if is_clean:
            try:
                end_offset = self._check_end(segments)
            except RecordsError as error:
                log.warning("%s was closed cleanly, but its end is damaged: %s", segments[-1], error)
                is_clean = False
        if not is_clean:
            end_offset = self._recover(segments, epochs, producers, snapshots)
        if end_offset < self.log_start_offset:
            log.error(
                "%s ends at offset %d, before its log start offset %d: it is empty and begins there; what it had was "
                "renamed to *%s*",
                self.directory, end_offset, self.log_start_offset, names.DAMAGED,
            )  # fmt: skip
            for segment in segments:
                self._set_aside(segment, snapshots)
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
            self._if_there_is_room(lambda: save_epochs(self.disk, self.directory, epochs, sync=True))
        recovery_point = end_offset if is_clean else min(self.recovery_point, end_offset)
        return LoadedLog(
            segments, epochs, producers, snapshots, log_start_offset, end_offset, recovery_point, is_clean
        )

    def _if_there_is_room(self, write: Callable[[], None]) -> None:
        """Write what can be rebuilt from the log; without room for it, memory has it, and the next start rebuilds it."""
        try:
            write()
        except OSError as error:
            if not lacks_room(error):
                raise
            if not self._is_full_logged:
                self._is_full_logged = True
                log.warning(
                    "%s: no room for indexes and snapshots, they are kept in memory: %s",
                    self.directory,
                    error,
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
        self._opened.append(segment)
        if self.is_clean and not files.has_indexes and segment.size:
            log.warning("rebuilding the indexes of %s: a file is missing", segment)
            segment.rebuild_indexes()
        return segment

    def _set_aside(self, segment: Segment, snapshots: ProducerSnapshots) -> None:
        """Take a segment out of the log; its records, if there are any, are kept under another name."""
        if segment.size:
            self.lost_bytes += segment.size
            path = segment.path(names.LOG)
            self.disk.rename(path, f"{path}{names.DAMAGED}{segment.base_offset}")
        self._remove_segment(segment, snapshots)

    def _remove_segment(self, segment: Segment, snapshots: ProducerSnapshots) -> None:
        segment.abandon()
        for suffix in names.SEGMENT_SUFFIXES:
            self.disk.remove(segment.path(suffix))
        snapshots.remove([segment.base_offset])

    # --- the end of the log ---------------------------------------------------------------------------------

    def _check_end(self, segments: list[Segment]) -> int:
        """Return the end offset of a log that was closed cleanly.

        Raises RecordsError if its end is damaged, or is not where the log was closed: no checksum covers base offsets.
        """
        if not segments:
            return self.log_start_offset
        last = segments[-1]
        end_offset = last.read_end_offset() if last.size else last.base_offset
        if self.recovery_point and last.size and end_offset != self.recovery_point:
            raise CorruptRecordsError(
                f"it ends at offset {end_offset}, and was closed at {self.recovery_point}"
            )
        return end_offset

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
        checked_offset = max(self._checked_offset, min(self.recovery_point, self._unfinished_cut(segments)))
        first = first_to_check([s.base_offset for s in segments], checked_offset, is_clean=False)
        start = segments[first].base_offset
        snapshots.remove([offset for offset in snapshots.offsets if offset > start])
        self._load_producers(segments[:first], producers, snapshots, self.log_start_offset, start)
        end_offset = start
        kept = first
        for n, segment in enumerate(segments[first:], first + 1):
            if segment.base_offset > end_offset:
                if not self._may_follow_gap(end_offset):
                    # Nobody but a cleaner takes the end of a segment away: it was not written when the power
                    # went, and without it what follows must not be seen.
                    log.warning("offsets %d on are missing before %s", end_offset, segment)
                    break
                if self.is_cache_intact and not self.config.is_compacted and end_offset >= self.clean_offset:
                    log.error(
                        "offsets %d to %d are missing before %s", end_offset, segment.base_offset - 1, segment
                    )
                end_offset = segment.base_offset
            if kept > first:
                producers.end_offset = segment.base_offset
                self._if_there_is_room(lambda: snapshots.save(producers))
            kept += 1
            later = [one for one in segments[n:] if one.size]
            end_offset, is_cut = self._recover_segment(segment, later, epochs, producers, end_offset)
            if is_cut:
                break
        for later_one in segments[kept:]:
            log.warning("setting %s aside: it follows what was lost", later_one)
            self._set_aside(later_one, snapshots)
        if segments[kept:]:
            self.disk.sync_dir(self.directory)
        del segments[kept:]
        producers.end_offset = end_offset
        return end_offset

    def _unfinished_cut(self, segments: Sequence[Segment]) -> int:
        """Return the first base offset of a segment from which damage was to be cut out when a crash came in between."""
        cuts: dict[str, int] = {}
        for name in self._list():
            log_name, mark, offset = name.partition(names.DAMAGED)
            if mark and offset.isdecimal():
                cuts[log_name] = min(int(offset), cuts.get(log_name, UNBOUNDED))
        for segment in segments:
            cut_at = cuts.get(names.file_name(segment.base_offset, names.LOG))
            if cut_at is not None and segment.size and not self._ends_at(segment, cut_at):
                return segment.base_offset
        return UNBOUNDED

    def _ends_at(self, segment: Segment, offset: int) -> bool:
        """Whether a segment, which was cut at `offset`, has nothing behind it; or begins there, and was replaced."""
        if offset == segment.base_offset:
            return sound_header_at(segment.file, 0, segment.size) is not None
        try:
            return segment.read_end_offset() <= offset
        except RecordsError:
            return False

    def _may_follow_gap(self, offset: int) -> bool:
        return (
            self.is_cache_intact
            or self.config.is_compacted
            or offset < self.clean_offset
            or is_known_gap(self._list(), offset)
        )

    def _recover_segment(
        self,
        segment: Segment,
        later: Sequence[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        end_offset: int,
    ) -> tuple[int, bool]:
        """Check a segment and rebuild its indexes: (its end offset, whether the log ends with it)."""
        size = segment.size
        segment.reset_indexes()
        aborted: list[AbortedTransaction] = []
        problems: list[tuple[int, str]] = []
        valid_bytes = 0
        last: tuple[int, int] | None = (
            None  # where the last sound batch begins, and the offset that it should have
        )
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
            last = position, end_offset
            end_offset = header.next_offset
        is_cut_out = False
        next_base = later[0].base_offset if later else None
        if next_base is not None and last is not None and not problems and end_offset > next_base:
            valid_bytes, end_offset = last
            problems.append(
                (valid_bytes, f"its offsets reach into the next segment, which begins at {next_base}")
            )
        if problems:
            self._restore_offset(segment, valid_bytes, end_offset, last, next_base)
            is_cut_out = self._cut(segment, later, valid_bytes, end_offset, problems[0][1])
        if is_cut_out and not valid_bytes:
            self._forget_segment(segment)
        else:
            if valid_bytes < size:
                segment.file.truncate(valid_bytes)
                segment.file.sync()
                segment.size = valid_bytes
            self._if_there_is_room(lambda: segment.set_aborted(aborted))
            self._if_there_is_room(segment.seal)
        if is_cut_out:
            save_epochs(self.disk, self.directory, epochs, sync=True)
            raise _FilesChangedError
        return end_offset, bool(problems)

    def _restore_offset(
        self,
        segment: Segment,
        position: int,
        end_offset: int,
        last: tuple[int, int] | None,
        next_base: int | None,
    ) -> None:
        """Write a damaged base offset again, if the batches around it leave one only.

        That of the batch at `position`, which does not follow `end_offset`, or that of the last one before it. Raises
        _FilesChangedError when it was done.
        """
        file = segment.file
        for at, expected in [(position, end_offset), *([last] if last else [])]:
            base_offset = true_base_offset(file, at, segment.size, expected, next_base)
            if base_offset is None or self._restored_offsets >= RESTORED_OFFSETS_MAX:
                continue
            before, data = file.read(8, at), base_offset.to_bytes(8, "big")
            if before != data:
                log.warning(
                    "the base offset of the batch at position %d of %s was damaged (%d): it is %d, as the batches "
                    "around it say",
                    at, segment.path(names.LOG), int.from_bytes(before, "big", signed=True), base_offset,
                )  # fmt: skip
                file.write(data, at)
                file.sync()
                self._restored_offsets += 1
                raise _FilesChangedError

    def _cut(
        self, segment: Segment, later: Sequence[Segment], position: int, offset: int, reason: str
    ) -> bool:
        """Keep what is behind a damage at `position`, if it is sound. Says whether it stays in the log.

        What is before the damage is left to the caller.
        """
        path, size = segment.path(names.LOG), segment.size
        next_base = later[0].base_offset if later else segment.base_offset + (1 << 31)
        found = find_sound_batch(segment.file, position, size, first_offset=offset, offset_limit=next_base)
        if found is None and not later:
            self.lost_bytes += size - position
            log.warning(
                "cutting off %d bytes of %s at position %d, offset %d: %s",
                size - position, path, position, offset, reason,
            )  # fmt: skip
            return False
        end, next_offset = found or (size, next_base)
        damage = Damage(path, position, end, offset, next_offset, reason)
        self.damages.append(damage)
        name = self.directory.rpartition("/")[2]
        if not self.is_cache_intact and offset >= self.recovery_point:
            self.lost_bytes += size - position
            kept = keep_damaged(self.disk, damage, size)
            log.error(
                "%s: the log ends at offset %d: %s (position %d of %s). Sound batches from offset %d on follow, "
                "which a power cut may have left behind a hole; they are kept in %s%s. To put them back, stop the "
                "broker and run: barnabas log repair --salvage %s",
                name, offset, reason, position, path, next_offset, kept,
                f" and {len(later)} segments beside it" if later else "", self.directory,
            )  # fmt: skip
            return False
        self.lost_bytes += end - position
        kept = keep_damaged(self.disk, damage, end)
        if found is not None:
            split_off(self.disk, self.directory, damage, size)
        self._checked_offset = next_offset
        log.error(
            "%s: lost %s: %s (%d bytes at position %d of %s). All that follows was kept, with a gap in the offsets; the "
            "damaged bytes are in %s",
            name, damage.lost, reason, end - position, position, path, kept,
        )  # fmt: skip
        return True

    def _forget_segment(self, segment: Segment) -> None:
        """Remove the files of a segment that nothing is left of, unless another one has its name by now."""
        segment.abandon()
        is_replaced = self._checked_offset == segment.base_offset
        for suffix in names.SEGMENT_SUFFIXES:
            if suffix != names.LOG or not is_replaced:
                self.disk.remove(segment.path(suffix))
        self.disk.sync_dir(self.directory)

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

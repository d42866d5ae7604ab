"""Recovery after a crash: checks the last writes, repairs damage, rebuilds derived files.

The rule: after a crash no batch after the recovery point is trusted: each is checked. A torn end is cut off. Damage
before sound batches is cut out if no write can be lost (only the broker crashed, not the machine), or if it is before
the recovery point; otherwise the log ends before it. The cut bytes are kept beside the log (`barnabas.log.damage`), and
an ERROR line names the lost offsets, the place, the reason, and the way out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.log.config import UNBOUNDED, LogConfig
from barnabas.log.damage import (
    Damage,
    find_sound_batch,
    is_known_gap,
    keep_damaged,
    leave_undecided,
    split_off,
    true_base_offset,
)
from barnabas.log.derived_files import DerivedFiles
from barnabas.log.disk import Disk, file_names
from barnabas.log.epoch_file import save_epochs
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.format import names
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.producers import ProducerState
from barnabas.log.recovery.plan import first_to_check
from barnabas.log.replay import load_producers, replay_batch
from barnabas.log.scan import iter_checked, sound_header_at
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.batch import HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD
from barnabas.records.errors import RecordsError

log = logging.getLogger(__name__)

RESTORED_OFFSETS_MAX = 100


class FilesChangedError(Exception):
    """Files of the directory were changed while it was read: it must be read again."""


class CrashRecovery:
    """Checks one log, and repairs it. `now_ms` decides which producers have expired.

    `is_cache_intact`: the machine has not restarted since the log was written, so unsynced writes are not lost.
    `damages` describes the damaged parts and their treatment; `lost_bytes` were removed from the log.
    """

    __slots__ = (
        "_checked_offset",
        "_clean_offset",
        "_config",
        "_derived",
        "_directory",
        "_disk",
        "_is_cache_intact",
        "_log_start_offset",
        "_now_ms",
        "_recovery_point",
        "_restored_offsets",
        "_was_closed",
        "damages",
        "lost_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        derived: DerivedFiles,
        *,
        now_ms: int,
        recovery_point: int,
        log_start_offset: int,
        clean_offset: int,
        is_cache_intact: bool,
        was_closed: bool,
    ) -> None:
        """`was_closed`: no write was in progress when the log was last used, so damaged parts were complete before."""
        self._disk = disk
        self._directory = directory
        self._config = config
        self._derived = derived
        self._now_ms = now_ms
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._clean_offset = clean_offset
        """Offset up to which the log was compacted."""
        self._is_cache_intact = is_cache_intact
        self._was_closed = was_closed
        self._checked_offset = 0
        """All records before it have been checked."""
        self._restored_offsets = 0
        self.damages: list[Damage] = []
        self.lost_bytes = 0

    def recover(
        self,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
    ) -> int:
        """Check the log from the recovery point on, and rebuild its indexes and producers; returns the end offset.

        Lost segments are removed from `segments`. Raises OSError, and FilesChangedError.
        """
        if not segments:
            return self._log_start_offset
        checked_offset = max(self._checked_offset, min(self._recovery_point, self._unfinished_cut(segments)))
        first = first_to_check([s.base_offset for s in segments], checked_offset, is_clean=False)
        start = segments[first].base_offset
        snapshots.remove([offset for offset in snapshots.offsets if offset > start])
        load_producers(segments[:first], producers, snapshots, self._log_start_offset, start, self._now_ms)
        end_offset = start
        kept = first
        for n, segment in enumerate(segments[first:], first + 1):
            if segment.base_offset > end_offset:
                if not self._may_follow_gap(end_offset):
                    # only a cleaner shortens a segment: its end was not on disk at the power cut, and records after it
                    # must not be visible without it
                    log.warning("offsets %d on are missing before %s", end_offset, segment)
                    break
                if (
                    self._is_cache_intact
                    and not self._config.is_compacted
                    and end_offset >= self._clean_offset
                ):
                    log.error(
                        "offsets %d to %d are missing before %s", end_offset, segment.base_offset - 1, segment
                    )
                end_offset = segment.base_offset
            if kept > first:
                producers.end_offset = segment.base_offset
                self._derived.write(lambda: snapshots.save(producers))
            kept += 1
            later = [segment for segment in segments[n:] if segment.size]
            end_offset, is_cut = self._recover_segment(segment, later, epochs, producers, end_offset)
            if is_cut:
                break
        for later_one in segments[kept:]:
            log.warning("setting %s aside: it follows what was lost", later_one)
            self._set_aside(later_one, snapshots)
        if segments[kept:]:
            self._disk.sync_dir(self._directory)
        del segments[kept:]
        producers.end_offset = end_offset
        return end_offset

    def begin_empty(
        self,
        segments: list[Segment],
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        end_offset: int,
    ) -> int:
        """Set aside all segments of a log that ends before its log start offset; returns that offset as its new end."""
        log.error(
            "%s ends at offset %d, before its log start offset %d: it is empty and begins there; what it had was "
            "renamed to *%s*",
            self._directory, end_offset, self._log_start_offset, names.DAMAGED,
        )  # fmt: skip
        for segment in segments:
            self._set_aside(segment, snapshots)
        leave_undecided(self._disk, self._directory, self._log_start_offset)
        segments.clear()
        epochs.clear()
        return self._log_start_offset

    def _set_aside(self, segment: Segment, snapshots: ProducerSnapshots) -> None:
        """Remove a segment from the log; its records, if any, are kept under another name."""
        if segment.size:
            self.lost_bytes += segment.size
            path = segment.path(names.LOG)
            self._disk.rename(path, f"{path}{names.DAMAGED}{segment.base_offset}")
        segment.abandon()
        for suffix in names.SEGMENT_SUFFIXES:
            self._disk.remove(segment.path(suffix))
        snapshots.remove([segment.base_offset])

    # --- start of the check, and gaps -----------------------------------------------------------------------

    def _unfinished_cut(self, segments: Sequence[Segment]) -> int:
        """Return the base offset of a segment from which damage was being cut out at the time of a crash."""
        cuts: dict[str, int] = {}
        for name in file_names(self._disk, self._directory):
            log_name, mark, offset = name.partition(names.DAMAGED)
            if mark and offset.isdecimal():
                cuts[log_name] = min(int(offset), cuts.get(log_name, UNBOUNDED))
        for segment in segments:
            cut_at = cuts.get(names.file_name(segment.base_offset, names.LOG))
            if cut_at is not None and segment.size and not self._ends_at(segment, cut_at):
                return segment.base_offset
        return UNBOUNDED

    def _ends_at(self, segment: Segment, offset: int) -> bool:
        """Return whether a segment, which was cut at `offset`, ends there; or begins there, and was replaced."""
        if offset == segment.base_offset:
            return sound_header_at(segment.file, 0, segment.size) is not None
        try:
            return segment.read_end_offset() <= offset
        except RecordsError:
            return False

    def _may_follow_gap(self, offset: int) -> bool:
        return (
            self._is_cache_intact
            or self._config.is_compacted
            or offset < self._clean_offset
            or is_known_gap(file_names(self._disk, self._directory), offset)
        )

    # --- one segment ----------------------------------------------------------------------------------------

    def _recover_segment(
        self,
        segment: Segment,
        later: Sequence[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        end_offset: int,
    ) -> tuple[int, bool]:
        """Check a segment and rebuild its indexes; returns its end offset, and whether the log ends with it."""
        size = segment.size
        segment.reset_indexes()
        aborted: list[AbortedTransaction] = []
        problems: list[tuple[int, str]] = []
        valid_bytes = 0
        last: tuple[int, int] | None = (
            None  # position after the last sound batch, and the offset expected there
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
            self._derived.write(lambda: segment.set_aborted(aborted))
            self._derived.write(segment.seal)
        if is_cut_out:
            save_epochs(self._disk, self._directory, epochs, sync=True)
            raise FilesChangedError
        return end_offset, bool(problems)

    def _restore_offset(
        self,
        segment: Segment,
        position: int,
        end_offset: int,
        last: tuple[int, int] | None,
        next_base: int | None,
    ) -> None:
        """Repair a damaged base offset, if the batches around it determine it.

        The damaged batch is that at `position`, which does not follow `end_offset`, or the last one before it. Raises
        FilesChangedError after the repair.
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
                raise FilesChangedError

    def _cut(
        self, segment: Segment, later: Sequence[Segment], position: int, offset: int, reason: str
    ) -> bool:
        """Keep sound batches after damage at `position`; returns whether they stay in the log.

        The caller handles the part before the damage.
        """
        path, size = segment.path(names.LOG), segment.size
        next_base = later[0].base_offset if later else segment.base_offset + (1 << 31)
        sound_batch = find_sound_batch(
            segment.file, position, size, first_offset=offset, offset_limit=next_base
        )
        if sound_batch is None and not later and not self._is_whole(segment, position):
            self.lost_bytes += size - position
            log.warning(
                "cutting off %d bytes of %s at position %d, offset %d: %s",
                size - position, path, position, offset, reason,
            )  # fmt: skip
            return False
        end, next_offset = sound_batch or (size, next_base if later else -1)
        damage = Damage(path, position, end, offset, next_offset, reason)
        self.damages.append(damage)
        name = self._directory.rpartition("/")[2]
        if not self._is_cache_intact and offset >= self._recovery_point:
            self.lost_bytes += size - position
            kept = keep_damaged(self._disk, damage, size)
            log.error(
                "%s: the log ends at offset %d: %s (position %d of %s). Sound batches from offset %d on follow, "
                "which a power cut may have left behind a hole; they are kept in %s%s. To put them back, stop the "
                "broker and run: barnabas log repair --salvage %s",
                name, offset, reason, position, path, next_offset, kept,
                f" and {len(later)} segments beside it" if later else "", self._directory,
            )  # fmt: skip
            return False
        self.lost_bytes += end - position
        kept = keep_damaged(self._disk, damage, end)
        leave_undecided(self._disk, self._directory, offset)
        if sound_batch is None and not later:
            log.error("%s: the log ends at offset %d: %s (position %d of %s). What is damaged is in %s",
                name, offset, reason, position, path, kept,
            )  # fmt: skip
            return False
        if sound_batch is not None:
            split_off(self._disk, self._directory, damage, size)
        self._checked_offset = next_offset
        log.error(
            "%s: lost %s: %s (%d bytes at position %d of %s). All that follows was kept%s; the damaged bytes are in %s",
            name, damage.lost, reason, end - position, position, path,
            ", with a gap in the offsets" if next_offset > offset else "", kept,
        )  # fmt: skip
        return True

    def _is_whole(self, segment: Segment, position: int) -> bool:
        """Return whether a damaged end of a log was once written completely, so that no crash has torn it."""
        if self._was_closed:
            return True
        size = segment.size - position
        if not self._is_cache_intact or size < HEADER_SIZE:
            return False
        length = segment.file.read(4, position + LENGTH_OFFSET)
        return LOG_OVERHEAD + int.from_bytes(length, "big") == size

    def _forget_segment(self, segment: Segment) -> None:
        """Remove the files of a segment without records, unless another segment has its name by now."""
        segment.abandon()
        is_replaced = self._checked_offset == segment.base_offset
        for suffix in names.SEGMENT_SUFFIXES:
            if suffix != names.LOG or not is_replaced:
                self._disk.remove(segment.path(suffix))
        self._disk.sync_dir(self._directory)

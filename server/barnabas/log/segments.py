"""The segments of one log: positions of offsets, rolling, and removal of old segments.

The rule: segments are in order and do not overlap, the last one is active, and `all` is replaced, never mutated, so that
others may read it. Producers, epochs and watermarks are not handled here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from barnabas.log.config import LogConfig
from barnabas.log.disk import Disk
from barnabas.log.format import names
from barnabas.log.format.offset_index import OFFSET_DELTA_MAX
from barnabas.log.openfiles import OpenFiles
from barnabas.log.removal.pending import Trash
from barnabas.log.retention import SegmentAge
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots
from barnabas.records.steps import Steps

PLACES_MAX: Final = 8
"""Limit of remembered positions of a log; at the limit all are dropped."""


class Segments:
    """An ordered, never empty collection of segments. All methods raise OSError if the disk fails."""

    __slots__ = (
        "_found",
        "_found_offset",
        "_places",
        "active",
        "all",
        "bases",
        "directory",
        "disk",
        "pool",
        "snapshots",
        "trash",
    )

    def __init__(
        self,
        segments: Sequence[Segment],
        snapshots: ProducerSnapshots,
        *,
        directory: str,
        disk: Disk,
        pool: OpenFiles,
        trash: Trash,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.pool = pool
        self.trash = trash
        self.snapshots = snapshots
        self.all: tuple[Segment, ...] = ()
        self.bases: list[int] = []
        # segment and position by offset: places that readers have reached, and upper offsets that were searched
        self._places: dict[int, tuple[Segment, int]] = {}
        # the last search in an index: readers of one topic, and one that waits for more, repeat it
        self._found_offset = -1
        self._found: tuple[Segment, int] | None = None
        self._set(segments)

    def _set(self, segments: Sequence[Segment]) -> None:
        self.all = tuple(segments)
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._places.clear()
        self._found = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, indexes not counted."""
        return sum(segment.size for segment in self.all)

    def ages(self, log_end_offset: int) -> list[SegmentAge]:
        """Return the facts about segments that retention needs."""
        ends = [*self.bases[1:], log_end_offset]
        return [
            SegmentAge(segment.base_offset, end, segment.size, segment.find_largest_timestamp)
            for segment, end in zip(self.all, ends, strict=True)
        ]

    # --- finding --------------------------------------------------------------------------------------------

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that contains `offset`, or would."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def base_after(self, segment: Segment, log_end_offset: int) -> int:
        """Return the start offset of the segment after this one, or the log end."""
        n = bisect_right(self.bases, segment.base_offset)
        return self.bases[n] if n < len(self.bases) else log_end_offset

    def note_place(self, offset: int, segment: Segment, position: int) -> None:
        """Remember the position of `offset`: a reader has reached it, and will continue there."""
        places = self._places
        if len(places) >= PLACES_MAX:
            places.clear()
        places[offset] = segment, position

    def find(self, offset: int) -> tuple[Segment, int] | None:
        """Return segment and position of the batch that contains `offset`, or of the next one."""
        place = self._places.get(offset)
        if place is not None and place[1] < place[0].size:
            return place
        if offset == self._found_offset and self._found is not None:
            return self._found
        for segment in self.all[self.index_of(offset) :]:
            batch = segment.find(offset)
            if batch is not None:
                self._found_offset, self._found = offset, (segment, batch[0])
                return self._found
        return None

    def end_within(self, segment: Segment, upper_offset: int, log_end_offset: int) -> tuple[int, int]:
        """Return the position in `segment`, and its offset, at which a reader up to `upper_offset` must stop."""
        if upper_offset >= log_end_offset:
            if segment is self.active:
                return segment.size, log_end_offset
        elif segment is self.active or upper_offset < self.base_after(segment, log_end_offset):
            place = self._places.get(upper_offset)
            if place is not None and place[0] is segment:
                return place[1], upper_offset
            batch = segment.find(upper_offset)
            position = segment.size if batch is None else batch[0]
            self.note_place(upper_offset, segment, position)
            return position, upper_offset
        return segment.size, self.base_after(segment, log_end_offset)

    # --- rolling --------------------------------------------------------------------------------------------

    def must_roll(
        self, size: int, timestamp: int, last_offset: int, *, config: LogConfig, now_ms: int
    ) -> bool:
        """Return whether `size` bytes up to `last_offset`, with that largest timestamp, need a new segment."""
        segment = self.active
        segment_size = segment.size
        if last_offset - segment.base_offset > OFFSET_DELTA_MAX:
            return True
        if not segment_size:
            segment.created_ms = now_ms
            return False
        return (
            segment_size > config.segment_bytes - size
            or self._waited_ms(timestamp, now_ms) > config.roll_ms - self._jitter_ms(config)
            or not segment.has_index_room(config.segment_index_bytes)
        )

    def _waited_ms(self, timestamp: int, now_ms: int) -> int:
        segment = self.active
        first_timestamp = segment.first_timestamp
        if first_timestamp is None:
            first_timestamp = segment.load_first_timestamp()
        if first_timestamp >= 0:
            return timestamp - first_timestamp
        if segment.created_ms < 0:
            segment.created_ms = now_ms
        return now_ms - segment.created_ms

    def _jitter_ms(self, config: LogConfig) -> int:
        if not config.segment_jitter_ms:
            return 0
        # not random, so that it needs no state: partitions only have to differ
        seed = crc32(f"{self.directory}/{self.active.base_offset}".encode())
        return seed % min(config.segment_jitter_ms, config.roll_ms)

    def roll(self, base_offset: int, *, config: LogConfig) -> Segment:
        """Create a new active segment; the old one is sealed, or dropped if it is empty."""
        old = self.active
        old.seal()
        new = Segment.create(self.disk, self.pool, self.directory, base_offset, config)
        self._set((*(self.all if old.size else self.all[:-1]), new))
        if not old.size:
            self._discard([old], due_ms=0)
        return new

    # --- removal --------------------------------------------------------------------------------------------

    def drop_oldest(self, count: int, *, due_ms: int) -> None:
        """Drop the first segments; their files are removed from `due_ms` on."""
        dropped = self.all[:count]
        self._set(self.all[count:])
        self._discard(dropped, due_ms=due_ms)

    def replace(self, old: Sequence[Segment], new: Segment, *, due_ms: int) -> Steps[None]:
        """Replace the neighbouring segments `old` by a compacted one, with files marked `.cleaned`, in steps.

        The log has the new segment from the first step on, and may be written, truncated and restarted between the others;
        after `abandon` no step may follow. Recovery completes the swap after a crash or an error in between.
        """
        first = self.all.index(old[0])
        assert self.all[first : first + len(old)] == tuple(old)
        assert new.base_offset == old[0].base_offset
        new.mark_files(names.SWAP)
        self._set((*self.all[:first], new, *self.all[first + len(old) :]))
        self._discard(old[:1], due_ms=due_ms)
        for segment in old[1:]:
            yield None
            if segment.base_offset in self.bases:
                segment.abandon()  # a new segment has taken its files
            else:
                self._discard([segment], due_ms=due_ms)
        yield None
        if new in self.all:
            new.mark_files("")

    def truncate(self, offset: int, *, due_ms: int) -> None:
        """Remove the records from `offset` on; the first segment stays, even if empty."""
        count = max(1, bisect_right(self.bases, offset - 1))
        dropped = self.all[count:]
        self.all[count - 1].truncate(offset)
        self._set(self.all[:count])
        self._discard(dropped, due_ms=due_ms)

    def restart_at(self, offset: int, *, config: LogConfig, keeps: bool = False) -> None:
        """Remove all segments and snapshots immediately, and begin with an empty segment at `offset`.

        With `keeps` the records stay under names that belong to no log (`names.TRUNCATED`).
        """
        kept = f"{names.TRUNCATED}{self.disk.unique_id().hex()}" if keeps else ""
        self.snapshots.remove(self.snapshots.offsets)
        for segment in self.all:
            path = segment.path(names.LOG)
            if keeps and segment.size:
                self.disk.rename(path, path + kept)
            segment.abandon()
            for suffix in names.SEGMENT_SUFFIXES:
                self.disk.remove(segment.path(suffix))
        new = Segment.create(self.disk, self.pool, self.directory, offset, config)
        self._set([new])

    def _discard(self, segments: Sequence[Segment], *, due_ms: int) -> None:
        """Rename the files of removed segments, and schedule their removal at `due_ms`."""
        for segment in segments:
            segment.abandon()
            segment.mark_files(names.DELETED, may_be_gone=True)
            paths = [segment.path(suffix) for suffix in names.SEGMENT_SUFFIXES]
            if segment.base_offset not in self.bases:
                snapshot_path = self.snapshots.mark_deleted(segment.base_offset)
                if snapshot_path is not None:
                    paths.append(snapshot_path)
            self.trash.add(due_ms, self.directory.rpartition("/")[0], paths)

    def abandon(self) -> None:
        """Close all files without a write, for good: their paths are not used again."""
        for segment in self.all:
            segment.abandon()
            segment.is_closed = True

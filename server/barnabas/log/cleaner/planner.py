"""Plan of a cleaning: which log is next, how far, and which of its segments become one.

The rule: numbers in, decisions out. Never cleaned are the active segment, what a transaction may still abort,
what is younger than min.compaction.lag.ms, and what was not flushed yet: a record must not go for the sake of a
later one that a power cut could still take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.log.format.offset_index import OFFSET_DELTA_MAX


class SegmentFacts(NamedTuple):
    """Facts about a segment that a plan needs; sizes in bytes, timestamps in ms."""

    base_offset: int
    size: int
    offset_index_size: int = 0
    time_index_size: int = 0
    largest_timestamp: int = -1
    first_timestamp: int = -1


class CleanableRange(NamedTuple):
    """Cleanable part of a log: cleaning begins its map at `dirty_offset`, and ends at `end_offset`.

    `ratio` is the share of cleanable bytes in all that would be looked at. `is_overdue` if
    max.compaction.lag.ms says so.
    """

    dirty_offset: int
    end_offset: int
    cleanable_bytes: int
    ratio: float
    is_overdue: bool

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        """Say whether it is worth while, or must be."""
        return self.cleanable_bytes > 0 and (self.is_overdue or self.ratio > min_cleanable_dirty_ratio)


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Return where the dirty part begins: at the checkpoint, unless that lies outside of the log."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def cleanable_range(
    segments: Sequence[SegmentFacts],
    *,
    dirty_offset: int,
    last_stable_offset: int,
    recovery_point: int,
    now_ms: int,
    min_lag_ms: int,
    max_lag_ms: int,
) -> CleanableRange:
    """Say how much of a log could be cleaned; `segments` are all of them, the active one last."""
    active = segments[-1]
    closed = segments[:-1]
    next_bases = [segment.base_offset for segment in segments[1:]]
    dirty = [segment for segment, end in zip(closed, next_bases, strict=True) if end > dirty_offset]
    limit = min(last_stable_offset, recovery_point, active.base_offset)
    if min_lag_ms > 0:
        too_young = (s.base_offset for s in dirty if s.largest_timestamp > now_ms - min_lag_ms)
        limit = min(limit, next(too_young, limit))
    limit = max(limit, dirty_offset)
    # Whole segments only: up to the one that holds the limit.
    end_offset = next(
        (segment.base_offset for segment, end in zip(closed, next_bases, strict=True) if end > limit),
        active.base_offset,
    )
    clean_bytes = sum(s.size for s, end in zip(closed, next_bases, strict=True) if end <= dirty_offset)
    cleanable = [s for s in dirty if s.base_offset < end_offset]
    cleanable_bytes = sum(s.size for s in cleanable)
    total = clean_bytes + cleanable_bytes
    oldest = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=None)
    is_overdue = oldest is not None and oldest < now_ms - max(max_lag_ms, 0)
    ratio = cleanable_bytes / total if total else 0.0
    return CleanableRange(dirty_offset, end_offset, cleanable_bytes, ratio, is_overdue)


def group_segments(
    segments: Sequence[SegmentFacts], *, segment_bytes: int, index_bytes: int, end_offset: int
) -> list[list[SegmentFacts]]:
    """Put neighbours together that fit one segment even if all stays; `end_offset` is after the last."""
    groups: list[list[SegmentFacts]] = []
    size = offset_index_size = time_index_size = 0
    for n, segment in enumerate(segments):
        last_offset = (segments[n + 1].base_offset if n + 1 < len(segments) else end_offset) - 1
        fits = (
            bool(groups)
            and size + segment.size <= segment_bytes
            and offset_index_size + segment.offset_index_size <= index_bytes
            and time_index_size + segment.time_index_size <= index_bytes
            and (not segment.size or last_offset - groups[-1][0].base_offset <= OFFSET_DELTA_MAX)
        )
        if not fits:
            groups.append([])
            size = offset_index_size = time_index_size = 0
        groups[-1].append(segment)
        size += segment.size
        offset_index_size += segment.offset_index_size
        time_index_size += segment.time_index_size
    return groups


def dirtiest(ranges: Iterable[tuple[int, CleanableRange]]) -> int | None:
    """Return the number that goes with the dirtiest range, None if there are none."""
    best = max(ranges, key=lambda entry: entry[1].ratio, default=None)
    return None if best is None else best[0]

"""Plan of a cleaning: the next log, the range to clean, and the groups of segments that are merged.

The rule: numbers in, decisions out. The active segment, records of open transactions, records younger than
min.compaction.lag.ms and unflushed records are not cleaned: a record must not be removed in favour of a later one that a
power cut could still lose.
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
    """Cleanable part of a log, from `dirty_offset` to `end_offset`.

    `ratio` is the share of cleanable bytes in all bytes up to `end_offset`. `is_overdue` by max.compaction.lag.ms.
    """

    dirty_offset: int
    end_offset: int
    cleanable_bytes: int
    ratio: float
    is_overdue: bool

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        """Return whether a cleaning is worth while, or overdue."""
        return self.cleanable_bytes > 0 and (self.is_overdue or self.ratio > min_cleanable_dirty_ratio)


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Return the start of the dirty part: the checkpoint, unless that is outside the log."""
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
    """Return the cleanable range of a log; `segments` are all of them, the active one last."""
    active = segments[-1]
    closed = segments[:-1]
    next_bases = [segment.base_offset for segment in segments[1:]]
    dirty = [segment for segment, end in zip(closed, next_bases, strict=True) if end > dirty_offset]
    limit = min(last_stable_offset, recovery_point, active.base_offset)
    if min_lag_ms > 0:
        too_young = (s.base_offset for s in dirty if s.largest_timestamp > now_ms - min_lag_ms)
        limit = min(limit, next(too_young, limit))
    limit = max(limit, dirty_offset)
    # Only whole segments: the one that contains the limit is excluded.
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
    """Group adjacent segments that fit one segment even if all records remain; `end_offset` is after the last."""
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
    """Return the number of the dirtiest range, None without any range."""
    best = max(ranges, key=lambda entry: entry[1].ratio, default=None)
    return None if best is None else best[0]

"""Choice of the oldest segments that a log may delete.

The rule: from the oldest on, without gaps, never one that reaches beyond the high watermark, and the log end never
moves. This module only returns a number of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.log.config import LogConfig


class SegmentAge(NamedTuple):
    """Facts about a segment for retention; `end_offset` is the start of the next segment, or the log end.

    The largest timestamp is read only for segments that may be too old: it needs the time index.
    """

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp_ms: Callable[[], int]


class Retention(NamedTuple):
    """Number of the oldest segments to delete, and the reason."""

    segment_count: int
    reason: str


def plan_retention(
    segments: Sequence[SegmentAge],
    *,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    remote_end_offset: int | None = None,
) -> Retention:
    """Count the oldest segments to delete: below the log start, then beyond the size limit, then those too old.

    The count may include the active segment if it is not empty: then a new one must be rolled first. With a
    `remote_end_offset`, the end of the log in tiered storage, the limits are those of local records, and a segment that
    reaches beyond it stays unless it is below the log start (KIP-405).
    """
    deletable = 0
    for segment in segments:
        is_last_and_empty = segment.size == 0 and deletable == len(segments) - 1
        if segment.end_offset > high_watermark or is_last_and_empty:
            break
        deletable += 1
    candidates = segments[:deletable]
    count = _count_before_start(candidates, len(segments), log_start_offset)
    reasons = ["log start offset"] if count else []
    local = "" if remote_end_offset is None else "local."
    bytes_max, ms_max = config.retention_bytes, config.retention_ms
    if remote_end_offset is not None:
        bytes_max, ms_max = config.local_bytes_max, config.local_ms_max
        candidates = [segment for segment in candidates if segment.end_offset <= remote_end_offset]
    if config.is_deleted:
        over_size = _count_over_size(candidates[count:], segments[count:], bytes_max)
        count += over_size
        too_old = _count_too_old(candidates[count:], ms_max, now_ms)
        count += too_old
        reasons += [f"{local}retention.bytes"] * bool(over_size) + [f"{local}retention.ms"] * bool(too_old)
    return Retention(count, ", ".join(reasons))


def _count_before_start(candidates: Sequence[SegmentAge], all_count: int, log_start_offset: int) -> int:
    count = 0
    for segment in candidates[: all_count - 1]:
        if segment.end_offset > log_start_offset:
            break
        count += 1
    return count


def _count_over_size(
    candidates: Sequence[SegmentAge], segments: Sequence[SegmentAge], retention_bytes: int
) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in candidates:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _count_too_old(candidates: Sequence[SegmentAge], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in candidates:
        if now_ms - segment.largest_timestamp_ms() <= retention_ms:
            break
        count += 1
    return count

"""From a user's selection to ranges of offsets, and from those to one range per task.

The rule: planning only queries offsets; it reads no records. Selected records that were deleted are an error with the
missing offsets, never silently a smaller range.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from barnabas_pipeline.errors import DataLossError, MissingOffsets, UsageError
from barnabas_pipeline.log.model import Bounds, Log, OffsetRange

EARLIEST, LATEST = "earliest", "latest"
SPLIT_BYTES = 64 << 20  # a task costs Spark some 50 ms, the time to read 10 MiB
SPLIT_BYTES_MIN = 8 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of a topic. An end beyond the log is cut; a start that the log no longer has is an error.

    `starting` and `ending` are `earliest`, `latest`, or a JSON object of partition to offset (-2 earliest, -1 latest);
    timestamps (ms) override them and mean the first offset with at least that timestamp.
    """

    starting: str = EARLIEST
    ending: str = LATEST
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    fail_on_data_loss: bool = True


def resolve(log: Log, selection: Selection, bounds: Mapping[int, Bounds] | None = None) -> list[OffsetRange]:
    """Turn a selection into one range per partition, including empty ranges. Raises UsageError, DataLossError."""
    bounds = log.bounds() if bounds is None else bounds
    starts = _offsets(selection.starting, bounds, is_end=False)
    ends = _offsets(selection.ending, bounds, is_end=True)
    ranges, missing = [], []
    for partition, bound in sorted(bounds.items()):
        start, end = starts[partition], min(ends[partition], bound.end)
        if selection.starting_timestamp_ms is not None:
            offset = log.offset_for_time(partition, selection.starting_timestamp_ms)
            start = bound.end if offset is None else offset
        if selection.ending_timestamp_ms is not None:
            offset = log.offset_for_time(partition, selection.ending_timestamp_ms)
            end = bound.end if offset is None else min(offset, bound.end)
        if start < bound.start:
            missing.append(MissingOffsets(partition, start, min(bound.start, end)))
            start = bound.start
        if start > bound.end:
            missing.append(MissingOffsets(partition, bound.end, start))
            start = bound.end
        ranges.append(OffsetRange(partition, start, max(start, end)))
    if missing and selection.fail_on_data_loss:
        raise DataLossError("offsets that were asked for are not in the log", missing)
    return ranges


def _offsets(text: str, bounds: Mapping[int, Bounds], *, is_end: bool) -> dict[int, int]:
    if text == EARLIEST:
        return {partition: bound.start for partition, bound in bounds.items()}
    if text == LATEST:
        return {partition: bound.end for partition, bound in bounds.items()}
    try:
        asked = {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{text!r} is neither earliest, latest, nor a JSON object of partitions to offsets"
        ) from None
    unknown = sorted(set(asked) - set(bounds))
    if unknown:
        raise UsageError(f"there is no partition {unknown[0]}")
    offsets = {}
    for partition, bound in bounds.items():
        offset = asked.get(partition, -1 if is_end else -2)
        offsets[partition] = {-1: bound.end, -2: bound.start}.get(offset, offset)
    return offsets


def split(
    log: Log, ranges: list[OffsetRange], *, bytes_max: int | None = None, tasks_min: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into tasks of about `bytes_max` at batch boundaries, without empty ranges.

    Without `bytes_max`, tasks are large, but small enough for at least `tasks_min` of them (by default the number of
    cores), so that no core is idle.
    """
    if bytes_max is not None:
        return _split(log, ranges, bytes_max)
    task_count = (os.cpu_count() or 1) if tasks_min is None else tasks_min
    bytes_max = SPLIT_BYTES
    while len(tasks := _split(log, ranges, bytes_max)) < task_count and bytes_max > SPLIT_BYTES_MIN:
        bytes_max //= 2
    return tasks


def _split(log: Log, ranges: list[OffsetRange], bytes_max: int) -> list[OffsetRange]:
    tasks = []
    for offset_range in ranges:
        if not len(offset_range):
            continue
        edges = [offset_range.start, *log.cut_points(offset_range, bytes_max), offset_range.end]
        tasks += [OffsetRange(offset_range.partition, start, end) for start, end in pairwise(edges)]
    return tasks


def shorten(ranges: list[OffsetRange], offsets_max: int) -> list[OffsetRange]:
    """Shorten ranges to `offsets_max` offsets in total, each in proportion to its length, and none to 0.

    So a partition with few records does not wait for the end of a large backlog: each range keeps an offset even if the
    total exceeds `offsets_max` then.
    """
    total = sum(len(offset_range) for offset_range in ranges)
    if total <= offsets_max:
        return ranges
    shares = [
        max(offsets_max * len(offset_range) // total, min(len(offset_range), 1)) for offset_range in ranges
    ]
    remaining = offsets_max - sum(shares)
    for n in sorted(range(len(ranges)), key=lambda n: -len(ranges[n])):
        more = max(min(remaining, len(ranges[n]) - shares[n]), min(shares[n], 1) - shares[n])
        shares[n] += more
        remaining -= more
    return [
        replace(offset_range, end=offset_range.start + share)
        for offset_range, share in zip(ranges, shares, strict=True)
    ]

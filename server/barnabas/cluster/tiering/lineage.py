"""Leader epochs of a log and of remote segments, and the parts of a segment that belong to the log. Pure.

The rule: a remote segment is usable as far as its leader epochs are those of the log, with the same first offsets; after an
unclean election the segment may belong to another history, partly or wholly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.tiered.lineage import end_in_epoch
from barnabas.tiered.segment import SegmentState

if TYPE_CHECKING:
    from barnabas.log.epochs import LeaderEpochs
    from barnabas.log.partition_log import PartitionLog
    from barnabas.tiered.lineage import PartitionSegments
    from barnabas.tiered.segment import RemoteSegment

Epochs = Sequence[tuple[int, int]]
"""(epoch, its first offset), in order."""


def entries_between(epochs: Epochs, start: int, end: int) -> list[tuple[int, int]]:
    """Return the epochs with offsets in [start, end); the first epoch begins at `start`."""
    entries = []
    for number, (epoch, first) in enumerate(epochs):
        is_over = number + 1 < len(epochs) and epochs[number + 1][1] <= start
        if first < end and not is_over:
            entries.append((epoch, max(first, start)))
    return entries


def is_in_lineage(segment: RemoteSegment, epochs: Epochs, log_end_offset: int) -> bool:
    """Return whether all of a segment is part of a log with these epochs.

    Epochs that ended before the log start, and were removed from the log's epochs, are not compared.
    """
    if not epochs or segment.end_offset >= log_end_offset:
        return False
    starts = dict(epochs)
    first, last = epochs[0][0], segment.leader_epochs[-1][0]
    if last < first:
        return False
    for number, (epoch, offset) in enumerate(segment.leader_epochs):
        if epoch <= first:
            continue
        start = starts.get(epoch)
        if start is None or (offset < start if not number else offset != start):
            return False
    later = bisect_right(epochs, last, key=lambda entry: entry[0])
    return later == len(epochs) or segment.end_offset < epochs[later][1]


def end_of_use(segment: RemoteSegment, offset: int, epochs: LeaderEpochs, log_end_offset: int) -> int:
    """Return the end of the segment's records, from `offset` on, that are those of the log."""
    entries = epochs.entries
    of_segment = dict(segment.leader_epochs)
    number = max(bisect_right(entries, offset, key=lambda entry: entry[1]) - 1, 0)
    end = offset
    for epoch, start in entries[number:]:
        if epoch not in of_segment or (end > offset and of_segment[epoch] != start):
            break
        end_in_segment = end_in_epoch(segment, epoch) + 1
        end_in_log = epochs.end_offset_for(epoch, log_end_offset)[1]
        end = min(end_in_segment, end_in_log)
        if end_in_log != end_in_segment:
            break
    return max(end, offset)


def highest_offset(segments: PartitionSegments, log: PartitionLog) -> int:
    """Return the last remote offset of a log, by its newest epoch with remote records; -1 for none.

    Deleted remote records count if they are before the log start.
    """
    for epoch, _ in reversed(log.epochs.entries):
        once_stored = segments.highest_offset(epoch)
        if once_stored is None:
            continue
        stored = [
            end_in_epoch(segment, epoch)
            for segment in segments.segments(epoch)
            if segment.state is SegmentState.COPY_FINISHED
        ]
        highest = max([*stored, min(once_stored, log.log_start_offset - 1)])
        return min(highest, log.epochs.end_offset_for(epoch, log.log_end_offset)[1] - 1)
    return -1


def first_offset(segments: PartitionSegments, epochs: LeaderEpochs) -> int | None:
    """Return the start offset of the first copied segment of a log, None without copied segments."""
    for epoch, _ in epochs.entries:
        for segment in segments.segments(epoch):
            if segment.state is SegmentState.COPY_FINISHED:
                return segment.start_offset
    return None


def segment_at(segments: PartitionSegments, epochs: LeaderEpochs, offset: int) -> RemoteSegment | None:
    """Return the remote segment that holds an offset of a log, None if no segment does."""
    return segments.segment_for(epochs.epoch_at(offset), offset)


def is_read_from(
    segment: RemoteSegment, segments: PartitionSegments, epochs: LeaderEpochs, offset: int
) -> bool:
    """Return whether a read of the log from an offset on includes records of a remote segment."""
    return segment.end_offset >= offset and any(
        segment_at(segments, epochs, max(first, segment.start_offset, offset)) is segment
        for _, first in segment.leader_epochs
    )

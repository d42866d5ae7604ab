"""Finding records by timestamp, by the time indexes and then inside of the batches.

The rule: only the batch that has the answer is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.log.segment import Segment
from barnabas.records.batch import NO_TIMESTAMP, BatchHeader, iter_records
from barnabas.records.record import Record


class TimestampOffset(NamedTuple):
    """A record: its timestamp in ms, its offset, and the leader epoch of its batch (-1 if unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_timestamp(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """Find the first record from `start_offset` on whose timestamp is at least `timestamp_ms`.

    Raises OSError, RecordsError.
    """
    for segment in segments:
        if not segment.size or segment.load_max_timestamp() < timestamp_ms:
            continue
        known = max(segment.time_index.lookup(timestamp_ms), start_offset)
        for position, header in segment.headers(segment.offset_index.lookup(known)):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def find_max_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    """Find the first record with the largest timestamp of all. Raises OSError, RecordsError."""
    best = max(segments, key=lambda segment: segment.load_max_timestamp())
    timestamp = best.load_max_timestamp()
    if timestamp == NO_TIMESTAMP:
        return None
    for position, header in best.headers(best.offset_index.lookup(best.max_timestamp_offset)):
        if header.max_timestamp == timestamp:
            for record in _records(best, position, header):
                if record.timestamp == timestamp:
                    return TimestampOffset(timestamp, record.offset, header.leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterable[Record]:
    data = segment.file.read(header.size, position)
    if header.magic == 2:
        return iter_records(data)
    from barnabas.records import legacy  # logs that old releases wrote

    return legacy.iter_records(data)

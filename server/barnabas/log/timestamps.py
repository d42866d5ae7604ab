"""Searches records by timestamp, in the time indexes and then in the batches.

The rule: only the batch with the result is decoded. A search runs in steps, as headers may be many; segments may be
removed between two steps, so each is looked up at its turn, and its file is kept open while it is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.log.scan import ReadableFile, iter_headers
from barnabas.log.segment import Segment
from barnabas.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    read_body,
    read_body_steps,
    record_size_steps,
)
from barnabas.records.compression import SMALL_BYTES, decompress_small
from barnabas.records.cursor import RecordCursor
from barnabas.records.steps import RECORDS_PER_STEP, Steps, Work

HEADERS_PER_STEP = 250
SCAN_BYTES = 128 << 10
HINT_BYTES_MIN = 64 << 10
"""A scan over more bytes than this leaves a hint for the next one."""

Live = Callable[[], Sequence[Segment]]
"""Returns the present segments of the log."""


class TimestampOffset(NamedTuple):
    """A record: its timestamp in ms, its offset, and the leader epoch of its batch (-1 if unknown)."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_timestamp_steps(
    live: Live, timestamp_ms: int, start_offset: int, record_bytes_max: int
) -> Steps[TimestampOffset | None]:
    """Find the first record from `start_offset` on with a timestamp of at least `timestamp_ms`.

    Raises OSError, RecordsError, the latter also if a decompressed record exceeds `record_bytes_max`.
    """
    for segment in _iter_live(live):
        if not segment.size or segment.load_max_timestamp() < timestamp_ms:
            yield None
            continue
        lower_offset = max(segment.offset_before(timestamp_ms), start_offset)
        start = segment.scan_start(timestamp_ms, segment.checked_start(lower_offset))
        file, end = segment.file, segment.size
        for count, (position, header) in enumerate(
            iter_headers(file, start, end, chunk_bytes=SCAN_BYTES), start=1
        ):
            if not count % HEADERS_PER_STEP:
                yield None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            if position - start > HINT_BYTES_MIN:
                segment.time_hint = (timestamp_ms, position)
            record = yield from record_steps(
                file, position, header, timestamp_ms, start_offset, record_bytes_max
            )
            if record is not None:
                return record
    return None


def find_max_timestamp_steps(live: Live, record_bytes_max: int) -> Steps[TimestampOffset | None]:
    """Find the first record with the largest timestamp, which is -1 if no record has a timestamp.

    Raises OSError, RecordsError, the latter also if a decompressed record exceeds `record_bytes_max`.
    """
    best: Segment | None = None
    while best is None or not _is_live(best, live()):
        best = None
        for segment in _iter_live(live):
            if best is None or segment.load_max_timestamp() > best.load_max_timestamp():
                best = segment
            yield None
        if best is None:
            return None
    timestamp = best.load_max_timestamp()
    file, end, start = best.file, best.size, best.checked_start(best.max_timestamp_offset)
    for count, (position, header) in enumerate(
        iter_headers(file, start, end, chunk_bytes=SCAN_BYTES), start=1
    ):
        if not count % HEADERS_PER_STEP:
            yield None
        if header.max_timestamp == timestamp:
            record = yield from record_steps(file, position, header, timestamp, 0, record_bytes_max)
            if record is not None:
                return record
    return None


def segment_times_steps(live: Live) -> Steps[list[tuple[int, int]]]:
    """Return base offset and largest timestamp of each segment that is not empty. Raises OSError."""
    times = []
    for segment in _iter_live(live):
        if segment.size:
            times.append((segment.base_offset, segment.largest_timestamp))
        yield None
    return times


def _iter_live(live: Live) -> Iterator[Segment]:
    """Iterate over the segments of a log, skipping segments that were removed meanwhile."""
    base_offset = -1
    while True:
        segments = live()
        index = bisect_right(segments, base_offset, key=lambda segment: segment.base_offset)
        if index == len(segments):
            return
        base_offset = segments[index].base_offset
        yield segments[index]


def _is_live(segment: Segment, segments: Sequence[Segment]) -> bool:
    index = bisect_right(segments, segment.base_offset, key=lambda other: other.base_offset) - 1
    return index >= 0 and segments[index] is segment


def record_steps(
    file: ReadableFile,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: int,
    record_bytes_max: int,
) -> Steps[TimestampOffset | None]:
    """Find the first record of a batch from `start_offset` on with at least that timestamp."""
    if header.size > SMALL_BYTES:
        data: bytes = yield Work(partial(file.read, header.size, position))
    else:
        data = file.read(header.size, position)
    if header.magic < 2:
        return (yield from _old_record_steps(data, header, timestamp_ms, start_offset, record_bytes_max))
    body = yield from _body_steps(data, header)
    yield from record_size_steps(body, header, record_bytes_max)
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    cursor = RecordCursor(body, header.records_count)
    while cursor.advance():
        timestamp = header.max_timestamp if append_time else header.base_timestamp + cursor.timestamp_delta
        offset = header.base_offset + cursor.offset_delta
        if timestamp >= timestamp_ms and offset >= start_offset:
            return TimestampOffset(timestamp, offset, header.leader_epoch)
        if not (cursor.index + 1) % RECORDS_PER_STEP:
            yield None
    return None


def _body_steps(data: bytes, header: BatchHeader) -> Steps[bytes]:
    if not header.codec:
        return read_body(data, 0, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    if header.records_count <= RECORDS_PER_STEP:
        body = decompress_small(header.codec, memoryview(data)[HEADER_SIZE : header.size], magic=2)
        if body is not None:
            return body
    return (yield from read_body_steps(data, 0, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))


def _old_record_steps(
    data: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int, record_bytes_max: int
) -> Steps[TimestampOffset | None]:
    from barnabas.records import legacy  # logs of old releases

    records: list[TimestampOffset] = []

    def visit(message: legacy.Message) -> bool:
        if message.timestamp >= timestamp_ms and message.offset >= start_offset:
            records.append(TimestampOffset(message.timestamp, message.offset, header.leader_epoch))
        return bool(records)

    yield from legacy.visit_steps(
        data,
        0,
        visit,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        record_bytes_max=record_bytes_max,
    )
    return records[0] if records else None

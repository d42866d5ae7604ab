"""One range of one partition, read to the last offset: columns, corrupt spans, and a count of everything else.

The rule: when the iteration has ended, `counts.span` is the length of the range. Each offset is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import DECOMPRESSED_BYTES_MAX, BatchHeader, read_body
from barnabas.records.errors import (
    CompressedStreamError,
    CorruptRecordsError,
    DecompressedTooLargeError,
    RecordsError,
    UnsupportedCompressionError,
)
from barnabas_pipeline.log import digest
from barnabas_pipeline.log.columns import (
    ALL_FIELDS,
    Body,
    Columns,
    NotSureError,
    decode_bodies,
    from_records,
    select,
)
from barnabas_pipeline.log.model import CorruptSpan, Log, OffsetRange, RangeCounts, RawBatch

BLOCK_BYTES = 2 << 20
BLOCK_ROWS = 20_000


class RangeReader:
    """An iterator over the records of a range, once; `counts` is complete afterwards. Fields not requested may be null."""

    def __init__(
        self,
        log: Log,
        offset_range: OffsetRange,
        *,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        fields: frozenset[str] = ALL_FIELDS,
    ) -> None:
        self._fields = fields
        self.counts = RangeCounts()
        self._log = log
        self._range = offset_range
        self._next = offset_range.start
        self._decompressed_bytes_max = decompressed_bytes_max
        self._bodies: list[Body] = []
        self._body_bytes = self._body_rows = 0
        self._low = offset_range.start  # the offset at which the waiting bodies begin

    def __iter__(self) -> Iterator[Columns | CorruptSpan]:
        """Yield in the order of offsets. Raises DataLossError if the start of the range was deleted."""
        for item in self._log.read(self._range):
            if isinstance(item, CorruptSpan):
                yield from self._flush()
                yield from self._report(item)
                continue
            self.counts.bytes_read += len(item.data)
            self.counts.batches += 1
            yield from self._take(item)
            if self._body_bytes >= BLOCK_BYTES or self._body_rows >= BLOCK_ROWS:
                yield from self._flush()
        yield from self._flush()
        self.counts.compacted += self._range.end - self._next
        self._next = self._range.end
        assert self.counts.span == len(self._range), (self.counts, self._range)

    # --- batches --------------------------------------------------------------------------------------------

    def _take(self, raw: RawBatch) -> Iterator[Columns | CorruptSpan]:
        header = raw.header
        if header.magic < 2:
            yield from self._flush()
            yield from self._take_legacy(raw, header)
            return
        self._note(raw, header)
        low, high = self._enter(header)
        if header.is_control:
            control = min(header.records_count, high - low)
            self.counts.control += control
            self.counts.compacted += high - low - control
            return
        if raw.aborted and low == header.base_offset and high == header.next_offset:
            self.counts.aborted += header.records_count
            self.counts.compacted += high - low - header.records_count
            return
        try:
            body = read_body(raw.data, 0, header, decompressed_bytes_max=self._decompressed_bytes_max)
        except RecordsError as error:
            yield from self._flush()
            yield from self._report(_span(low, high, error, raw.data))
            return
        if raw.aborted:
            yield from self._flush()
            yield from self._take_slowly(Body(header, body), raw, low, high)
            return
        if not self._bodies:
            self._low = low
        self._bodies.append(Body(header, body))
        self._body_bytes += len(body)
        self._body_rows += header.records_count

    def _note(self, raw: RawBatch, header: BatchHeader) -> None:
        """Add a batch with a right checksum to the digest, if its last offset is in the range."""
        if self._range.start <= header.last_offset < self._range.end:
            self.counts.digest = digest.add(self.counts.digest, digest.of_batch(raw.data, header))

    def _enter(self, header: BatchHeader) -> tuple[int, int]:
        """Continue with a batch: offsets before it were compacted away. Returns the part of the range within the batch."""
        if header.base_offset > self._next:
            self.counts.compacted += header.base_offset - self._next
            self._next = header.base_offset
        low = self._next
        self._next = high = min(header.next_offset, self._range.end)
        return low, high

    def _take_legacy(self, raw: RawBatch, header: BatchHeader) -> Iterator[Columns | CorruptSpan]:
        try:
            records = list(iter_any_records(raw.data, decompressed_bytes_max=self._decompressed_bytes_max))
        except RecordsError as error:
            if header.next_offset > self._next:
                low = self._next if header.codec else max(self._next, header.base_offset)
                self.counts.compacted += low - self._next
                yield from self._report(_span(low, min(header.next_offset, self._range.end), error, raw.data))
            return
        if header.next_offset > self._next:
            self._note(raw, header)
        records = [record for record in records if self._next <= record.offset < self._range.end]
        if records:
            self.counts.compacted += records[-1].offset + 1 - self._next - len(records)
            self.counts.records += len(records)
            self._next = records[-1].offset + 1
            yield from_records(records, header)

    def _flush(self) -> Iterator[Columns | CorruptSpan]:
        """Decode the waiting bodies: together or, after a NotSureError, one by one."""
        bodies, self._bodies, self._body_bytes, self._body_rows = self._bodies, [], 0, 0
        if not bodies:
            return
        low, high = self._low, min(bodies[-1].header.next_offset, self._range.end)
        gaps = sum(
            max(0, after.header.base_offset - before.header.next_offset) for before, after in pairwise(bodies)
        )
        try:
            columns = decode_bodies(bodies, self._fields)
            if (columns.offset[1:] <= columns.offset[:-1]).any():
                raise NotSureError("offsets do not rise")
            if len(columns) and columns.offset[-1] >= bodies[-1].header.next_offset:
                raise NotSureError("an offset is beyond its batch")
        except NotSureError:
            for body in bodies:
                start = max(low, body.header.base_offset)
                yield from self._take_slowly(body, None, start, min(body.header.next_offset, high))
            return
        columns = select(columns, (columns.offset >= low) & (columns.offset < high))
        self.counts.records += len(columns)
        self.counts.compacted += high - low - gaps - len(columns)
        if len(columns):
            yield columns

    def _take_slowly(
        self, body: Body, aborted: RawBatch | None, low: int, high: int
    ) -> Iterator[Columns | CorruptSpan]:
        from barnabas.records.record import iter_body

        header = body.header
        append_timestamp = header.max_timestamp if header.attributes & 8 else None
        try:
            records = list(
                iter_body(
                    body.data,
                    header.records_count,
                    header.base_offset,
                    header.base_timestamp,
                    append_timestamp,
                )
            )
            offsets = [record.offset for record in records]
            if any(b <= a for a, b in pairwise(offsets)) or (
                offsets and not header.base_offset <= offsets[0] <= offsets[-1] < header.next_offset
            ):
                raise CorruptRecordsError("the offsets of its records do not rise, or leave the batch")
        except RecordsError as error:
            yield from self._report(_span(low, high, error, body.data, malformed=True))
            return
        records = [record for record in records if low <= record.offset < high]
        self.counts.compacted += high - low - len(records)
        if aborted is not None:
            self.counts.aborted += len(records)
        elif records:
            self.counts.records += len(records)
            yield from_records(records, header)

    # --- damage ---------------------------------------------------------------------------------------------

    def _report(self, span: CorruptSpan) -> Iterator[CorruptSpan]:
        start, end = max(span.start, self._range.start), min(span.end, self._range.end)
        if start > self._next:
            self.counts.compacted += start - self._next
        self._next = max(self._next, end)
        if end > start:
            self.counts.corrupt += end - start
            yield span._replace(start=start, end=end)


def _span(
    start: int, end: int, error: RecordsError, data: bytes | memoryview, *, malformed: bool = False
) -> CorruptSpan:
    if malformed:
        reason = "malformed"
    elif isinstance(error, DecompressedTooLargeError):
        reason = "too_large"
    elif isinstance(error, (CompressedStreamError, UnsupportedCompressionError)):
        reason = "decompress"
    elif isinstance(error, CorruptRecordsError):
        reason = "crc"
    else:
        reason = "malformed"
    return CorruptSpan(start, end, reason, error.message, bytes(data))

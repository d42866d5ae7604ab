"""Batches of a range in the order of their offsets, each with a correct checksum, and the damaged spans between them.

The rule: no checksum covers a base offset, so it is trusted only if it fits the neighbours. A batch directly after its
predecessor has its true offset. A batch after a gap is held until the next batch is beyond it, too; if that one fits the
gap, the held batch's offset is wrong, and too large. An offset that goes back is wrong, and too small. The true place of
such a batch is unknown, so the offsets from the last sound batch to the next are damaged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, check_crc
from barnabas.records.errors import RecordsError
from barnabas_pipeline.log.model import CorruptSpan, OffsetRange, RawBatch

DAMAGED_KNOWN = 16


class StoredBatch(NamedTuple):
    """A batch of the log; `hides`, called once in the order of offsets, returns whether its records were aborted."""

    data: bytes | memoryview
    header: BatchHeader
    hides: Callable[[bytes | memoryview, BatchHeader], bool]


class _Damage(NamedTuple):
    """A damaged batch, with its stated offset if that may be true."""

    base_offset: int
    reason: str
    detail: str
    data: bytes


class Order:
    """Filter of the stored batches of a range, from the batch before it on, which yields sound batches in order."""

    def __init__(self, offset_range: OffsetRange) -> None:
        self.offset_range = offset_range
        self.next_offset = offset_range.start
        """Offset after the last sound batch."""
        self.after = self.beyond = offset_range.start
        """Least and largest known offset at which the next batch may begin."""
        self._at: int | None = None
        """Offset after the last sound batch, in the range or before it; None before the first batch."""
        self._held: StoredBatch | None = None
        self._last: BatchHeader | None = None
        self._damage: _Damage | None = None
        self._damaged: deque[tuple[BatchHeader, BatchHeader]] = deque(maxlen=DAMAGED_KNOWN)
        """Headers of damaged batches, each with the header that was passed to `hides` in its place."""

    @property
    def is_done(self) -> bool:
        """Return whether all further batches are beyond the range."""
        return self.next_offset >= self.offset_range.end

    def has_had(self, stored: StoredBatch) -> bool:
        """Return whether a batch is one of the last batches, which a later fetch may return again.

        `hides` of the repeated batch is called with the header that was passed the first time.
        """
        header, held = stored.header, self._held
        told = next((told for damaged, told in self._damaged if damaged == header), None)
        if header == self._last or (held is not None and header == held.header):
            told = header
        if told is not None:
            stored.hides(stored.data, told)
        return told is not None

    def take(self, stored: StoredBatch) -> Iterator[RawBatch | CorruptSpan]:
        """Add the next batch of the log; yields the batches and spans that are certain now."""
        header = stored.header
        if header.magic < 2:
            yield from self._release()
            yield from self._settle(_first_offset(stored))
            yield from self._believe(stored)
        elif not check_crc(stored.data, 0, header):
            yield from self._release()
            if self._damage and header.base_offset > self._damage.base_offset:
                yield from self._settle(header.base_offset)
            base_offset, beyond = header.base_offset, header.next_offset
            self._note(stored, "crc", "the checksum is wrong", base_offset=base_offset, beyond=beyond)
        else:
            yield from self._place(stored)

    def take_span(self, span: CorruptSpan) -> Iterator[RawBatch | CorruptSpan]:
        """Add bytes that are not a batch, up to the next batch; the span starts where the last sound batch ends."""
        yield from self._release()
        yield from self._settle(self._expected)
        yield from self._report(span._replace(start=self._expected))

    def finish(self, log_end: int) -> Iterator[RawBatch | CorruptSpan]:
        """Yield the batches and spans that were uncertain; no batch has offsets of `log_end` or later."""
        if self._held is not None and self._held.header.next_offset > log_end:
            held, self._held = self._held, None
            self._misplace(held)
        yield from self._release()
        yield from self._settle(self.offset_range.end)

    @property
    def _expected(self) -> int:
        return self.offset_range.start if self._at is None else self._at

    def _place(self, stored: StoredBatch) -> Iterator[RawBatch | CorruptSpan]:
        base_offset, held = stored.header.base_offset, self._held
        if held is not None and self._expected <= base_offset < held.header.next_offset:
            self._held = None
            self._misplace(held)
        yield from self._release()
        if base_offset > self._expected:
            self._held, self.beyond = stored, stored.header.next_offset
            self.after = self._expected + stored.header.last_offset_delta + 1
        elif base_offset == self._expected or self._at is None:
            yield from self._settle(base_offset)
            yield from self._believe(stored)
        else:
            self._misplace(stored)

    def _misplace(self, stored: StoredBatch) -> None:
        header = stored.header
        base_offset, beyond = self._expected, self._expected + header.last_offset_delta + 1
        detail = f"a batch says that it has offsets {header.base_offset} to {header.last_offset}, which do not fit here"
        self._note(stored, "order", detail, base_offset=base_offset, beyond=beyond)

    def _note(self, stored: StoredBatch, reason: str, detail: str, *, base_offset: int, beyond: int) -> None:
        """Note damage, which ends where the next sound batch begins. The damaged batch may be a transaction marker."""
        told = replace(stored.header, base_offset=self._expected, last_offset_delta=0)
        self._damaged.append((stored.header, told))
        stored.hides(stored.data, told)
        self.after = self.beyond = max(beyond, self.next_offset + 1)
        if self._damage is None:
            self._damage = _Damage(base_offset, reason, detail, bytes(stored.data))

    def _release(self) -> Iterator[RawBatch | CorruptSpan]:
        held, self._held = self._held, None
        if held is not None:
            yield from self._settle(held.header.base_offset)
            yield from self._believe(held)

    def _believe(self, stored: StoredBatch) -> Iterator[RawBatch]:
        header = stored.header
        aborted = stored.hides(stored.data, header)
        self._last = header
        is_after = (
            header.magic == 2 and header.base_offset >= self.offset_range.end
        )  # a legacy message may state its last offset
        if header.next_offset > self.next_offset and not is_after:
            yield RawBatch(stored.data, header, aborted)
        self._go_on(header.next_offset)

    def _settle(self, end: int) -> Iterator[CorruptSpan]:
        """End the noted damage before `end`."""
        noted, self._damage = self._damage, None
        if noted is not None:
            start = noted.base_offset if self._expected <= noted.base_offset < end else self._expected
            yield from self._report(CorruptSpan(start, end, noted.reason, noted.detail, noted.data))

    def _report(self, span: CorruptSpan) -> Iterator[CorruptSpan]:
        start, end = max(span.start, self.next_offset), min(span.end, self.offset_range.end)
        if end > start:
            yield span._replace(start=start, end=end)
        self._go_on(span.end)

    def _go_on(self, offset: int) -> None:
        self._at = max(self._expected, offset) if self._at is not None else offset
        self.next_offset = self.after = self.beyond = max(self.next_offset, offset)


def _first_offset(stored: StoredBatch) -> int:
    """Return the first offset of a legacy message: a compressed message states its last offset."""
    if stored.header.codec:
        try:
            return next(iter_any_records(stored.data)).offset
        except (RecordsError, StopIteration):
            pass
    return stored.header.base_offset

"""Offsets of a range with records visible to a consumer, from the headers of batches if possible.

The rule: the checksum of every batch is checked. If headers do not suffice (compacted batches, old formats, damage), the
range is read again by `RangeReader`, which decodes records, but none of their keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from barnabas_pipeline.log import digest
from barnabas_pipeline.log.columns import Columns, NotSureError
from barnabas_pipeline.log.model import CorruptSpan, Log, OffsetRange, RangeCounts
from barnabas_pipeline.log.reader import RangeReader

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers, Mask


class Outline(NamedTuple):
    """The offsets with records or damage, as separate spans [low, high), rising; other offsets are counted."""

    low: Integers
    high: Integers
    counts: RangeCounts

    def has(self, offsets: Integers) -> Mask:
        """Return a mask over `offsets`: true for offsets within the spans."""
        if not len(self.low):
            return np.zeros(len(offsets), bool)
        at = np.searchsorted(self.low, offsets, "right") - 1
        return (at >= 0) & (offsets < self.high[at])

    def without(self, offsets: Integers, examples_max: int) -> tuple[int, list[int]]:
        """Return (number of the spans' offsets missing in `offsets` (rising, each once), the first few of them)."""
        matches = np.searchsorted(offsets, self.high) - np.searchsorted(offsets, self.low)
        lacking = self.high - self.low - matches
        examples: list[int] = []
        for n in np.flatnonzero(lacking).tolist():
            span = np.arange(self.low[n], self.high[n])
            examples += np.setdiff1d(span, offsets, assume_unique=True)[:examples_max].tolist()
            if len(examples) >= examples_max:
                break
        return int(lacking.sum()), examples[:examples_max]


def outline(log: Log, offset_range: OffsetRange) -> Outline:
    """Read the headers of a range. Raises DataLossError if its start was deleted."""
    try:
        return _by_headers(log, offset_range)
    except NotSureError:
        return _by_records(log, offset_range)


def _by_headers(log: Log, offset_range: OffsetRange) -> Outline:
    counts = RangeCounts()
    spans: list[tuple[int, int]] = []
    at = offset_range.start
    for item in log.read(offset_range):
        if isinstance(item, CorruptSpan):
            raise NotSureError(item.detail)
        header = item.header
        if header.magic < 2:
            raise NotSureError("an old format")
        counts.batches += 1
        counts.bytes_read += len(item.data)
        if header.last_offset < offset_range.end:
            counts.digest = digest.add(counts.digest, digest.of_batch(item.data, header))
        low, high = max(at, header.base_offset), min(header.next_offset, offset_range.end)
        counts.compacted += low - at
        at = high
        if header.is_control:
            control = min(header.records_count, high - low)
            counts.control += control
            counts.compacted += high - low - control
        elif header.records_count != header.last_offset_delta + 1:
            raise NotSureError("records are missing in the batch")
        elif item.aborted:
            counts.aborted += high - low
        else:
            counts.records += high - low
            spans.append((low, high))
    counts.compacted += offset_range.end - at
    assert counts.span == len(offset_range), (counts, offset_range)
    low_high = np.array(spans, np.int64).reshape(-1, 2)
    return _merged(low_high[:, 0], low_high[:, 1], counts)


def _by_records(log: Log, offset_range: OffsetRange) -> Outline:
    reader = RangeReader(log, offset_range, fields=frozenset())
    lows, highs = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for item in reader:
        if isinstance(item, Columns):
            first = np.concatenate([[True], np.diff(item.offset) != 1])
            lows.append(item.offset[first])
            highs.append(item.offset[np.roll(first, -1)] + 1)
        else:
            lows.append(np.array([item.start], np.int64))
            highs.append(np.array([item.end], np.int64))
    return _merged(np.concatenate(lows), np.concatenate(highs), reader.counts)


def _merged(low: Integers, high: Integers, counts: RangeCounts) -> Outline:
    """Join the spans that touch."""
    if len(low):
        apart = low[1:] != high[:-1]
        low, high = low[np.append(True, apart)], high[np.append(apart, True)]
    return Outline(low, high, counts)

"""Reading of many records in lockstep: their bytes as numpy, with a mask of unread records.

The rule: an unusual record is marked in `bad`, and treated as zeros from then on; the strict path reads it again. Other
records are not affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Integers, Mask

ITEMS_MAX = 1_000
"""Records with more items in an array or map are read one by one, and so are few records with more than FEW_ITEMS_MAX."""
FEW_ITEMS_MAX = 64
FEW = 16
_ZEROS = bytes(64)


class StepReader:
    """Reader of values that lie in `data` from `start` to `end`; `bad` is the mask of unread values."""

    def __init__(self, data: bytes, start: Integers, end: Integers, longest: int = 0) -> None:
        self.data = data + _ZEROS + bytes(longest)
        self.buf = np.frombuffer(self.data, np.uint8)
        self.start = start
        self.end = end
        self.pinned = len(data) + 8  # a position after all records, followed by zeros
        self.bad = start > end
        self.every = np.arange(len(start))

    def ends(self, rows: Integers) -> Integers:
        """Return the ends of records."""
        return self.end if rows is self.every else self.end[rows]

    def raw_varints(self, at: Integers) -> tuple[Integers, Integers, Mask]:
        """Read a varint at each place; returns (numbers of 64 bits, next places, mask of longer numbers)."""
        byte = self.buf[at]
        raw = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte >= 0x80)
        wrong = np.zeros(len(at), bool)
        shift = 7
        while len(more):
            byte = self.buf[at[more]]
            at[more] += 1
            if shift == 63:
                wrong[more[byte > 1]] = True
                byte = byte & np.uint8(1)
            raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            more = more[byte >= 0x80]
            shift += 7
        return raw, at, wrong

    def slices(self, begin: Integers, end: Integers) -> Column:
        """Return the bytes from `begin` to `end`; slices rise and do not overlap."""
        edges = np.empty(2 * len(begin) + 1, np.int32)
        edges[0] = 0
        edges[1::2] = begin
        edges[2::2] = end
        every = pa.Array.from_buffers(
            pa.binary(), 2 * len(begin), [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        )
        return every.take(pa.array(np.arange(1, 2 * len(begin), 2)))

    def texts(self, column: Column, rows: Integers) -> Column:
        """Return the column as text; records with invalid UTF-8 are marked in `bad`."""
        if _is_ascii(column):  # the usual case; checking each text takes ten times as long
            return column.view(pa.string())
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(value) for value in column.to_pylist()])
            self.bad[rows[wrong]] = True
            return pc.if_else(pa.array(wrong), pa.scalar(b""), column).cast(pa.string())


def _is_ascii(column: Column) -> bool:
    data = column.buffers()[2]
    return data is None or not len(data) or bool(np.frombuffer(data, np.uint8).max() < 0x80)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

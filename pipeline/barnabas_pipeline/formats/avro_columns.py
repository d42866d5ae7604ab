"""Avro values to columns: all records of a block in step, one part of the schema after the other, by numpy and Arrow.

The rule: an unusual record is noted and pinned to bytes of zero, which every schema can read; the strict path reads it
again. Other records are not affected.
"""

from __future__ import annotations

from decimal import Decimal as Number
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.field_types import PLAIN, Decimal, arrow_type, from_whole
from barnabas_pipeline.formats.avro_plan import Plan
from barnabas_pipeline.formats.json_columns import plain_column
from barnabas_pipeline.formats.steps import FEW, FEW_ITEMS_MAX, ITEMS_MAX, StepReader
from barnabas_pipeline.log.columns import NotSureError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Integers, Mask
    from barnabas_pipeline.field_types import Type

EMPTIES_MAX = 16
"""Most fields without bytes of a record that is read in step: each takes memory for all items of a block."""


def has_fast_way(plan: Plan) -> bool:
    """Return whether a schema can be read in step: not with a recursive type, or with many fields without bytes."""
    return not plan.is_recursive and plan.empties <= EMPTIES_MAX and all(map(has_fast_way, plan.children))


class ColumnReader(StepReader):
    """Reader of many values of an Avro schema."""

    def __init__(self, data: bytes, start: Integers, end: Integers, plan: Plan) -> None:
        super().__init__(data, start, end, _longest(plan))

    def read(self, plan: Plan) -> tuple[list[Column], Mask]:
        """Return the columns of a record, or the single column of any other schema, and the mask of unread rows."""
        rows = self.every
        at = np.where(self.start > self.end, self.pinned, self.start)
        if plan.kind == "record":
            columns = []
            for child in plan.children:
                column, at = self._read(child, at, rows)
                columns.append(column)
        else:
            column, at = self._read(plan, at, rows)
            columns = [column]
        self.bad |= at != self.end
        return columns, self.bad

    def _read(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        method = getattr(self, f"_{plan.kind}")
        column, at = method(plan, at, rows)
        return column, at

    # --- positions ------------------------------------------------------------------------------------------

    def _fail(self, wrong: Mask, at: Integers, rows: Integers) -> None:
        """Mark the records of the places where `wrong` is true, and continue with zeros for them."""
        if wrong.any():
            self.bad[rows[wrong]] = True
            at[wrong] = self.pinned

    def _guard(self, at: Integers, rows: Integers) -> None:
        self._fail(at > self.ends(rows), at, rows)

    def _longs(self, at: Integers, rows: Integers) -> tuple[Integers, Integers]:
        raw, at, over = self.raw_varints(at)
        value = (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
        over |= at > self.ends(rows)
        if over.any():
            self._fail(over, at, rows)
            value[over] = 0
        return value, at

    # --- plain values ---------------------------------------------------------------------------------------

    def _null(self, _plan: Plan, at: Integers, _rows: Integers) -> tuple[Column, Integers]:
        return pa.nulls(len(at), pa.string()), at

    def _boolean(self, _plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        byte = self.buf[at]
        at = at + 1
        self._fail((byte > 1) | (at > self.ends(rows)), at, rows)
        return pa.array(byte == 1), at

    def _int(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        return self._long(plan, at, rows)

    def _long(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        value, at = self._longs(at, rows)
        assert isinstance(plan.type, str)
        plain = PLAIN[plan.type]
        low, high = plain.min or 0, plain.max or 0
        if plan.kind == "int":
            low, high = max(low, -(1 << 31)), min(high, (1 << 31) - 1)
        if plan.type != "long":
            wrong = (value < low) | (value > high)
            if wrong.any():
                self._fail(wrong, at, rows)
                value[wrong] = 0
        if plan.type == "int":
            return pa.array(value.astype(np.int32)), at
        return from_whole(pa.array(value), plan.type), at

    def _float(self, _plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        return self._numbers(at, rows, 4, "<f4")

    def _double(self, _plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        return self._numbers(at, rows, 8, "<f8")

    def _numbers(self, at: Integers, rows: Integers, size: int, kind: str) -> tuple[Column, Integers]:
        raw = np.lib.stride_tricks.sliding_window_view(self.buf, size)[at]
        at = at + size
        self._guard(at, rows)
        return pa.array(raw.view(kind).ravel()), at

    def _string(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        begin, at = self._sized(at, rows)
        column = self.texts(self._slices(begin, at, rows), rows)
        if plan.type != "iso8601":
            return column, at
        try:
            return plain_column(column, plan.type), at
        except pa.ArrowInvalid:
            raise NotSureError from None

    def _bytes(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        begin, at = self._sized(at, rows)
        if isinstance(plan.type, Decimal):
            return self._decimals(plan.type, begin, at, rows)
        return self._slices(begin, at, rows), at

    def _fixed(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        begin, at = at, at + plan.size
        over = at > self.ends(rows)
        if over.any():
            self._fail(over, at, rows)
            begin = np.where(over, at, begin)
        if isinstance(plan.type, Decimal):
            return self._decimals(plan.type, begin, np.where(over, at, begin + plan.size), rows)
        column = self._slices(begin, at, rows)
        if plan.type == "uuid":
            return pa.array([_uuid(value) for value in column.to_pylist()], pa.string()), at
        return column, at

    def _sized(self, at: Integers, rows: Integers) -> tuple[Integers, Integers]:
        """Read a length; returns where its bytes begin and end."""
        size, begin = self._longs(at, rows)
        remaining = self.ends(rows) - begin
        wrong = (size < 0) | (size > remaining) & (begin != self.pinned)
        if wrong.any():
            self._fail(wrong, begin, rows)
            size[wrong] = 0
        return begin, begin + size

    def _slices(self, begin: Integers, end: Integers, rows: Integers) -> Column:
        """Return the bytes from `begin` to `end`, which rise except for pinned records."""
        pinned = begin >= self.pinned
        if pinned.any():
            first = np.minimum(self.start[rows], self.pinned)
            begin, end = np.where(pinned, first, begin), np.where(pinned, first, end)
        return self.slices(begin, end)

    def _decimals(
        self, kind: Decimal, begin: Integers, end: Integers, rows: Integers
    ) -> tuple[Column, Integers]:
        size = end - begin
        places = np.arange(16)
        at = end[:, None] - 1 - places
        there = places < size[:, None]
        raw = self.buf[np.where(there, at, self.pinned)]
        negative = (self.buf[begin] >= 0x80) & (size > 0)
        raw = np.where(there, raw, np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]).astype(np.uint8)
        wide = pa.decimal128(38, kind.scale)
        column = pa.Array.from_buffers(wide, len(size), [None, pa.py_buffer(np.ascontiguousarray(raw))])
        high = pa.scalar(Number((0, (9,) * kind.precision, -kind.scale)), wide)
        low = pa.scalar(Number((1, (9,) * kind.precision, -kind.scale)), wide)
        fine = pc.and_(pc.less_equal(column, high), pc.greater_equal(column, low))
        wrong = ~fine.to_numpy(zero_copy_only=False) | (size > 16)
        if wrong.any():
            self._fail(wrong, end, rows)
            column = pc.if_else(pa.array(wrong), pa.scalar(Number((0, (0,), -kind.scale)), wide), column)
        return column.cast(arrow_type(kind)), end

    def _enum(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        index, at = self._indexes(len(plan.symbols), at, rows)
        symbols = pa.array(plan.symbols, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(index), symbols).dictionary_decode(), at

    def _indexes(self, count: int, at: Integers, rows: Integers) -> tuple[Integers, Integers]:
        index, at = self._longs(at, rows)
        wrong = (index < 0) | (index >= count)
        if wrong.any():
            self._fail(wrong, at, rows)
            index[wrong] = 0
        return index, at

    # --- nested values --------------------------------------------------------------------------------------

    def _record(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        columns = []
        for child in plan.children:
            column, at = self._read(child, at, rows)
            columns.append(column)
        return _struct(columns, plan.type, len(rows)), at

    def _optional(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        index, at = self._indexes(2, at, rows)
        return self._some(plan.children[0], np.flatnonzero(index != plan.size), at, rows)

    def _some(self, plan: Plan, live: Integers, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        """Read a value at the places `live`; the others are null. Returns (the column, the next places)."""
        if len(live) == len(at):
            return self._read(plan, at, rows)
        column, at[live] = self._read(plan, at[live], rows[live])
        places = np.zeros(len(at), np.int64)
        null = np.ones(len(at), bool)
        places[live] = np.arange(len(live))
        null[live] = False
        return column.take(pa.array(places, mask=null)), at

    def _union(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        index, at = self._indexes(len(plan.children), at, rows)
        columns = []
        null = np.zeros(len(at), bool)
        for n, child in enumerate(plan.children):
            if child.kind == "null":
                null = index == n
                continue
            column, at = self._some(child, np.flatnonzero(index == n), at, rows)
            columns.append(column)
        return _struct(columns, plan.type, len(rows), null), at

    def _array(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        columns, edges, at = self._items(plan.children, at, rows)
        return pa.ListArray.from_arrays(edges, columns[0], arrow_type(plan.type)), at

    def _map(self, plan: Plan, at: Integers, rows: Integers) -> tuple[Column, Integers]:
        (keys, values), edges, at = self._items([Plan("string"), plan.children[0]], at, rows)
        owner = np.repeat(np.arange(len(rows)), np.diff(edges.to_numpy()))
        codes = keys.dictionary_encode().indices.to_numpy()
        both = owner * (len(codes) + 1) + codes
        _, first, counts = np.unique(both, return_index=True, return_counts=True)
        twice = np.zeros(len(rows), bool)
        twice[owner[first[counts > 1]]] = True
        self._fail(twice, at, rows)  # the last value counts, as in the strict path
        return pa.MapArray.from_arrays(edges, keys, values, arrow_type(plan.type)), at

    def _items(
        self, plans: list[Plan], at: Integers, rows: Integers
    ) -> tuple[list[Column], Column, Integers]:
        """Read the items of arrays: the first of all, then the second, and so on. Returns (columns, edges, next places)."""
        count = len(at)
        remaining = np.zeros(count, np.int64)
        at = at.copy()
        self._next_blocks(np.arange(count), remaining, at, rows)
        parts: list[list[Column]] = [[] for _ in plans]
        owners = []
        taken = 0
        while len(live := np.flatnonzero(remaining)):
            taken += 1
            if taken > ITEMS_MAX or (taken > FEW_ITEMS_MAX and len(live) < FEW):
                self._fail(remaining > 0, at, rows)
                break
            for n, plan in enumerate(plans):
                column, at[live] = self._read(plan, at[live], rows[live])
                parts[n].append(column)
            owners.append(live)
            remaining[live] -= 1
            remaining[live[at[live] >= self.pinned]] = 0
            done = live[(remaining[live] == 0) & (at[live] < self.pinned)]
            if len(done):
                self._next_blocks(done, remaining, at, rows)
        owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
        order = pa.array(np.argsort(owner, kind="stable"))
        edges = pa.array(
            np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))]).astype(np.int32)
        )
        columns = [
            pa.concat_arrays(part).take(order) if part else pa.array([], arrow_type(plan.type))
            for part, plan in zip(parts, plans, strict=True)
        ]
        return columns, edges, at

    def _next_blocks(self, live: Integers, remaining: Integers, at: Integers, rows: Integers) -> None:
        """Read the number of items in the next block of the arrays `live` into `remaining`."""
        number, at[live] = self._longs(at[live], rows[live])
        sized = live[number < 0]
        if len(sized):
            size, at[sized] = self._longs(at[sized], rows[sized])
            wrong = np.zeros(len(at), bool)
            wrong[sized[size < 0]] = True
            self._fail(wrong, at, rows)
        number = np.abs(number)
        remaining[live] = np.where((number < 0) | (at[live] >= self.pinned), 0, number)
        wrong = np.zeros(len(at), bool)
        wrong[live] = number < 0  # of the least number of 64 bits
        self._fail(wrong, at, rows)


def _struct(columns: list[Column], kind: Type, count: int, null: Mask | None = None) -> Column:
    mask = pa.array(null) if null is not None and null.any() else None
    if not columns:
        raise NotSureError
    assert all(len(column) == count for column in columns)
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type(kind)), mask=mask)


def _longest(plan: Plan) -> int:
    return max([plan.size if plan.kind == "fixed" else 0, *map(_longest, plan.children)])


def _uuid(data: bytes) -> str | None:
    if len(data) != 16:
        return None
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

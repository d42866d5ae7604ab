"""Messages of Protobuf to columns: all records of a block in step, one field number after the other, by numpy and Arrow.

The rule: that of `avro_columns`. All known serialisers write fields in the order of their numbers; fields in another order
are read in one more pass, and unknown fields by the strict path.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor as Kind

from barnabas_pipeline.field_types import DAY_MAX, DAY_MIN, PLAIN, arrow_type
from barnabas_pipeline.formats.protobuf_plan import BYTES, FIXED32, FIXED64, GROUP, VARINT, Message, Part
from barnabas_pipeline.formats.steps import FEW, FEW_ITEMS_MAX, ITEMS_MAX, StepReader

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Integers, Mask

PASSES = 3
_ZIGZAG = (Kind.TYPE_SINT32, Kind.TYPE_SINT64)
_SIZES = {FIXED32: 4, FIXED64: 8}
_FIXED = {
    Kind.TYPE_DOUBLE: "<f8", Kind.TYPE_FLOAT: "<f4", Kind.TYPE_FIXED64: "<u8", Kind.TYPE_SFIXED64: "<i8",
    Kind.TYPE_FIXED32: "<u4", Kind.TYPE_SFIXED32: "<i4",
}  # fmt: skip


def has_fast_way(plan: Message) -> bool:
    """Return whether a message can be read in step: JSON and groups cannot."""
    return bool(plan.parts) and all(
        part.shape != "json" and part.wire != GROUP and (part.of is None or has_fast_way(part.of))
        for part in plan.parts
    )


Places: TypeAlias = "tuple[Integers, Integers, Integers, Integers]"
"""Values as arrays: number of the message, start of the bytes, end of the bytes, and the number that a value encodes."""


class Occurrences:
    """Occurrences of a field in messages, as Places."""

    def __init__(self) -> None:
        self.parts: list[Places] = []

    def all(self) -> Places:
        """Return all occurrences, in the order of their bytes."""
        if not self.parts:
            empty = np.empty(0, np.int64)
            return empty, empty, empty, empty.astype(np.uint64)
        if len(self.parts) == 1:
            return self.parts[0]
        places, begin, end, value = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        order = np.lexsort((begin, places))
        return places[order], begin[order], end[order], value[order]


class MessageColumns(StepReader):
    """Reader of messages that lie in `data` from `start` to `end`; `bad` is the mask of unread messages."""

    def read(self, plan: Message) -> tuple[list[Column], Mask]:
        """Return (the columns of the message's fields, in declared order, the mask of unread rows)."""
        columns = self._message(plan, self.start, self.end, np.arange(len(self.start)))
        by_number = {part.number: column for part, column in zip(plan.parts, columns, strict=True)}
        return [by_number[field.number] for field in plan.descriptor.fields], self.bad

    def _message(self, plan: Message, begin: Integers, end: Integers, rows: Integers) -> list[Column]:
        """Read messages from `begin` to `end` within the records `rows`; returns a column for each part."""
        occurrences = self._occurrences(plan, begin, end, rows)
        self._check_oneofs(plan, occurrences, rows)
        return [self._column(part, occurrences[part.number].all(), begin, rows) for part in plan.parts]

    # --- where fields are -----------------------------------------------------------------------------------

    def _occurrences(
        self, plan: Message, begin: Integers, end: Integers, rows: Integers
    ) -> dict[int, Occurrences]:
        occurrences: dict[int, Occurrences] = defaultdict(Occurrences)
        at = np.where(self.bad[rows], end, begin)
        tags = [(part, wire, _tag(part.number, wire)) for part in plan.parts for wire in _wires(part)]
        for _ in range(PASSES):
            for part, wire, tag in tags:
                self._take(part, wire, tag, occurrences[part.number], at, end, rows)
            if (at == end).all():
                break
        self.bad[rows[at != end]] = True
        return occurrences

    def _take(
        self,
        part: Part,
        wire: int,
        tag: bytes,
        occurrences: Occurrences,
        at: Integers,
        end: Integers,
        rows: Integers,
    ) -> None:
        """Collect occurrences of a field where it is next, all of them if it is repeated."""
        turns = 0
        live = np.flatnonzero(at < end)
        while len(live):
            fits = self.buf[at[live]] == tag[0]
            for n, byte in enumerate(tag[1:], 1):
                fits &= self.buf[at[live] + n] == byte
            live = live[fits]
            if not len(live):
                return
            turns += 1
            if turns > ITEMS_MAX or (turns > FEW_ITEMS_MAX and len(live) < FEW):
                self.bad[rows[live]] = True
                at[live] = end[live]
                return
            first = at[live] + len(tag)
            last, value, wrong = self._extent(wire, first, end[live])
            if wire == BYTES:
                first = value.view(np.int64)
            at[live] = last
            if wrong.any():
                self.bad[rows[live[wrong]]] = True
                at[live[wrong]] = end[live[wrong]]
                keep = ~wrong
                live, first, last, value = live[keep], first[keep], last[keep], value[keep]
            if part.is_repeated and wire == BYTES and part.wire != BYTES:
                occurrences.parts += self._packed(part, live, first, last, rows)
            else:
                occurrences.parts.append((live, first, last, value))
            live = live[at[live] < end[live]]

    def _extent(self, wire: int, at: Integers, end: Integers) -> tuple[Integers, Integers, Mask]:
        """Return (ends of values, their content (varints) or the start of their bytes, mask of overlong values)."""
        if wire in _SIZES:
            last = at + _SIZES[wire]
            return last, at.view(np.uint64), last > end
        value, last, wrong = self.raw_varints(at)
        wrong = wrong | (last > end)
        if wire == VARINT:
            return last, value, wrong
        size = value.view(np.int64)
        wrong |= (size < 0) | (size > end - last)
        first = last
        return first + np.where(wrong, 0, size), first.astype(np.uint64), wrong

    def _packed(
        self, part: Part, live: Integers, first: Integers, last: Integers, rows: Integers
    ) -> list[Places]:
        """Return the values of packed fields."""
        if part.wire in _SIZES:
            size = _SIZES[part.wire]
            count, rest = np.divmod(last - first, size)
            self.bad[rows[live[rest != 0]]] = True
            owner = np.repeat(np.arange(len(live)), count)
            nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            begin = first[owner] + nth * size
            return [(live[owner], begin, begin + size, begin.view(np.uint64))]
        parts = []
        at = first.copy()
        turns = 0
        while len(more := np.flatnonzero(at < last)):
            turns += 1
            if turns > ITEMS_MAX or (turns > FEW_ITEMS_MAX and len(more) < FEW):
                self.bad[rows[live[more]]] = True
                break
            begin = at[more]
            value, end, wrong = self.raw_varints(begin)
            wrong |= end > last[more]
            self.bad[rows[live[more[wrong]]]] = True
            parts.append((live[more], begin, end, value))
            at[more] = np.where(wrong, last[more], end)
        return parts

    def _check_oneofs(self, plan: Message, occurrences: dict[int, Occurrences], rows: Integers) -> None:
        """Mark records with two fields of a oneof for the strict path, in which the last field counts."""
        seen: dict[str, Mask] = {}
        for part in plan.parts:
            if part.oneof:
                mask = np.zeros(len(rows), bool)
                mask[occurrences[part.number].all()[0]] = True
                before = seen.setdefault(part.oneof, np.zeros(len(rows), bool))
                self.bad[rows[before & mask]] = True
                before |= mask

    # --- columns --------------------------------------------------------------------------------------------

    def _column(self, part: Part, occurrences: Places, start: Integers, rows: Integers) -> Column:
        places, begin, end, value = occurrences
        if part.is_repeated:
            values = (
                self._map_entries(part, begin, end, rows[places])
                if part.is_map
                else self._values(part, begin, end, value, rows[places])
            )
            edges = pa.array(
                np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(rows)))]).astype(np.int32)
            )
            return (
                self._map(part, values, edges, rows)
                if part.is_map
                else pa.ListArray.from_arrays(edges, values, arrow_type(part.column))
            )
        seen = np.zeros(len(rows), bool)
        seen[places] = True
        if part.is_required:
            self.bad[rows[~seen]] = True
        if part.of is not None:
            return self._messages(part, places, begin, end, rows)
        first, last = start.copy(), start.copy()
        number = np.full(len(rows), _first_number(part), np.int64).view(np.uint64)
        first[places], last[places], number[places] = begin, end, value  # the last of several values counts
        if part.wire in _SIZES:
            first[~seen] = self.pinned
        column = self._values(part, first, last, number, rows)
        if not part.has_presence or seen.all():
            return column
        column = pc.if_else(pa.array(seen), column, pa.scalar(None, column.type))
        return column if part.default is None else pc.fill_null(column, pa.scalar(part.default, column.type))

    def _messages(
        self, part: Part, places: Integers, begin: Integers, end: Integers, rows: Integers
    ) -> Column:
        twice = np.bincount(places, minlength=len(rows)) > 1
        self.bad[rows[twice]] = True  # several messages would have to be merged
        places, first = np.unique(places, return_index=True)
        column = self._values(part, begin[first], end[first], None, rows[places])
        if len(places) == len(rows):
            return column
        index = np.zeros(len(rows), np.int64)
        null = np.ones(len(rows), bool)
        index[places], null[places] = np.arange(len(places)), False
        return column.take(pa.array(index, mask=null))

    def _values(
        self, part: Part, begin: Integers, end: Integers, value: Integers | None, rows: Integers
    ) -> Column:
        """Return a column of single values."""
        if part.of is not None:
            inner = self._message(part.of, begin, end, rows)
            if part.shape == "wrapper":
                return inner[0]
            if part.shape == "timestamp":
                return self._timestamps(inner, rows)
            ordered = {member.number: column for member, column in zip(part.of.parts, inner, strict=True)}
            columns = [ordered[member.number] for member in part.of.descriptor.fields]
            return pa.StructArray.from_arrays(columns, fields=list(arrow_type(part.type)))
        if part.wire == BYTES:
            return self._texts(part, begin, end, rows)
        assert value is not None, "only messages have no number"
        if part.shape == "enum":
            return self._enums(part, value, rows)
        if part.wire in _SIZES:
            raw = np.lib.stride_tricks.sliding_window_view(self.buf, _SIZES[part.wire])[begin]
            number = raw.view(_FIXED[part.kind]).ravel()
        else:
            number = self._varint(part, value, rows)
        column = pa.array(number)
        column_type = arrow_type(part.type)
        return column if column.type == column_type else column.cast(column_type)

    def _texts(self, part: Part, begin: Integers, end: Integers, rows: Integers) -> Column:
        fresh = self.bad[rows]
        if fresh.any():
            begin, end = np.where(fresh, self.start[rows], begin), np.where(fresh, self.start[rows], end)
        column = self.slices(begin, end)
        return self.texts(column, rows) if part.type == "string" else column

    def _varint(self, part: Part, value: Integers, rows: Integers) -> Integers | Mask:
        number: Integers
        if part.kind in _ZIGZAG:
            number = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        elif part.kind in (Kind.TYPE_UINT64, Kind.TYPE_BOOL):
            number = value
        else:
            number = value.view(np.int64)
        if part.kind == Kind.TYPE_UINT64:
            return number
        if part.kind == Kind.TYPE_BOOL:
            low, high = 0, 1
        elif part.kind == Kind.TYPE_UINT32:
            low, high = 0, (1 << 32) - 1
        elif part.type == "int":
            low, high = PLAIN["int"].min or 0, PLAIN["int"].max or 0
        else:
            return number
        wrong = (number < low) | (number > high)
        if wrong.any():
            self.bad[rows[wrong]] = True
            number = np.where(wrong, 0, number)
        if part.kind == Kind.TYPE_BOOL:
            return number == 1
        return number.astype(np.int32) if part.type == "int" else number.astype(np.int64)

    def _enums(self, part: Part, value: Integers, rows: Integers) -> Column:
        numbers = np.array(sorted(part.numbers), np.int64)
        names = pa.array([part.numbers[number] for number in numbers.tolist()], pa.string())
        mine = value.view(np.int64)
        index = np.minimum(np.searchsorted(numbers, mine), len(numbers) - 1)
        wrong = numbers[index] != mine
        self.bad[rows[wrong]] = True
        return pa.DictionaryArray.from_arrays(pa.array(index), names).dictionary_decode()

    def _timestamps(self, inner: list[Column], rows: Integers) -> Column:
        seconds, nanos = inner[0].to_numpy(), inner[1].to_numpy().astype(np.int64)
        wrong = (seconds < DAY_MIN * 86_400) | (seconds >= (DAY_MAX + 1) * 86_400)
        wrong |= (nanos < 0) | (nanos >= 1_000_000_000) | (nanos % 1000 != 0)  # exact values only
        self.bad[rows[wrong]] = True
        micros = np.where(wrong, 0, seconds) * 1_000_000 + np.where(wrong, 0, nanos) // 1000
        return pa.array(micros).cast(arrow_type("timestamp_us"))

    def _map_entries(self, entry: Part, begin: Integers, end: Integers, rows: Integers) -> list[Column]:
        assert entry.of is not None
        occurrences = self._occurrences(entry.of, begin, end, rows)
        columns = []
        for part in entry.of.parts:
            if part.has_presence:  # absent fields have a default value
                there = np.zeros(len(rows), bool)
                there[occurrences[part.number].all()[0]] = True
                self.bad[rows[~there]] = True
            columns.append(self._column(part, occurrences[part.number].all(), begin, rows))
        return columns

    def _map(self, part: Part, columns: list[Column], edges: Column, rows: Integers) -> Column:
        """Return a column of maps, sorted by key; records with a repeated key are bad here, since the last value counts."""
        keys, values = columns
        owner = np.repeat(np.arange(len(rows)), np.diff(edges.to_numpy()))
        order = pc.sort_indices(
            pa.table({"owner": owner, "key": keys}), sort_keys=[("owner", "ascending"), ("key", "ascending")]
        )
        keys, values = keys.take(order), values.take(order)
        if len(keys) > 1:
            same = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
            twice = same & (owner[1:] == owner[:-1])
            self.bad[rows[owner[1:][twice]]] = True
        return pa.MapArray.from_arrays(edges, keys, values, arrow_type(part.column))


def _first_number(part: Part) -> int:
    return int(part.descriptor.enum_type.values[0].number) if part.shape == "enum" else 0


def _wires(part: Part) -> tuple[int, ...]:
    return (BYTES, part.wire) if part.is_repeated and part.wire != BYTES else (part.wire,)


def _tag(number: int, wire: int) -> bytes:
    remaining = number << 3 | wire
    encoded = bytearray()
    while remaining >= 0x80:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)

"""JSON events to typed columns, strictly: a value that is not exactly an event of the schema is refused with a reason.

The rule: see `base`. Blocks go through Arrow's JSON reader if all of their records are unambiguous; otherwise each
record is decoded alone. Reasons: utf8, empty, json, trailing, duplicate_key, missing_field, type, range, time,
too_large; with a registry framing and schema_id. Damage below the level of records has crc, order, decompress, malformed
and too_large from the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.formats.base import EXTRA
from barnabas_pipeline.formats.framing import FramedDecoder, frames_of, unframed
from barnabas_pipeline.formats.json_columns import can_read, read_lines
from barnabas_pipeline.formats.json_values import Checker, members, needs_digits, parse_object
from barnabas_pipeline.log.columns import Columns, NotSureError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers, Row, Value

NEWLINE = ord(b"\n")
ROWS_MIN = 64
"""Least rows of a block that is divided in search of rows for the fast path."""


@dataclass(frozen=True, slots=True)
class JsonDecoder(FramedDecoder):
    """Decoder of JSON objects, plain or, with a registry, after the id of their schema."""

    format = "json"

    # --- all at once ----------------------------------------------------------------------------------------

    def _decode_fast(self, columns: Columns) -> tuple[list[tuple[Integers, pa.Table]], Integers]:
        parts: list[tuple[Integers, pa.Table]] = []
        doubtful: list[Integers] = []
        if not all(map(can_read, self.schema.fields)):
            return parts, np.arange(len(columns))
        waiting = [np.arange(len(columns))]
        while waiting:
            rows = waiting.pop()
            block = columns if len(rows) == len(columns) else columns_at(columns, rows)
            table = self._decode_block(block)
            if table is not None:
                parts.append((rows, table))
            elif len(rows) <= ROWS_MIN:
                doubtful.append(rows)
            else:
                waiting += reversed(np.array_split(rows, 8))
        return parts, np.concatenate(doubtful) if doubtful else np.empty(0, np.int64)

    def _decode_block(self, columns: Columns) -> pa.Table | None:
        """Return the whole block as a table, or None if a row needs the strict path."""
        values = columns.value
        if values.null_count or pc.max(pc.binary_length(values)).as_py() > self.value_bytes_max:
            return None
        if self.registry is not None:
            ids = frames_of(values)
            if any(self.known(schema_id) is None for schema_id in np.unique(ids).tolist()):
                return None
            values = unframed(values)
        if not (
            pc.all(pc.starts_with(values, pattern=b"{")).as_py()
            and pc.all(pc.ends_with(values, pattern=b"}")).as_py()
        ):
            return None  # each line has at least one object, so as many rows as lines means one per line
        data = b"\n".join(values.to_pylist())
        # `bytes.count` takes 17 times as long
        newlines = np.count_nonzero(np.frombuffer(data, np.uint8) == NEWLINE)
        if newlines != len(columns) - 1 or b"\r" in data or b"\\u0000" in data:
            return None
        try:
            arrays = read_lines(data, self.schema.fields, len(columns))
        except NotSureError:
            return None
        table = pa.Table.from_arrays([*arrays, pa.nulls(len(columns), pa.string())], schema=self.arrow)
        return table if self._are_times_good(table, columns.timestamp_ms).all() else None

    # --- one by one -----------------------------------------------------------------------------------------

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Decode an event to its fields, unknown fields as JSON under `_extra`. Raises RefusedError."""
        if self.registry is not None:
            _, value = self.split(value)
        fields = self.schema.fields
        event = parse_object(value, self.value_bytes_max, exact=needs_digits(fields))
        checker = Checker()
        values: Row = {}
        whole = set()
        for field in fields:
            checker.strange = False
            values |= checker.record(event, (field,))
            if checker.strange:
                whole.add(field.name)
        if event or whole:
            kept = ",".join(text for name, text in members(value) if name in event or name in whole)
            values[EXTRA] = f"{{{kept}}}"
        return values


def columns_at(columns: Columns, rows: Integers) -> Columns:
    """Return adjacent rows."""
    start, count = int(rows[0]), len(rows)
    return Columns(
        *(column[start : start + count] for column in columns[:4]),
        *(column.slice(start, count) for column in columns[4:]),
    )

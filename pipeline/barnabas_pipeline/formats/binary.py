"""Decoders of formats with schemas: each record is read by its writer's schema, then resolved to the table's.

The rule: a format defines how bytes are read, value by value and block by block; all else is common code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from barnabas_pipeline.field_types import Field
from barnabas_pipeline.formats.base import EXTRA, RefusedError
from barnabas_pipeline.formats.framing import SIZE, FramedDecoder, View, frames_of, view_of
from barnabas_pipeline.formats.resolve import (
    extra_column,
    extra_of,
    leftovers,
    record_columns,
    record_value,
)
from barnabas_pipeline.log.columns import Columns, NotSureError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Document, Integers, Mask, Row, Value

NO_ID = -2


class Writer(Protocol):
    """A schema that values were written with, prepared for reading."""

    name: str
    """Full name of the record or message."""
    fields: tuple[Field, ...]

    def read(self, payload: bytes) -> tuple[Row, Document]:
        """Read one value; returns its fields, and the values for `_extra`. Raises RefusedError."""

    def read_columns(self, view: View) -> tuple[list[Column], Mask]:
        """Read many values; returns (columns of the fields, mask of unread rows). Raises NotSureError."""


@dataclass(frozen=True, slots=True)
class BinaryDecoder(FramedDecoder):
    """Base of decoders with schemas. Without a registry, `text` is the schema of all values, `record` the message in it."""

    text: str = ""
    record: str = ""

    def writer(self, schema_id: int, path: tuple[int, ...]) -> Writer | None:
        """Return the schema of an id, NO_ID for `text`; None if it does not exist. `path` selects a message in it."""
        raise NotImplementedError

    def path_of(self, payload: bytes) -> tuple[tuple[int, ...], bytes]:
        """Split the bytes after the id into the path of the message and its bytes. Raises RefusedError."""
        return (), payload

    def paths_of(self, view: View) -> tuple[tuple[int, ...], View, Mask]:
        """Return (the path of most values, the values without it, a mask of values with another path)."""
        return (), view, np.zeros(len(view.start), bool)

    # --- all at once ----------------------------------------------------------------------------------------

    def _decode_fast(self, columns: Columns) -> tuple[list[tuple[Integers, pa.Table]], Integers]:
        view = view_of(columns.value)
        valid = columns.value.is_valid().to_numpy(zero_copy_only=False)
        fit = valid & (view.end - view.start <= self.value_bytes_max)
        ids = np.full(len(columns), NO_ID) if self.registry is None else frames_of(columns.value)
        parts = []
        doubtful = np.ones(len(columns), bool)
        for schema_id in np.unique(ids[fit]).tolist():
            rows = np.flatnonzero(fit & (ids == schema_id))
            try:
                done, table = self._decode_group(columns, view, schema_id, rows)
            except NotSureError:
                continue
            doubtful[done] = False
            parts.append((done, table))
        return parts, np.flatnonzero(doubtful)

    def _decode_group(
        self, columns: Columns, view: View, schema_id: int, rows: Integers
    ) -> tuple[Integers, pa.Table]:
        """Decode rows of one schema; returns (the certainly good rows, their table). Raises NotSureError."""
        start = view.start[rows] + (0 if schema_id == NO_ID else SIZE)
        path, mine, other = self.paths_of(View(view.data, start, view.end[rows]))
        writer = None if schema_id == -1 else self.writer(schema_id, path)
        if writer is None or not self._is_taken(writer):
            raise NotSureError
        values, bad = writer.read_columns(mine)
        arrays, good = record_columns(values, writer.fields, self.schema.fields, len(rows))
        unmapped = leftovers(writer.fields, self.schema.fields)
        arrays.append(extra_column(values, writer.fields, unmapped, len(rows)))
        table = pa.Table.from_arrays(arrays, schema=self.arrow)
        good &= ~bad & ~other & self._are_times_good(table, columns.timestamp_ms[rows])
        return (rows, table) if good.all() else (rows[good], table.filter(pa.array(good)))

    def _is_taken(self, writer: Writer) -> bool:
        return not self.record or writer.name == self.record

    # --- one by one -----------------------------------------------------------------------------------------

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Decode one value. Raises RefusedError."""
        schema_id, payload = NO_ID, value
        if self.registry is not None:
            schema_id, payload = self.split(value)
        path, payload = self.path_of(payload)
        writer = self.writer(schema_id, path)
        if writer is None:
            raise RefusedError("schema_id", f"schema {schema_id} has no such message, or no sense in it")
        if not self._is_taken(writer):
            raise RefusedError("type", f"the value is {writer.name}, no {self.record}")
        held, more = writer.read(payload)
        row = record_value(held, writer.fields, self.schema.fields)
        extra = extra_of(held, leftovers(writer.fields, self.schema.fields), more)
        return row | ({EXTRA: extra} if extra else {})

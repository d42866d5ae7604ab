"""Helpers of the tests of decoders: values as columns, verdicts on them, bytes of Avro."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from barnabas_pipeline.formats.resolve import numbers_of
from barnabas_pipeline.log.columns import Columns, no_headers

NOW = 1_700_000_000_000


def columns(values: list[bytes | None], timestamp_ms: int = NOW) -> Columns:
    count = len(values)
    return Columns(
        np.arange(count),
        np.full(count, timestamp_ms),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        pa.nulls(count, pa.binary()),
        pa.array(values, pa.binary()),
        no_headers(count),
    )


def verdict(decoder: Any, values: list[bytes | None]) -> list[Any]:
    """Each value's row, or the reason why it has none."""
    rows, table, bad = decoder.decode(columns(values))
    table.validate(full=True)
    verdicts: list[Any] = [None] * len(values)
    for row, fields in zip(rows.tolist(), numbers(table).to_pylist(), strict=True):
        verdicts[row] = fields
    for letter in bad:
        verdicts[letter.row] = letter.reason
    return verdicts


def numbers(table: Any) -> Any:
    """Times as numbers, so that what Python's own cannot hold can be compared."""
    columns = [numbers_of(column.combine_chunks()) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names)


def careful(decoder: Any) -> Any:
    return replace(decoder, careful=True)


def same(actual: Any, other: Any) -> bool:
    """Equal, NaN being equal to itself."""
    return repr(actual) == repr(other)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def spoil(value: bytes, at: int, byte: int, how: str) -> bytes:
    at %= len(value) + 1
    if how == "cut":
        return value[:at]
    return value[:at] + bytes([byte]) + value[at + (how == "set") :]

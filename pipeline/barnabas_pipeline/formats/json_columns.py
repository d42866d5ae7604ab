"""JSON to columns by block: Arrow's reader, followed by conversions of whole columns.

The rule: a block is accepted as a whole or not at all: NotSureError where Arrow's reader and the strict path may differ.
"""

from __future__ import annotations

import binascii
import io
from base64 import b64decode
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from barnabas_pipeline.field_types import (
    DAY_MAX,
    DAY_MIN,
    DAY_US,
    PLAIN,
    Array,
    Decimal,
    Enum,
    Field,
    Map,
    Record,
    Type,
    Union,
    arrow_type,
    from_whole,
)
from barnabas_pipeline.formats.json_values import DATE, ISO8601, UUID
from barnabas_pipeline.log.columns import NotSureError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column

_READ_AS = {
    "float": pa.float64(),
    "bytes": pa.string(),
    "date": pa.string(),
    "iso8601": pa.string(),
    "local_iso8601": pa.string(),
}


def can_read(field: Field) -> bool:
    """Return whether a field has a fast path: Arrow's reader has no maps, no unions, and no raw text."""
    if field.aliases:
        return False  # a record may use any name of the field
    match field.type:
        case Map() | Union() | "json":
            return False
        case Decimal():
            return not field.type.is_bytes
        case Array():
            return can_read(field.type.element)
        case Record():
            return all(map(can_read, field.type.fields))
    return True


def read_type(kind: Type) -> pa.DataType:
    """Return the type that Arrow reads a field as, before conversion."""
    match kind:
        case str():
            plain = PLAIN[kind]
            return _READ_AS.get(
                kind, pa.int64() if plain.min is not None and kind != "unsigned_long" else plain.arrow
            )
        case Array():
            return pa.list_(read_type(kind.element.type))
        case Record():
            return pa.struct([pa.field(field.name, read_type(field.type)) for field in kind.fields])
        case _:
            return arrow_type(kind)


def read_lines(data: bytes, fields: tuple[Field, ...], rows: int) -> list[Column]:
    """Read one object a line, without escaped zeros, into columns. Raises NotSureError."""
    schema = pa.schema([pa.field(field.name, read_type(field.type)) for field in fields])
    try:
        data.decode()
        table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="infer"
            ),
        )
        if table.num_rows != rows or table.num_columns != len(fields):
            raise NotSureError
        table = table.select(schema.names)
        if table.schema.types != schema.types:
            raise NotSureError  # a nested record has unknown fields
        columns = [column.combine_chunks() for column in table.columns]
        return [
            _converted(column, field, is_whole=True) for column, field in zip(columns, fields, strict=True)
        ]
    except (UnicodeDecodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError, binascii.Error, ValueError):
        raise NotSureError from None


def _converted(column: Column, field: Field, *, is_whole: bool) -> Column:
    """Return a column of a field's type, within its bounds. Raises NotSureError.

    Nulls are allowed if the field or the record around it (`is_whole` is false then) may be null.
    """
    if column.null_count and ((field.required and is_whole) or field.default is not None):
        raise NotSureError
    match field.type:
        case str():
            converted = plain_column(column, field.type)
        case Decimal():
            column.validate(
                full=True
            )  # Arrow's reader does not count digits before the point of short numbers
            converted = column
        case Enum():
            _require(pc.is_in(column, pa.array(field.type.symbols, pa.string(), size=None)), column)
            converted = column
        case Array():
            element = _converted(column.flatten(), field.type.element, is_whole=True)
            converted = _rebuilt_list(column, element, field.type)
        case Record():
            converted = _record(column, field.type)
        case _:
            raise NotSureError
    _check_bounds(converted, field)
    return converted


def _rebuilt_list(column: Column, element: Column, kind: Array) -> Column:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    edges = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(edges, element, arrow_type(kind), mask=mask)


def _record(column: Column, kind: Record) -> Column:
    mask = column.is_null() if column.null_count else None
    children = []
    for child, field in zip(column.flatten(), kind.fields, strict=True):
        if field.required and child.null_count != column.null_count:
            raise NotSureError
        children.append(_converted(child, field, is_whole=not column.null_count))
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=mask)


def plain_column(column: Column, kind: str) -> Column:
    """Return a column of a plain type from the values read for it. Raises NotSureError, ArrowInvalid, ValueError."""
    plain = PLAIN[kind]
    if kind in ("double", "float"):
        converted = column.cast(plain.arrow, safe=False)
        _require(pc.is_finite(converted), converted)
        return converted
    if kind == "bytes":
        return pa.array(
            [None if text is None else b64decode(text, validate=True) for text in column.to_pylist()],
            plain.arrow,
        )
    if kind == "uuid":
        _require(pc.match_substring_regex(column, UUID), column)
        return column
    if kind == "date":
        _require(pc.match_substring_regex(column, DATE), column)
        converted = column.cast(pa.date32())
        _require_within(converted.cast(pa.int32()), DAY_MIN, DAY_MAX)
        return converted
    if kind == "local_iso8601":
        column, plain = pc.binary_join_element_wise(column, "Z", ""), PLAIN["iso8601"]
        _require(pc.match_substring_regex(column, ISO8601), column)
        return plain_column(column, "iso8601").cast(pa.timestamp("us"))
    if kind == "iso8601":
        _require(pc.match_substring_regex(column, ISO8601), column)
        converted = column.cast(plain.arrow)
        _require_within(converted.cast(pa.int64()), DAY_MIN * DAY_US, (DAY_MAX + 1) * DAY_US - 1)
        return converted
    if plain.min is None:
        return column
    if kind not in ("long", "timestamp_ns", "local_timestamp_ns"):
        _require_within(column, plain.min, plain.max)
    return from_whole(column, kind)


def _require(mask: Column, column: Column) -> None:
    if not pc.all(mask, min_count=0).as_py() or (not column.null_count and mask.null_count):
        raise NotSureError


def _require_within(column: Column, low: int, high: int | None) -> None:
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None and (bounds["min"] < low or bounds["max"] > high):
        raise NotSureError


def _check_bounds(column: Column, field: Field) -> None:
    if field.min is None and field.max is None:
        return
    if pa.types.is_string(column.type):
        sizes = pc.utf8_length(column)
    elif pa.types.is_binary(column.type):
        sizes = pc.binary_length(column)
    elif pa.types.is_list(column.type):
        sizes = pc.list_value_length(column)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        sizes = column
    else:
        raise NotSureError
    bounds = pc.min_max(sizes).as_py()
    if bounds["min"] is not None and (
        (field.min is not None and bounds["min"] < field.min)
        or (field.max is not None and bounds["max"] > field.max)
    ):
        raise NotSureError

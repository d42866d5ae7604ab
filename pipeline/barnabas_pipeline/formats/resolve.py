"""Resolution of records, by their writer's schema, to a table's columns: the same rules for columns and single values.

The rule: a field is found by its number, name or a former name; numbers are widened as Avro widens them; fields without
a column are kept in `_extra`, and values that do not fit are refused as `type`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.field_types import (
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
    find,
    name_of,
)
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.json_values import Checker
from barnabas_pipeline.log.columns import NotSureError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Column, Document, Json, Mask, Row, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDER = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip


def fits(mine: Type, theirs: Type) -> bool:
    """Return whether plain values of type `theirs` (the writer's) fit type `mine`, perhaps in another Arrow type."""
    if isinstance(theirs, str) and isinstance(mine, str):
        same = arrow_type(mine) == arrow_type(theirs) and "json" not in (mine, theirs)
        return same or mine == theirs or (mine, theirs) in _WIDER
    if isinstance(mine, Enum):
        return isinstance(theirs, Enum) or theirs == "string"
    if isinstance(mine, Decimal) and isinstance(theirs, Decimal):
        return mine.scale == theirs.scale and mine.precision <= theirs.precision
    return False


def leftovers(writer: tuple[Field, ...], reader: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return the writer's fields that the reader lacks, in whole or in part."""
    unmapped = []
    for field in writer:
        mine = find(reader, field)
        if mine is None or _has_leftovers(field.type, mine.type):
            unmapped.append(field)
    return tuple(unmapped)


def _has_leftovers(writer: Type, reader: Type) -> bool:
    match writer, reader:
        case Record(), Record():
            return bool(leftovers(writer.fields, reader.fields))
        case Array(), Array():
            return _has_leftovers(writer.element.type, reader.element.type)
        case Map(), Map():
            return _has_leftovers(writer.value.type, reader.value.type)
        case Union(), Union():
            return any(
                mine is not None and _has_leftovers(branch.type, mine.type)
                for branch in writer.branches
                for mine in [find(reader.branches, branch)]
            )
    return False


# --- one value ------------------------------------------------------------------------------------------------------


def record_value(value: Row, writer: tuple[Field, ...], reader: tuple[Field, ...], path: str = "") -> Row:
    """Return the reader's fields of a record. Raises RefusedError."""
    values = {}
    for field in reader:
        name = f"{path}{field.name}"
        theirs = find(writer, field)
        if theirs is not None:
            values[field.name] = _value(value.get(theirs.name), theirs.type, field, name)
        elif field.default is not None:
            values[field.name] = Checker().checked(field.default, field, name)
        elif field.required:
            raise RefusedError("missing_field", f"{name} is missing")
    return values


def _value(value: Value, kind: Type, reader: Field, path: str) -> Value:
    if value is None:
        if reader.required:
            raise RefusedError("type", f"{path} is null")
        return None
    fitted = _fitting(value, kind, reader.type, path)
    _check_bounds(fitted, reader, path)
    return fitted


def _fitting(value: Value, kind: Type, reader: Type, path: str) -> Value:
    if reader == "json":
        return (
            value
            if kind == "json"
            else json.dumps(as_json(value, kind), ensure_ascii=False, separators=(",", ":"))
        )
    if isinstance(value, Kept):
        value = value.held
        if value is None:
            return None
    match kind, reader:
        case Record(), Record():
            return record_value(value, kind.fields, reader.fields, f"{path}.")
        case Array(), Array():
            return [_value(item, kind.element.type, reader.element, path) for item in value]
        case Map(), Map() if kind.key == reader.key:
            return [(key, _value(item, kind.value.type, reader.value, path)) for key, item in value]
        case Union(), _:
            [(name, held)] = value.items()
            branch = next(branch for branch in kind.branches if branch.name == name)
            if not isinstance(reader, Union):
                return _fitting(held, branch.type, reader, path)
            return _branch(held, branch, reader, path)
        case _, Union():
            return _branch(value, Field(name_of(kind), kind), reader, path)
    if kind == "json":
        return Checker().checked(json.loads(value), Field(path, reader), path)
    if not fits(kind, reader):
        return _narrowed(value, kind, reader, path)
    if kind == "bytes" and reader == "string":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise RefusedError("utf8", f"{path} is no UTF-8") from None
    if kind == "string" and reader == "bytes":
        return value.encode()
    if reader in ("float", "double") and kind in ("int", "long"):
        return float(np.float32(value)) if reader == "float" else float(value)
    return value


def _narrowed(value: Value, kind: Type, reader: Type, path: str) -> Value:
    """Return a value of a wider type that fits the reader's type. Raises RefusedError."""
    match kind, reader:
        case "long", "int" if PLAIN["int"].min <= value <= PLAIN["int"].max:
            return value
        case "double", "float" if _is_float(value):
            return value
        case Decimal(), Decimal() if kind.scale == reader.scale and abs(value) < 10 ** (
            reader.precision - reader.scale
        ):
            return value
        case (("long", "int") | ("double", "float")) | (Decimal(), Decimal()):
            raise RefusedError("range", f"{path} does not fit into {name_of(reader)}")
    raise RefusedError("type", f"{path} is {name_of(kind)}, no {name_of(reader)}")


def _is_float(value: float) -> bool:
    with np.errstate(over="ignore"):
        return value != value or float(np.float32(value)) == value


def _branch(value: Value, branch: Field, reader: Union, path: str) -> Value:
    mine = find(reader.branches, branch)
    order = (
        [mine] if mine is not None else [other for other in reader.branches if fits(branch.type, other.type)]
    )
    if not order:
        raise RefusedError("type", f"{path} is {branch.name}, none of the union's types")
    return {order[0].name: _fitting(value, branch.type, order[0].type, path)}


def _check_bounds(value: Value, field: Field, path: str) -> None:
    if field.min is None and field.max is None:
        return
    size = len(value) if isinstance(value, str | bytes | list) else value
    if not isinstance(size, int | float | Number):
        return
    if (field.min is not None and size < field.min) or (field.max is not None and size > field.max):
        raise RefusedError("range", f"{path} is not within {field.min} and {field.max}")


def extra_of(value: Row, unmapped: tuple[Field, ...], more: Document | None = None) -> str | None:
    """Return fields without a column, and `more`, as JSON; None without such fields."""
    present = [field for field in unmapped if value.get(field.name) is not None]
    kept = {field.name: as_json(value[field.name], field.type) for field in present}
    kept |= more or {}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")) if kept else None


class Kept(NamedTuple):
    """A time in its original form, which no column can hold, and the value for the column."""

    written: Json
    held: Value = None


def has_kept(value: Value) -> bool:
    """Return whether a value contains a Kept."""
    if isinstance(value, Kept):
        return True
    if isinstance(value, dict):
        return any(map(has_kept, value.values()))
    return isinstance(value, list | tuple) and any(map(has_kept, value))


def as_json(value: Value, kind: Type) -> Json:
    """Return a value in JSON form: bytes in base64, times in ISO 8601, decimals, NaN and infinities as text."""
    if value is None:
        return None
    if isinstance(value, Kept):
        return value.written
    match kind:
        case Record():
            return {field.name: as_json(value.get(field.name), field.type) for field in kind.fields}
        case Union():
            named = {branch.name: branch.type for branch in kind.branches}
            [(name, held)] = [(name, held) for name, held in value.items() if held is not None] or [
                ("", None)
            ]
            return {name: as_json(held, named[name])} if name else None
        case Array():
            return [as_json(item, kind.element.type) for item in value]
        case Map():
            return {_key_text(key): as_json(item, kind.value.type) for key, item in value}
        case "bytes":
            return b64encode(value).decode()
        case Decimal() | "unsigned_long":
            return str(value)
        case "json":
            return json.loads(value)
        case "float" | "double":
            return (
                value
                if value - value == 0
                else "NaN"
                if value != value
                else "Infinity"
                if value > 0
                else "-Infinity"
            )
        case "date":
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        case str() if pa.types.is_timestamp(arrow_type(kind)):
            text = (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat()
            return text if kind.startswith("local") else f"{text}Z"
    return value


def _key_text(key: Value) -> str:
    return ("false", "true")[key] if isinstance(key, bool) else str(key)


# --- whole columns --------------------------------------------------------------------------------------------------


def record_columns(
    columns: list[Column], writer: tuple[Field, ...], reader: tuple[Field, ...], rows: int
) -> tuple[list[Column], Mask]:
    """Return the reader's columns, and a mask of the rows that fit them. Raises NotSureError."""
    by_name = {field.name: column for field, column in zip(writer, columns, strict=True)}
    good = np.ones(rows, bool)
    arrays = []
    for field in reader:
        theirs = find(writer, field)
        if theirs is None:
            arrays.append(_absent(field, rows))
            continue
        column = _column(by_name[theirs.name], theirs.type, field.type)
        if field.required and column.null_count:
            good &= column.is_valid().to_numpy(zero_copy_only=False)
        arrays.append(column)
        if field.min is not None or field.max is not None:
            good &= _within_bounds(column, field)
    return arrays, good


def _absent(field: Field, rows: int) -> Column:
    if field.default is not None:
        try:
            value = Checker().checked(field.default, field, field.name)
        except RefusedError:
            raise NotSureError from None
        return pa.array([value] * rows, arrow_type(field.type))
    if field.required and rows:
        raise NotSureError
    return pa.nulls(rows, arrow_type(field.type))


def _within_bounds(column: Column, field: Field) -> Mask:
    if pa.types.is_string(column.type):
        sizes = pc.utf8_length(column)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        sizes = column
    else:
        raise NotSureError
    fine = pa.array([True] * len(column))
    if field.min is not None:
        fine = pc.and_(fine, pc.invert(pc.less(sizes, field.min)))
    if field.max is not None:
        fine = pc.and_(fine, pc.invert(pc.greater(sizes, field.max)))
    return pc.fill_null(fine, True).to_numpy(zero_copy_only=False)


def _column(column: Column, kind: Type, reader: Type) -> Column:
    match kind, reader:
        case Record(), Record():
            if kind == reader:
                return column
            inner, good = record_columns(column.flatten(), kind.fields, reader.fields, len(column))
            mask = column.is_null()
            if not (good | mask.to_numpy(zero_copy_only=False)).all():
                raise NotSureError
            return pa.StructArray.from_arrays(
                inner, fields=list(arrow_type(reader)), mask=mask if column.null_count else None
            )
        case _ if kind == reader:
            return column
        case _, "json":
            held = (
                None if value is None else as_json(value, kind) for value in numbers_of(column).to_pylist()
            )
            texts = [
                None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                for value in held
            ]
            return pa.array(texts, pa.string())
        case Array(), Array():
            element = _element(column.flatten(), kind.element, reader.element)
            return pa.ListArray.from_arrays(
                column.offsets,
                element,
                arrow_type(reader),
                mask=column.is_null() if column.null_count else None,
            )
        case _ if fits(kind, reader):
            target = arrow_type(reader)
            try:
                return (
                    column
                    if column.type == target
                    else column.cast(target, safe=(kind, reader) == ("bytes", "string"))
                )
            except pa.ArrowInvalid:  # bytes that are not UTF-8
                raise NotSureError from None
    raise NotSureError


def _element(column: Column, mine: Field, reader: Field) -> Column:
    if reader.min is not None or reader.max is not None or (reader.required and column.null_count):
        raise NotSureError
    return _column(column, mine.type, reader.type)


def extra_column(
    columns: list[Column], writer: tuple[Field, ...], unmapped: tuple[Field, ...], rows: int
) -> Column:
    """Return the column `_extra` of all rows."""
    if not unmapped:
        return pa.nulls(rows, pa.string())
    by_name = {field.name: column for field, column in zip(writer, columns, strict=True)}
    held = [numbers_of(by_name[field.name]).to_pylist() for field in unmapped]
    names = [field.name for field in unmapped]
    return pa.array(
        [extra_of(dict(zip(names, values, strict=True)), unmapped) for values in zip(*held, strict=True)],
        pa.string(),
    )


def numbers_of(column: Column) -> Column:
    """Return a column with times and dates as their whole numbers, also in nested values."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        inner = [numbers_of(child) for child in column.flatten()]
        return pa.StructArray.from_arrays(inner, names=[field.name for field in kind], mask=mask)
    if pa.types.is_map(kind):
        keys, items = column.keys, numbers_of(column.items)
        return pa.MapArray.from_arrays(column.offsets, keys, items, mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, numbers_of(column.values), mask=mask)
    return column

"""Records as their writer's schema has them to the columns of a table: the same rules for whole columns and for one value.

The rule: a field is found by its number, name or a former name; numbers are widened as Avro widens them; what the
table has no column for is kept in `_extra`, and what does not fit is refused as `type`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_pipeline.field_types import (
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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDER = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip


def fits(mine: Type, theirs: Type) -> bool:
    """Tell if a plain value of the writer's type is one of the reader's, perhaps in another Arrow type."""
    if isinstance(theirs, str) and isinstance(mine, str):
        same = arrow_type(mine) == arrow_type(theirs) and "json" not in (mine, theirs)
        return same or mine == theirs or (mine, theirs) in _WIDER
    if isinstance(mine, Enum):
        return isinstance(theirs, Enum) or theirs == "string"
    if isinstance(mine, Decimal) and isinstance(theirs, Decimal):
        return mine.scale == theirs.scale and mine.precision <= theirs.precision
    return False


def leftovers(writer: tuple[Field, ...], reader: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields of the writer that the reader does not have, in whole or in part."""
    found = []
    for one in writer:
        mine = find(reader, one)
        if mine is None or _has_leftovers(one.type, mine.type):
            found.append(one)
    return tuple(found)


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
                mine is not None and _has_leftovers(one.type, mine.type)
                for one in writer.branches
                for mine in [find(reader.branches, one)]
            )
    return False


# --- one value ------------------------------------------------------------------------------------------------------


def record_value(
    value: dict[str, Any], writer: tuple[Field, ...], reader: tuple[Field, ...], path: str = ""
) -> dict[str, Any]:
    """Return the reader's fields of a record. Raises RefusedError."""
    made = {}
    for one in reader:
        name = f"{path}{one.name}"
        theirs = find(writer, one)
        if theirs is not None:
            made[one.name] = _value(value.get(theirs.name), theirs.type, one, name)
        elif one.default is not None:
            made[one.name] = Checker().checked(one.default, one, name)
        elif one.required:
            raise RefusedError("missing_field", f"{name} is missing")
    return made


def _value(value: Any, kind: Type, reader: Field, path: str) -> Any:
    if value is None:
        if reader.required:
            raise RefusedError("type", f"{path} is null")
        return None
    made = _fitting(value, kind, reader.type, path)
    _check_bounds(made, reader, path)
    return made


def _fitting(value: Any, kind: Type, wanted: Type, path: str) -> Any:
    match kind, wanted:
        case Record(), Record():
            return record_value(value, kind.fields, wanted.fields, f"{path}.")
        case Array(), Array():
            return [_value(one, kind.element.type, wanted.element, path) for one in value]
        case Map(), Map() if kind.key == wanted.key:
            return [(key, _value(one, kind.value.type, wanted.value, path)) for key, one in value]
        case Union(), _:
            [(name, held)] = value.items()
            branch = next(one for one in kind.branches if one.name == name)
            if not isinstance(wanted, Union):
                return _fitting(held, branch.type, wanted, path)
            return _branch(held, branch, wanted, path)
        case _, Union():
            return _branch(value, Field(name_of(kind), kind), wanted, path)
    if not fits(kind, wanted):
        raise RefusedError("type", f"{path} is {name_of(kind)}, no {name_of(wanted)}")
    if kind == "bytes" and wanted == "string":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise RefusedError("utf8", f"{path} is no UTF-8") from None
    if kind == "string" and wanted == "bytes":
        return value.encode()
    if wanted in ("float", "double") and kind in ("int", "long"):
        return float(np.float32(value)) if wanted == "float" else float(value)
    return value


def _branch(value: Any, branch: Field, wanted: Union, path: str) -> Any:
    mine = find(wanted.branches, branch)
    order = [mine] if mine is not None else [one for one in wanted.branches if fits(branch.type, one.type)]
    if not order:
        raise RefusedError("type", f"{path} is {branch.name}, none of the union's types")
    return {order[0].name: _fitting(value, branch.type, order[0].type, path)}


def _check_bounds(made: Any, one: Field, path: str) -> None:
    if one.min is None and one.max is None:
        return
    size = len(made) if isinstance(made, str | bytes | list) else made
    if not isinstance(size, int | float | Number):
        return
    if (one.min is not None and size < one.min) or (one.max is not None and size > one.max):
        raise RefusedError("range", f"{path} is not within {one.min} and {one.max}")


def extra_of(
    value: dict[str, Any], left: tuple[Field, ...], more: dict[str, Any] | None = None
) -> str | None:
    """Write what the table has no column for as JSON, and `more`; None if there is nothing."""
    kept = {one.name: as_json(value[one.name], one.type) for one in left if value.get(one.name) is not None}
    kept |= more or {}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")) if kept else None


def as_json(value: Any, kind: Type) -> Any:
    """Return a value as JSON has it: bytes in base64, times in ISO 8601, decimals and what is no finite number as text."""
    if value is None:
        return None
    match kind:
        case Record():
            return {one.name: as_json(value.get(one.name), one.type) for one in kind.fields}
        case Union():
            named = {one.name: one.type for one in kind.branches}
            [(name, held)] = [(name, held) for name, held in value.items() if held is not None] or [
                ("", None)
            ]
            return {name: as_json(held, named[name])} if name else None
        case Array():
            return [as_json(one, kind.element.type) for one in value]
        case Map():
            return {_key_text(key): as_json(one, kind.value.type) for key, one in value}
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


def _key_text(key: Any) -> str:
    return ("false", "true")[key] if isinstance(key, bool) else str(key)


# --- whole columns --------------------------------------------------------------------------------------------------


def record_columns(
    columns: list[Any], writer: tuple[Field, ...], reader: tuple[Field, ...], rows: int
) -> tuple[list[Any], Any]:
    """Return the reader's columns, and a mask of the rows that fit them. Raises NotSureError."""
    by_name = {one.name: column for one, column in zip(writer, columns, strict=True)}
    good = np.ones(rows, bool)
    made = []
    for one in reader:
        theirs = find(writer, one)
        if theirs is None:
            made.append(_absent(one, rows))
            continue
        column = _column(by_name[theirs.name], theirs.type, one.type)
        if one.required and column.null_count:
            good &= column.is_valid().to_numpy(zero_copy_only=False)
        made.append(column)
        if one.min is not None or one.max is not None:
            good &= _within_bounds(column, one)
    return made, good


def _absent(one: Field, rows: int) -> Any:
    if one.default is not None:
        try:
            value = Checker().checked(one.default, one, one.name)
        except RefusedError:
            raise NotSureError from None
        return pa.array([value] * rows, arrow_type(one.type))
    if one.required and rows:
        raise NotSureError
    return pa.nulls(rows, arrow_type(one.type))


def _within_bounds(column: Any, one: Field) -> Any:
    if pa.types.is_string(column.type):
        sizes = pc.utf8_length(column)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        sizes = column
    else:
        raise NotSureError
    fine = pa.array([True] * len(column))
    if one.min is not None:
        fine = pc.and_(fine, pc.invert(pc.less(sizes, one.min)))
    if one.max is not None:
        fine = pc.and_(fine, pc.invert(pc.greater(sizes, one.max)))
    return pc.fill_null(fine, True).to_numpy(zero_copy_only=False)


def _column(column: Any, kind: Type, wanted: Type) -> Any:
    match kind, wanted:
        case Record(), Record():
            if kind == wanted:
                return column
            inner, good = record_columns(column.flatten(), kind.fields, wanted.fields, len(column))
            mask = column.is_null()
            if not (good | mask.to_numpy(zero_copy_only=False)).all():
                raise NotSureError
            return pa.StructArray.from_arrays(
                inner, fields=list(arrow_type(wanted)), mask=mask if column.null_count else None
            )
        case _ if kind == wanted:
            return column
        case Array(), Array():
            element = _element(column.flatten(), kind.element, wanted.element)
            return pa.ListArray.from_arrays(
                column.offsets,
                element,
                arrow_type(wanted),
                mask=column.is_null() if column.null_count else None,
            )
        case _ if fits(kind, wanted):
            target = arrow_type(wanted)
            return (
                column
                if column.type == target
                else column.cast(target, safe=(kind, wanted) == ("bytes", "string"))
            )
    raise NotSureError


def _element(column: Any, mine: Field, wanted: Field) -> Any:
    if wanted.min is not None or wanted.max is not None or (wanted.required and column.null_count):
        raise NotSureError
    return _column(column, mine.type, wanted.type)


def extra_column(columns: list[Any], writer: tuple[Field, ...], left: tuple[Field, ...], rows: int) -> Any:
    """`_extra` for all rows."""
    if not left:
        return pa.nulls(rows, pa.string())
    by_name = {one.name: column for one, column in zip(writer, columns, strict=True)}
    held = [numbers_of(by_name[one.name]).to_pylist() for one in left]
    names = [one.name for one in left]
    return pa.array(
        [extra_of(dict(zip(names, values, strict=True)), left) for values in zip(*held, strict=True)],
        pa.string(),
    )


def numbers_of(column: Any) -> Any:
    """Times and dates as the numbers that they are kept as, also within."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        inner = [numbers_of(one) for one in column.flatten()]
        return pa.StructArray.from_arrays(inner, names=[one.name for one in kind], mask=mask)
    if pa.types.is_map(kind):
        keys, items = column.keys, numbers_of(column.items)
        return pa.MapArray.from_arrays(column.offsets, keys, items, mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, numbers_of(column.values), mask=mask)
    return column

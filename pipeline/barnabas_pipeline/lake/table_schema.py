"""Columns and partitioning of Iceberg tables: Arrow columns are added to a table's schema, its ids to files.

The rule: columns are added and widened, never renamed, narrowed or dropped; ids of existing columns do not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    HourTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    parse_transform,
)
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
    TimeType,
)

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.pyiceberg_internals import schema_without_ids
from barnabas_pipeline.schema import EventSchema

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

EVENT_HOUR = "event_hour"
EVOLVE_TRIES = 20
_PARTITION = re.compile(r"(?:([a-z]+)(\[0*[1-9]\d*\])?\(([^()]+)\)|([^()\[\]]+))")


def evolve(table: IcebergTable, schema: pa.Schema) -> None:
    """Add Arrow columns that a table lacks, and widen too narrow columns; ids of existing columns do not change.

    Raises IncompleteError, and UsageError for a column of another type.
    """
    name = ".".join(table.name())
    fields = schema_without_ids(schema).as_struct()
    for _ in range(EVOLVE_TRIES):
        if _fits(fields, table.schema().as_struct()):
            return
        try:
            with table.update_schema() as update:
                update.union_by_name(_without_times(schema, table.schema()))
        except CommitFailedException:
            table.refresh()
            continue
        except (ValueError, ValidationError) as error:
            raise UsageError(f"table {name}: {error}") from None
        if not _fits(fields, table.schema().as_struct()):
            raise UsageError(f"table {name}: a column of it has another type than the field of the schema")
        return
    raise IncompleteError(f"others change the schema of {name}: run again")


def _without_times(schema: pa.Schema, table: Schema) -> pa.Schema:
    """Return Arrow columns without those that a table of an earlier release has as times of day."""
    times = {field.name for field in table.fields if isinstance(field.field_type, TimeType)}
    return pa.schema([field for field in schema if field.name not in times]) if times else schema


def check_columns(table: IcebergTable, schema: pa.Schema) -> None:
    """Raise UsageError if a table lacks Arrow columns, or has columns of too narrow a type."""
    columns = table.schema().as_struct()
    for field in schema_without_ids(schema).as_struct().fields:
        if not _fits(StructType(field), columns):
            raise UsageError(
                f"table {'.'.join(table.name())} has no column {field.name} that fits any more: another engine has "
                f"renamed, dropped or changed it; undo that"
            )


def _fits(kind: IcebergType, column_type: IcebergType) -> bool:
    """Return whether a table can hold values of a type: it has all fields, including nested fields, as wide or wider."""
    match kind, column_type:
        case StructType(), StructType():
            types = {field.name: field.field_type for field in column_type.fields}
            return all(new.name in types and _fits(new.field_type, types[new.name]) for new in kind.fields)
        case ListType(), ListType():
            return _fits(kind.element_type, column_type.element_type)
        case MapType(), MapType():
            return _fits(kind.key_type, column_type.key_type) and _fits(
                kind.value_type, column_type.value_type
            )
        case IntegerType(), LongType():
            return True
        case LongType(), TimeType():  # of a table of an earlier release
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return bool(kind.scale == column_type.scale and kind.precision <= column_type.precision)
    return bool(kind == column_type)


def numbered(schema: pa.Schema, table: Schema) -> pa.Schema:
    """Return Arrow columns with their field ids and widths in a table. Raises KeyError for columns that it lacks."""
    fields_by_name = {field.name: field for field in table.fields}
    return pa.schema(
        [
            _numbered(field, fields_by_name[field.name].field_type, fields_by_name[field.name].field_id)
            for field in schema
        ]
    )


def _numbered(field: pa.Field, column_type: IcebergType, number: int) -> pa.Field:
    return pa.field(
        field.name, _typed(field.type, column_type), field.nullable, {b"PARQUET:field_id": b"%d" % number}
    )


def _typed(kind: pa.DataType, column_type: IcebergType) -> pa.DataType:
    if isinstance(column_type, StructType):
        by_name = {field.name: field for field in column_type.fields}
        return pa.struct(
            [_numbered(field, by_name[field.name].field_type, by_name[field.name].field_id) for field in kind]
        )
    if isinstance(column_type, ListType):
        return pa.list_(_numbered(kind.value_field, column_type.element_type, column_type.element_id))
    if isinstance(column_type, MapType):
        key = _numbered(kind.key_field, column_type.key_type, column_type.key_id)
        return pa.map_(key, _numbered(kind.item_field, column_type.value_type, column_type.value_id))
    if isinstance(column_type, TimeType):
        return pa.time64("us")
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.int32() if pa.types.is_integer(kind) and kind.bit_width < 32 else kind


def partition_fields(text: str, schema: EventSchema) -> Iterator[tuple[str, Transform[Any, Any], str | None]]:
    """Yield (column, transform, name) of `day(ts), bucket[16](member)`, by default the hour of the event."""
    if not text:
        is_time = pa.types.is_timestamp(lake_schema(schema).field(schema.event_time).type)
        yield schema.event_time, HourTransform() if is_time else TruncateTransform(HOUR_MS), EVENT_HOUR
        return
    for part in [] if text == "none" else text.split(","):
        match = _PARTITION.fullmatch(part.strip())
        try:
            transform = parse_transform(f"{match[1] or 'identity'}{match[2] or ''}") if match else None
        except ValidationError:
            transform = None
        if match is None or transform is None or isinstance(transform, UnknownTransform):
            raise UsageError(
                f"--partition-by {part.strip()!r}: none, or TRANSFORM(FIELD) with year, month, day, hour, identity, "
                "bucket[N], truncate[W], separated by commas"
            )
        yield (match[3] or match[4]).strip(), transform, None

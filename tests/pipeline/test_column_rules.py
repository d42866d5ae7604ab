"""Columns and partitions of tables: numbers and widths in files, what fits into what, and the words of --partition-by."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, StringType

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import table_schema
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.pyiceberg_internals import schema_without_ids
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.table_schema import numbered
from barnabas_pipeline.schema import EventSchema, Field

from .tables import SCHEMA, local_place

ID = b"PARQUET:field_id"


I, L, S, F, D = IntegerType(), LongType(), StringType(), FloatType(), DoubleType()  # noqa: E741


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_columns_of_a_file_have_the_ids_and_widths_of_the_table() -> None:
    point = pa.struct([pa.field("x", pa.int8()), pa.field("at", pa.timestamp("ns", "UTC"))])
    schema = pa.schema(
        [
            pa.field("small", pa.int16()),
            pa.field("int", pa.int32()),
            pa.field("long", pa.int64(), nullable=False),
            pa.field("float", pa.float32()),
            pa.field("local", pa.timestamp("ms")),
            pa.field("points", pa.list_(point)),
            pa.field("by_name", pa.map_(pa.string(), point)),
            pa.field("half", pa.float16()),
        ]
    )
    twin = pa.struct([pa.field("x", pa.int32()), pa.field("at", pa.timestamp("us", "UTC"))])
    as_table = pa.schema(
        [
            pa.field("half", pa.float32()),
            pa.field("by_name", pa.map_(pa.string(), twin)),
            *(
                schema.field(n).with_type({0: pa.int32(), 4: pa.timestamp("us")}.get(n, schema.field(n).type))
                for n in range(5)
            ),
            pa.field("points", pa.list_(twin)),
        ]
    )
    table = assign_fresh_schema_ids(schema_without_ids(as_table))
    new = numbered(schema, table)
    assert new.names == schema.names
    for field in new:
        assert int(field.metadata[ID]) == table.find_field(field.name).field_id
    assert [new.field(n).type for n in ("small", "int", "long", "float", "local", "half")] == [
        pa.int32(), pa.int32(), pa.int64(), pa.float32(), pa.timestamp("us"), pa.float16(),
    ]  # fmt: skip
    assert [field.nullable for field in new] == [True, True, False, *[True] * 5]
    for name, way in (("points", "points.element"), ("by_name", "by_name.value")):
        kind = new.field(name).type
        inner = kind.value_field if name == "points" else kind.item_field
        assert int(inner.metadata[ID]) == table.find_field(way).field_id
        assert inner.type == twin
        assert [int(part.metadata[ID]) for part in inner.type] == [
            table.find_field(f"{way}.{inner_field}").field_id for inner_field in ("x", "at")
        ]
    assert int(new.field("by_name").type.key_field.metadata[ID]) == table.find_field("by_name.key").field_id
    with pytest.raises(KeyError):
        numbered(pa.schema([pa.field("other", pa.int32())]), table)


# --- --partition-by ---------------------------------------------------------------------------------------------------

EVENTS = EventSchema(
    "e", "ts", (Field("ts", "long", required=True), Field("at", "iso8601"), Field("who", "string"))
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("ts", f"truncate[{HOUR_MS}]", "event_hour")]),
        ("none", []),
        ("who", [("who", "identity", None)]),
        (" who ", [("who", "identity", None)]),
        ("identity(who)", [("who", "identity", None)]),
        ("identity( who )", [("who", "identity", None)]),
        ("day(at), bucket[16](who)", [("at", "day", None), ("who", "bucket[16]", None)]),
        ("who,hour(at)", [("who", "identity", None), ("at", "hour", None)]),
        ("truncate[2](who)", [("who", "truncate[2]", None)]),
        ("bucket[10](who),bucket[01](who)", [("who", "bucket[10]", None), ("who", "bucket[1]", None)]),
        ("year(at),month(at)", [("at", "year", None), ("at", "month", None)]),
        ("none,who", [("none", "identity", None), ("who", "identity", None)]),
    ],
)
def test_a_table_is_partitioned_as_it_is_said(text: str, expected: list[tuple[str, str, str | None]]) -> None:
    fields = [(column, str(kind), name) for column, kind, name in table_schema.partition_fields(text, EVENTS)]
    assert fields == expected


def test_default_partitioning_is_the_hour_of_the_event() -> None:
    timed = EventSchema("e", "at", (Field("at", "iso8601", required=True),))
    [(column, kind, name)] = table_schema.partition_fields("", timed)
    assert (column, str(kind), name) == ("at", "hour", "event_hour")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bucket(who)", "bucket(who)"),
        ("who, often(who)", "often(who)"),
        ("bucket[x](who)", "bucket[x](who)"),
        ("bucket[0](who)", "bucket[0](who)"),
        ("who,truncate[00](who)", "truncate[00](who)"),
        ("day(at", "day(at"),
        ("who,", ""),
        ("day()", "day()"),
        ("DAY(at)", "DAY(at)"),
        ("unknown(at)", "unknown(at)"),
    ],
)
def test_another_partitioning_is_named_with_what_there_is(text: str, part: str) -> None:
    with pytest.raises(UsageError) as raised:
        [*table_schema.partition_fields(text, EVENTS)]
    assert str(raised.value) == (
        f"--partition-by {part!r}: none, or TRANSFORM(FIELD) with year, month, day, hour, identity, "
        "bucket[N], truncate[W], separated by commas"
    )


def test_impossible_partitioning_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--partition-by day\(ts\): .+"):
        Table(local_place(tmp_path, "day(ts)")).prepare(SCHEMA)

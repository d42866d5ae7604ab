"""Columns and partitions of tables: numbers and widths in files, what fits into what, and the words of --partition-by."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from barnabas_pipeline.lake.pyiceberg_internals import schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import iceberg, scan
from barnabas_pipeline.lake.columns import COORDINATES, DEAD_SCHEMA, event_hours, lake_schema, span_of
from barnabas_pipeline.lake.files import dead_columns, describe, read_dead, write_dead
from barnabas_pipeline.lake.iceberg import FileBounds, _fits, numbered
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile
from barnabas_pipeline.lake.scan import Piece, names_in, pieces_of
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import EventSchema, Field

from .tables import BEGAN_MS, SCHEMA, load, local_place, rows, stock

ID = b"PARQUET:field_id"


def list_of(kind: IcebergType) -> ListType:
    return ListType(1, kind, element_required=False)


def map_of(key: IcebergType, value: IcebergType) -> MapType:
    return MapType(1, key, 2, value, value_required=False)


def struct_of(**fields: IcebergType) -> StructType:
    return StructType(
        *(NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(fields.items(), 1))
    )


I, L, S, F, D = IntegerType(), LongType(), StringType(), FloatType(), DoubleType()  # noqa: E741


# --- what fits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "known", "expected"),
    [
        (I, I, True),
        (I, L, True),
        (L, I, False),
        (F, D, True),
        (D, F, False),
        (I, D, False),
        (F, L, False),
        (S, L, False),
        (DecimalType(9, 2), DecimalType(9, 2), True),
        (DecimalType(9, 2), DecimalType(10, 2), True),
        (DecimalType(10, 2), DecimalType(9, 2), False),
        (DecimalType(9, 2), DecimalType(10, 3), False),
        (DecimalType(9, 3), DecimalType(10, 2), False),
        (list_of(I), list_of(L), True),
        (list_of(L), list_of(I), False),
        (list_of(I), I, False),
        (I, list_of(I), False),
        (map_of(S, I), map_of(S, L), True),
        (map_of(S, L), map_of(S, I), False),
        (map_of(I, S), map_of(L, S), True),
        (map_of(L, S), map_of(I, S), False),
        (map_of(S, I), list_of(I), False),
        (struct_of(a=I), struct_of(a=L), True),
        (struct_of(a=L), struct_of(a=I), False),
        (struct_of(a=I), struct_of(b=S, a=I), True),
        (struct_of(a=I, b=S), struct_of(a=I), False),
        (struct_of(a=I, b=S), struct_of(b=S, a=L), True),
        (struct_of(a=list_of(struct_of(b=I))), struct_of(a=list_of(struct_of(b=S))), False),
        (struct_of(), struct_of(a=I), True),
        (struct_of(a=I), I, False),
    ],
    ids=str,
)
def test_a_table_holds_values_of_a_type_that_is_as_wide_or_narrower(
    kind: IcebergType, known: IcebergType, expected: bool
) -> None:
    assert _fits(kind, known) is expected


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_columns_of_a_file_have_the_numbers_and_widths_of_the_table() -> None:
    point = pa.struct([pa.field("x", pa.int8()), pa.field("at", pa.timestamp("ns", "UTC"))])
    given = pa.schema(
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
                given.field(n).with_type({0: pa.int32(), 4: pa.timestamp("us")}.get(n, given.field(n).type))
                for n in range(5)
            ),
            pa.field("points", pa.list_(twin)),
        ]
    )
    table = assign_fresh_schema_ids(schema_without_ids(as_table))
    found = numbered(given, table)
    assert found.names == given.names
    for field in found:
        assert int(field.metadata[ID]) == table.find_field(field.name).field_id
    assert [found.field(n).type for n in ("small", "int", "long", "float", "local", "half")] == [
        pa.int32(), pa.int32(), pa.int64(), pa.float32(), pa.timestamp("us"), pa.float16(),
    ]  # fmt: skip
    assert [one.nullable for one in found] == [True, True, False, *[True] * 5]
    for name, way in (("points", "points.element"), ("by_name", "by_name.value")):
        kind = found.field(name).type
        inner = kind.value_field if name == "points" else kind.item_field
        assert int(inner.metadata[ID]) == table.find_field(way).field_id
        assert inner.type == twin
        assert [int(one.metadata[ID]) for one in inner.type] == [
            table.find_field(f"{way}.{one}").field_id for one in ("x", "at")
        ]
    assert int(found.field("by_name").type.key_field.metadata[ID]) == table.find_field("by_name.key").field_id
    with pytest.raises(KeyError):
        numbered(pa.schema([pa.field("other", pa.int32())]), table)


def test_columns_of_a_file_are_found_by_their_numbers_else_by_their_names() -> None:
    table = SimpleNamespace(
        fields=[
            NestedField(n, name, StringType(), required=False)
            for n, name in ((1, "a"), (2, "b"), (3, "_topic_partition"))
        ]
    )

    def field(name: str, number: int | None) -> Any:
        return pa.field(name, pa.string(), metadata={} if number is None else {ID: b"%d" % number})

    for fields, expected in (
        ([field("a", 2), field("x", 1)], {"a": "x", "b": "a"}),
        ([field("a", 9), field("b", None)], {}),
        ([field("b", None), field("a", None)], {"a": "a", "b": "b"}),
        ([pa.field("a", pa.string())], {"a": "a"}),
        ([field("_partition", None), field("b", None)], {"b": "b", "_topic_partition": "_partition"}),
        ([field("_partition", 7), field("b", 2)], {"b": "b"}),
        ([], {}),
    ):
        assert names_in(pa.schema(fields), table) == expected


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
    found = [(column, str(kind), name) for column, kind, name in iceberg._partition_fields(text, EVENTS)]
    assert found == expected


def test_by_default_a_table_is_partitioned_by_the_hour_of_the_event() -> None:
    timed = EventSchema("e", "at", (Field("at", "iso8601", required=True),))
    [(column, kind, name)] = iceberg._partition_fields("", timed)
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
        [*iceberg._partition_fields(text, EVENTS)]
    assert str(raised.value) == (
        f"--partition-by {part!r}: none, or TRANSFORM(FIELD) with year, month, day, hour, identity, "
        "bucket[N], truncate[W], separated by commas"
    )


def test_a_partitioning_that_columns_cannot_have_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--partition-by day\(ts\): .+"):
        Table(local_place(tmp_path, "day(ts)")).prepare(SCHEMA)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_a_table_has_the_fields_of_the_event_and_then_the_coordinates() -> None:
    found = lake_schema(SCHEMA)
    assert found.names == [*(one.name for one in SCHEMA.fields), *(one.name for one in COORDINATES)]
    assert event_hours(pa.chunked_array([[0, HOUR_MS - 1, HOUR_MS, -1, 2 * HOUR_MS]])).tolist() == [
        0,
        0,
        1,
        -1,
        2,
    ]
    assert span_of(pa.chunked_array([[5, 3], [9, 4]])) == (3, 9)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_described_as_one_that_was_written(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    made = load(place, 5)
    table = Table(place)
    metadata, io = table.layout.open()
    [written] = made.add
    again = DataFile(written.path, 5, written.size, written.sha256, "id")
    assert describe(io, metadata, again) is again
    assert again.iceberg == written.iceberg
    assert again.iceberg["partition"] == (BEGAN_MS,)
    plain = tmp_path / "plain.parquet"
    pq.write_table(rows(0, 5).rename_columns({"_topic_partition": "_partition"}), plain)
    names = {"_topic_partition": "_partition"}
    as_written = Schema(
        *(one.model_copy(update={"name": names.get(one.name, one.name)}) for one in metadata.schema().fields)
    )
    found = describe(io, metadata, DataFile(f"file://{plain}", 5, 1, "", "id"), as_written=as_written).iceberg
    assert found["lower_bounds"] == written.iceberg["lower_bounds"]
    assert found["partition"] == (BEGAN_MS,)


def test_dead_letters_keep_their_columns_and_numbers(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 1)
    table = Table(place)
    letters = pa.Table.from_pylist([{"offset": 5, "end_offset": 9, "reason": "crc"}], DEAD_SCHEMA)
    made = write_dead(table.layout, letters, "id", 4)
    assert made.path.startswith(f"{place.location}/dead/")
    assert (made.offset_min, made.offset_max, made.offsets, made.rows) == (5, 8, 4, 1)
    file = pq.ParquetFile(made.path.removeprefix("file://")).schema_arrow
    assert [int(field.metadata[ID]) for field in file] == [one.field_id for one in dead_columns().fields]
    assert [one.name for one in dead_columns().fields] == DEAD_SCHEMA.names == file.names
    assert read_dead(table.io, made.path).schema == DEAD_SCHEMA


# --- pieces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "wanted", "expected"),
    [
        (FileBounds("", 2, 10, 19), (2, 19, 30), True),
        (FileBounds("", 2, 10, 19), (2, 20, 30), False),
        (FileBounds("", 2, 10, 19), (2, 0, 10), False),
        (FileBounds("", 2, 10, 19), (2, 0, 11), True),
        (FileBounds("", 2, 10, 19), (3, 10, 20), False),
        (FileBounds("", -1, 10, 19), (3, 10, 20), True),
        (FileBounds("", -1, 10, 19), (3, 20, 30), False),
        (FileBounds("", 2, -1, -1), (2, 99, 100), True),
        (FileBounds("", 2, 0, 0), (2, 0, 1), True),
        (FileBounds("", 2, 0, 0), (2, 1, 9), False),
        (FileBounds("", 2, -1, 19), (2, 0, 1), True),
    ],
)
def test_a_piece_may_have_offsets_within_its_bounds(
    bounds: FileBounds, wanted: tuple[int, int, int], expected: bool
) -> None:
    assert Piece("p", bounds=bounds).may_have(*wanted) is expected
    assert Piece("p").may_have(*wanted), "of which nothing is known"


def test_pieces_say_what_a_snapshot_does_and_make_the_same_tasks(tmp_path: Path) -> None:
    place = local_place(tmp_path, "identity(member)")
    load(place, 2)
    table = stock(place)
    tasks = sorted(table.scan().plan_files(), key=lambda one: one.file.partition[0])
    found = pieces_of(tasks, table.schema())
    assert [(one.path, one.format, one.size, one.rows, one.partition, one.deletes) for one in found] == [
        (one.file.file_path, "PARQUET", one.file.file_size_in_bytes, 1, (f"m{n}",), ())
        for n, one in enumerate(tasks)
    ]
    assert [one.bounds for one in found] == [FileBounds("id", 0, n, n) for n in range(2)]
    assert {one.spec_id for one in found} == {table.spec().spec_id}
    assert [one.bounds for one in pieces_of(tasks, None)] == [FileBounds("", -1, -1, -1)] * 2
    deleted = Piece("file:///a", "ORC", 70, 5, 3, ("x",), (("file:///d", "AVRO"), ("file:///e", "PARQUET")))
    task = deleted.task()
    assert (task.file.file_path, task.file.file_format.name, task.file.file_size_in_bytes) == (
        "file:///a",
        "ORC",
        70,
    )
    assert (task.file.record_count, task.file.spec_id, task.file.partition[0]) == (5, 3, "x")
    assert sorted((one.file_path, one.file_format.name, one.content.name) for one in task.delete_files) == [
        ("file:///d", "AVRO", "POSITION_DELETES"),
        ("file:///e", "PARQUET", "POSITION_DELETES"),
    ]
    again = pieces_of([task], None)[0]
    assert (again.path, again.format, again.size, again.rows, again.spec_id, again.partition) == (
        deleted.path, "ORC", 70, 5, 3, ("x",),
    )  # fmt: skip
    assert sorted(again.deletes) == sorted(deleted.deletes)


def test_a_span_of_time_is_asked_for_in_the_type_of_its_column() -> None:
    schema = Schema(
        NestedField(1, "ms", LongType(), required=False),
        NestedField(2, "at", TimestamptzType(), required=False),
    )
    low, high = 1_500, 90_061_000
    assert str(scan.within(("ms", low, high), schema)) == str(
        scan.And(scan.GreaterThanOrEqual("ms", low), scan.LessThan("ms", high))
    )
    assert str(scan.within(("at", low, high), schema)) == str(
        scan.And(
            scan.GreaterThanOrEqual("at", "1970-01-01T00:00:01.500000+00:00"),
            scan.LessThan("at", "1970-01-02T01:01:01+00:00"),
        )
    )
    assert scan.within(None, schema) == scan.AlwaysTrue()

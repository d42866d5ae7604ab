"""Reading files of a table: events of some time, columns by field id, and no row that another engine has deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake import scan as scan_module
from barnabas_pipeline.lake.columns import COORDINATES, lake_schema
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.iceberg import NAME_MAPPING
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import EventSchema, Field
from tests.support.effort import drawing

from .tables import BEGAN_MS, GROWN, SCHEMA, entry_of, load, local_place, rows, stock

OFFSETS = pa.schema([field for field in COORDINATES if field.name == "_offset"])


def offsets(table: Table, pieces: list[Piece], **more: Any) -> list[int]:
    parts = scan_module.rows(table.layout, pieces, OFFSETS, **more)
    return sorted(offset for part in parts for offset in part["_offset"].to_pylist())


# --- events of some time ----------------------------------------------------------------------------------------------


TIMES_MS = [BEGAN_MS + n * HOUR_MS // 4 + shift for n in range(12) for shift in (-1, 0, 1)]


@pytest.mark.parametrize("kind", ["long", "timestamp_us", "iso8601"])
@pytest.mark.parametrize("partition_by", ["", "none"])
def test_time_span_includes_its_start_and_excludes_its_end(
    tmp_path: Path, kind: str, partition_by: str
) -> None:
    schema = EventSchema("timed", "at", (Field("at", kind, required=True),))
    at = schema.arrow.field("at")
    times: list[Any] = TIMES_MS
    if pa.types.is_timestamp(at.type):
        times = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms) for time_ms in TIMES_MS]
    others = {field.name: None for field in COORDINATES} | {"_topic_id": "id", "_topic_partition": 0}
    events = [{"at": time, **others, "_offset": n} for n, time in enumerate(times)]
    table = Table(local_place(tmp_path, partition_by))
    table.prepare(schema)
    writer = TableWriter(table.layout, schema, "id", 0)
    writer.write(pa.Table.from_pylist(events, lake_schema(schema)))
    entry = entry_of(table, "load", schema)
    entry.add = writer.close()
    table.commit(entry)
    edges = [BEGAN_MS + n * HOUR_MS // 4 + shift for n in (0, 3, 4, 8, 20) for shift in (-1, 0, 1)]
    read = set()
    for low in edges:
        for high in edges:
            span = ("at", low, high)
            expected = [n for n, time in enumerate(TIMES_MS) if low <= time < high]
            pieces = table.pieces(span=span)
            assert offsets(table, pieces, span=span) == expected, (low, high)
            assert offsets(table, table.pieces(), span=span) == expected, "whatever files are read"
            read.add(len(pieces))
    assert read == ({0, 1} if partition_by else {0, 1, 2, 3, 4}), (
        "files that have nothing of that time are not"
    )
    first = ("at", BEGAN_MS, BEGAN_MS + 1)
    for asked in (OFFSETS, pa.schema([at, *OFFSETS])):
        [part] = scan_module.rows(table.layout, table.pieces(), asked, first)
        assert (part.schema, part["_offset"].to_pylist()) == (asked, [1]), "with the time if it is asked for"


# --- rows that were deleted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", range(4))
def test_deleted_positions_count_within_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int
) -> None:
    """Position deletes as an engine writes them that merges on read: several files of them, which name other files too."""
    monkeypatch.setattr(scan_module, "BATCH_ROWS", 7)
    draw = drawing(run)
    place = local_place(tmp_path, "none")
    load(place, 60)
    table = Table(place)
    [piece] = table.pieces()
    deleted = sorted({0, 59, *draw.sample(range(60), 15)}) if run else []
    named = []
    for n in range(2):
        path = f"{place.location}/data/deletes-{n}.parquet"
        mine = deleted[n::2]
        rows = {"file_path": [piece.path] * len(mine) + ["file:///other"], "pos": [*mine, 5]}
        schema = pa.schema([
            pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"}),
            pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"}),
        ])  # fmt: skip
        pq.write_table(pa.table(rows, schema), path.removeprefix("file://"))
        named.append((path, "PARQUET"))
    remaining = [n for n in range(60) if n not in deleted]
    assert offsets(table, [replace(piece, deletes=tuple(named))]) == remaining
    assert offsets(table, [piece]) == list(range(60))


# --- columns ----------------------------------------------------------------------------------------------------------


def test_renamed_column_ends_a_read_with_its_name(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 3)
    with stock(place).update_schema() as update:
        update.rename_column("member", "who")
    table = Table(place)
    asked = pa.schema([pa.field("who", pa.string())])
    with pytest.raises(UsageError, match="no column member that fits"):
        pa.concat_tables(scan_module.rows(table.layout, table.pieces(), asked))


def test_files_without_field_ids_are_read_by_name(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 3)
    table = Table(place)
    written = rows(3, 4, SCHEMA)
    for name in ("_topic_partition", "_partition"):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(written.rename_columns({"_topic_partition": name}), path)
        for asked in (lake_schema(SCHEMA), lake_schema(SCHEMA).field("_topic_partition")):
            schema = asked if isinstance(asked, pa.Schema) else pa.schema([asked])
            read = pa.concat_tables(scan_module.rows(table.layout, [Piece(f"file://{path}")], schema))
            assert read.to_pylist() == written.select(schema.names).to_pylist()


@pytest.mark.parametrize("form", ["ORC", "PARQUET"])
def test_identity_partition_value_replaces_a_missing_column(tmp_path: Path, form: str) -> None:
    """As engines take over files of Hive's: without field ids, and without the column that they are partitioned by."""
    place = local_place(tmp_path, "identity(member)")
    load(place, 3)
    table = Table(place)
    with stock(place).transaction() as transaction:
        transaction.set_properties({NAME_MAPPING: stock(place).schema().name_mapping.model_dump_json()})
    table.refresh()
    written = rows(3, 4, SCHEMA).select(["ts", "ip", "_offset"])
    (orc if form == "ORC" else pq).write_table(written, tmp_path / "x")
    piece = Piece(f"file://{tmp_path}/x", form, rows=4, spec_id=stock(place).spec().spec_id, partition=("m",))
    asked = pa.schema(
        [written.schema.field("_offset"), pa.field("member", pa.string()), written.schema.field("ts")]
    )
    read = pa.concat_tables(scan_module.rows(table.layout, [piece], asked))
    assert read.schema == asked
    assert read.to_pylist() == [
        {"_offset": row["_offset"], "member": "m", "ts": row["ts"]} for row in written.to_pylist()
    ]


# --- tasks of Spark ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [1, 2, 16])
def test_files_are_split_into_tasks_of_bounded_size_and_number(parallel: int) -> None:
    for count in [*range(1, 70), 1000, 1001]:
        tasks = frames.task_count(count, parallel)
        sizes = [len(part) for part in np.array_split(np.arange(count), tasks)]
        assert 1 <= min(sizes) <= max(sizes) <= frames.FILES_PER_TASK_MAX
        assert tasks == min(count, max(2 * parallel, tasks)), "all that can run at the same time, twice"
        assert tasks <= 2 * parallel or max(sizes) > frames.FILES_PER_TASK_MAX / 2


class Frames:
    """Spark as far as frames of a table need it, which are Arrow tables here."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.sparkContext = self
        self.slices: list[int] = []

    def parallelize(self, items: list[Any], slices: int) -> list[Any]:
        self.slices.append(slices)
        return items

    def createDataFrame(self, items: list[Any], schema: Any) -> Any:  # noqa: N802 - Spark's name
        return Frame(items, schema)


class Frame:
    """Items of which tables are read."""

    def __init__(self, items: list[Any], schema: Any) -> None:
        self.items, self.schema = items, schema

    def mapInArrow(self, work: Any, schema: Any) -> Any:  # noqa: N802 - Spark's name
        batches = [
            pa.RecordBatch.from_pydict({"item": pa.array([item], pa.binary())}) for (item,) in self.items
        ]
        frame = Frame([row for batch in work(iter(batches)) for row in batch.to_pylist()], schema)
        assert all(list(row) == schema.names for row in frame.items)
        return frame


def test_frame_has_the_columns_and_time_span_of_a_version(tmp_path: Path) -> None:
    place, spark = local_place(tmp_path), Frames()
    with pytest.raises(ValueError, match="there is no table"):
        frames.events(spark, Table(place))
    load(place, 0)
    empty = frames.events(spark, Table(place))
    assert (empty.items, empty.schema.names) == ([], lake_schema(SCHEMA).names)
    assert frames.dead_letters(spark, Table(place)).items == []
    assert spark.slices == [], "there is nothing to read"
    load(place, 25, dead=2)
    load(place, 10, GROWN)
    table = Table(place)

    def found(**more: Any) -> list[int]:
        return sorted(row["_offset"] for row in frames.events(spark, table, **more).items)

    assert found() == [*range(25), *range(27, 37)]
    assert (found(version=2), found(version=1)) == ([*range(25)], [])
    assert found(span_ms=(BEGAN_MS + HOUR_MS, BEGAN_MS + 3 * HOUR_MS)) == [*range(10, 25), 27, 28, 29]
    some = frames.events(spark, table, columns=["_offset", "member", "nothing"])
    assert some.schema.names == ["member", "_offset"]
    assert {row["member"] for row in some.items} == {f"m{n}" for n in found()}
    devices = {row["_offset"]: row["device"] for row in frames.events(spark, table).items}
    assert devices == {n: None if n < 25 else f"d{n}" for n in found()}
    letters = frames.dead_letters(spark, table).items
    assert [(row["offset"], row["value"]) for row in letters] == [(25, b"no JSON"), (26, b"no JSON")]
    assert {*spark.slices} <= {1, 2, 3, 4}

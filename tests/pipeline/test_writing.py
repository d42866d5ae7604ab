"""Files that are written for a table and what an entry says of them; objects of a store, locations, columns that grow."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal as DecimalValue
from io import BufferedWriter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.field_types import Array, Decimal, Field, Record
from barnabas_pipeline.lake import current, files, hdfs, iceberg, scan, store, table_schema
from barnabas_pipeline.lake.changes import Moment, Shape
from barnabas_pipeline.lake.columns import COORDINATES, DEAD_SCHEMA, lake_schema
from barnabas_pipeline.lake.current import Applied
from barnabas_pipeline.lake.files import TableWriter, read_dead, write_dead
from barnabas_pipeline.lake.ledger import HOUR_MS, BrokenLakeError
from barnabas_pipeline.lake.store import StoreIO, local_path, location_of, put_if_absent, sha256_of
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.schema import EventSchema
from tests.support.effort import drawing

from .stores import Where
from .tables import BEGAN_MS, GROWN, SCHEMA, entry_of, load, local_place, rows, stock

# --- files of rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", ["", "none", "bucket[4](member), identity(ip)"])
@pytest.mark.parametrize("run", range(3))
def test_files_have_all_rows_once_with_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int, partition_by: str
) -> None:
    """Portions of rows of any hours, few files open at once, and files that are followed by others when they are large."""
    monkeypatch.setattr(files, "OPEN_FILES_MAX", 3)
    draw = drawing(run)
    table = Table(local_place(tmp_path, partition_by))
    table.prepare(SCHEMA)
    target = draw.choice([2_000, 1 << 20])
    writer = TableWriter(table.layout, SCHEMA, "id", 2, target_bytes=target)
    every: dict[int, Any] = {}
    for _ in range(20):
        start = draw.randrange(100)
        part = [r for r in rows(start, draw.randrange(1, 25)).to_pylist() if r["_offset"] not in every]
        draw.shuffle(part)
        every |= {r["_offset"]: r for r in part}
        if part:
            writer.write(pa.Table.from_pylist(part, lake_schema(SCHEMA)))
        assert len(writer._open) <= 3
    written = writer.close()
    seen_offsets: list[int] = []
    partitions = defaultdict(list)
    for file in written:
        path = local_path(file.path)
        assert path is not None
        mine = pq.read_table(path).to_pylist()
        offsets, times = [row["_offset"] for row in mine], [row["ts"] for row in mine]
        assert [row | {"_timestamp": None} for row in mine] == [
            every[n] | {"_timestamp": None} for n in offsets
        ]
        assert (file.rows, file.topic_id, file.partition) == (len(mine), "id", 2)
        assert (file.offset_min, file.offset_max) == (min(offsets), max(offsets))
        assert (file.event_time_min, file.event_time_max) == (min(times), max(times))
        assert file.hours == sorted({at // HOUR_MS for at in times})
        assert (file.size, file.sha256) == sha256_of(StoreIO({}), file.path)
        assert file.iceberg["record_count"] == len(mine)
        partitions[file.iceberg["partition"]].append(file)
        seen_offsets += offsets
    assert sorted(seen_offsets) == sorted(every)
    if partition_by == "none":
        assert (len(written) == 1) is (target > 2_000), "a large file is followed by another"
        assert [*partitions] == [()]
    elif not partition_by:
        assert all([*file.hours] == [key[0] // HOUR_MS] for key, ones in partitions.items() for file in ones)
        assert {key[0] // HOUR_MS for key in partitions} == {r["ts"] // HOUR_MS for r in every.values()}


def test_dead_letter_file_has_offsets_and_reasons(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 1)
    table = Table(place)
    spans = [(7, 8, "json"), (3, 6, "damaged"), (9, 10, "json")]
    letters = pa.Table.from_pylist(
        [
            {"offset": low, "end_offset": high, "reason": why, "timestamp_ms": n}
            for n, (low, high, why) in enumerate(spans)
        ],
        DEAD_SCHEMA,
    )
    dead = write_dead(table.layout, letters, "id", 4)
    assert (dead.rows, dead.topic_id, dead.partition, dead.offset_min, dead.offset_max, dead.offsets) == (
        3, "id", 4, 3, 9, 5,
    )  # fmt: skip
    assert dead.reasons == {"json": 2, "damaged": 1}
    assert (dead.size, dead.sha256) == sha256_of(StoreIO({}), dead.path)
    assert read_dead(table.io, dead.path).equals(letters)
    times = pa.array([0, 1_500_000, None], pa.timestamp("us", "UTC"))
    earlier = letters.drop(["timestamp_ms", "timestamp"]).append_column("timestamp", times)
    pq.write_table(earlier, tmp_path / "earlier.parquet")
    old = read_dead(table.io, f"file://{tmp_path}/earlier.parquet")
    assert old.schema.names == DEAD_SCHEMA.names
    assert old["timestamp_ms"].to_pylist() == [0, 1500, None]


# --- objects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "location", "path"),
    [
        ("/a/b", "file:///a/b", "/a/b"),
        ("/a/../a/b/", "file:///a/../a/b", "/a/../a/b"),
        ("file:/a/b", "file:///a/b", "/a/b"),
        ("file:///a%20b", "file:///a b", "/a b"),
        ("FILE://localhost/a", "file:///a", "/a"),
        ("s3://b/l/", "s3://b/l", None),
        ("S3A://B/L", "s3a://B/L", None),
        ("s3://b/a%20b", "s3://b/a%20b", None),
        ("hdfs:/l", "hdfs:///l", None),
        ("hdfs:///l//", "hdfs:///l", None),
        ("abfss://c@a.x/l", "abfss://c@a.x/l", None),
    ],
)
def test_a_place_has_one_location_however_it_is_named(name: str, location: str, path: str | None) -> None:
    assert location_of(name) == location
    assert location_of(location.replace(" ", "%20")) == location
    assert local_path(location) == (None if path is None else Path(path))
    assert local_path(name.partition(":")[2]) is None, "what is no location is no path"


def test_a_relative_place_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert location_of("a/b") == location_of(Path("a/b")) == f"file://{tmp_path}/a/b"
    for name in ("a#b", "a?b", "a%b", "file:/a%23b", "file:/a%25b", "file://elsewhere/a"):
        with pytest.raises(UsageError):
            location_of(name)


@pytest.mark.parametrize("where", ["local", "s3", "hdfs"], indirect=True)
def test_first_object_has_the_name_until_it_is_replaced(where: Where) -> None:
    location = f"{where.location}/below/x"
    assert put_if_absent(where.io, location, b"one")
    assert not put_if_absent(where.io, location, b"two")
    assert where.all() == {"below/x": b"one"}
    for data in (b"three", b""):
        store.replace(where.io, location, data)
        assert where.all() == {"below/x": data}
    store.replace(where.io, f"{where.location}/y", b"four")
    assert where.all() == {"below/x": b"", "y": b"four"}


def test_existing_object_is_overwritten_on_request_only(tmp_path: Path) -> None:
    io, location = StoreIO({}), f"file://{tmp_path}/below/x"
    with io.new_output(location).create() as stream:
        stream.write(b"one")
    with pytest.raises(FileExistsError, match="already exists"):
        io.new_output(location).create()
    store.write(io, location, b"two" * 1_000_000)
    assert store.read(io, location) == b"two" * 1_000_000
    assert sha256_of(io, location)[0] == 3_000_000
    assert [entry.location for entry in store.listing(io, f"file://{tmp_path}")] == [location]
    assert [*store.listing(io, f"file://{tmp_path}/nowhere")] == []
    with pytest.raises(UsageError, match="cannot list"):
        [*store.listing(SimpleNamespace(), location)]  # type: ignore[arg-type]


class Remote:
    """A file of a library that raises RuntimeErrors."""

    def __init__(self, error: str = "") -> None:
        self.done: list[Any] = []
        self.error = error

    def write(self, data: Any) -> int:
        self.done.append(bytes(data))
        return len(data)

    def hsync(self) -> None:
        self.done.append("synced")
        if self.error:
            raise RuntimeError(self.error)

    def close(self) -> None:
        self.done.append("closed")


def test_a_file_of_hdfs_is_synced_before_it_is_closed_once() -> None:
    remote = Remote()
    stream = hdfs.SyncedWriter(remote)
    with BufferedWriter(stream) as buffered:
        buffered.write(b"some")
    stream.close()
    assert remote.done == [b"some", "synced", "closed"]
    stream = hdfs.SyncedWriter(hdfs.Raising(Remote(r"away\n at org.apache")))
    with pytest.raises(OSError, match=r"^HDFS: away$"):
        stream.close()
    assert stream.closed
    with pytest.raises(AttributeError):
        _ = hdfs.Raising(Remote()).nothing


# --- entries of current rows ------------------------------------------------------------------------------------------

APPLIED = Applied(
    7, "p", "d", "before", "its path", Shape(("a", "b"), "debezium", 5), 3, "of events", "id", {0: 5, 11: 7},
    Moment(1, 2, 3, 4), {2: "gone"}, 6, "asked for",
)  # fmt: skip


@pytest.mark.parametrize(
    "applied", [APPLIED, replace(APPLIED, truncated=None, gone=None, shape=Shape((), "none", 1))]
)
def test_entry_of_current_rows_round_trips(applied: Applied) -> None:
    data = applied.encode()
    decoded = Applied.decode("elsewhere", data)
    assert decoded == replace(applied, path="elsewhere", digest=decoded.digest)
    assert type(decoded.truncated) is type(applied.truncated), "moments can be compared with others"
    assert decoded.digest == iceberg_digest(data)


def iceberg_digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_invalid_entry_of_current_rows_is_a_broken_lake() -> None:
    good = json.loads(APPLIED.encode())
    broken: list[bytes] = [b"", b"[]", b"{}", b'"x"']
    broken += [json.dumps({**good, **more}).encode() for more in (
        {"format": 2}, {"more": 1}, {"shape": None}, {"shape": {}}, {"ends": {"x": 1}}, {"ends": [1]}, {"gone": 5},
        {"truncated": 5}, {"truncated": [1]},
    )]  # fmt: skip
    for data in broken:
        with pytest.raises(BrokenLakeError, match=r"^p "):
            Applied.decode("p", data)


@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 3, 3], [10, 1], [4, 5, 1, 0, 9, 30, 2], [5, 5]])
def test_blocks_have_all_rows_in_order_and_a_minimum_size(sizes: list[int]) -> None:
    numbers = iter(range(1000))
    tables = [pa.table({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    blocks = list(current.blocks_of(iter(tables), 5))
    assert [n for block in blocks for n in block["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(len(block) >= 5 for block in blocks[:-1])
    assert all(len(block) < 5 + max(sizes) for block in blocks)


def test_of_a_bucket_with_many_rows_there_are_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "TARGET_FILE_BYTES", 400)
    place = local_place(tmp_path)
    load(place, 1)
    layout = Table(place).layout
    metadata, io = layout.open()
    for count in (0, 1, 40):
        columns = rows(0, count) if count else lake_schema(SCHEMA).empty_table()
        written = list(current.data_files(metadata, io, 3, columns))
        assert sum(file.rows for file in written) == count
        assert len(written) == min(count, -(-columns.nbytes // 400))
        paths = [str(local_path(file.path)) for file in written]
        assert [n for path in paths for n in pq.read_table(path)["_offset"].to_pylist()] == list(range(count))
        assert {file.iceberg["partition"] for file in written} <= {(3,)}
        assert [(file.size, file.sha256) for file in written] == [
            sha256_of(io, file.path) for file in written
        ]


# --- columns that grow ------------------------------------------------------------------------------------------------


def test_columns_are_added_beside_a_concurrent_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = local_place(tmp_path)
    load(place, 1)
    table, tried = stock(place), []
    update = type(table).update_schema

    def refuse(self: Any, *more: Any, **options: Any) -> Any:
        tried.append(1)
        if len(tried) < 3:
            raise CommitFailedException("another was faster")
        return update(self, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(table), "update_schema", refuse)
        table_schema.evolve(table, lake_schema(GROWN))
        assert len(tried) == 3
        table_schema.evolve(table, lake_schema(GROWN))
        assert len(tried) == 3, "there is nothing to add"
    assert "device" in stock(place).schema().column_names
    monkeypatch.setattr(type(table), "update_schema", lambda *_, **__: refuse_always())
    with pytest.raises(IncompleteError, match="others change the schema of barnabas"):
        table_schema.evolve(table, pa.schema([pa.field("more", pa.string())]))


RECORD = Record((Field("a", "int"),))
WIDER = Record((Field("a", "long"), Field("b", "string")))


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ("int", "long", (5, 1 << 40)),
        ("long", "int", (1 << 40, 5)),
        ("float", "double", (0.5, 1e300)),
        ("double", "float", (1e300, 0.5)),
        (Decimal(9, 2), Decimal(20, 2), (DecimalValue("1.50"), DecimalValue("123456789012.25"))),
        (Array(Field("value", "int")), Array(Field("value", "long")), ([5], [1 << 40])),
        (RECORD, WIDER, ({"a": 5}, {"a": 1 << 40, "b": "x"})),
        (WIDER, RECORD, ({"a": 1 << 40, "b": "x"}, {"a": 5})),
        ("long", "string", None),
        ("string", "long", None),
        ("string", "bytes", None),
        ("int", "double", None),
        ("long", RECORD, None),
        (RECORD, "long", None),
        (Array(Field("value", "int")), Array(Field("value", "string")), None),
        (Decimal(9, 2), Decimal(9, 3), None),
    ],
    ids=str,
)
def test_field_widens_its_column_and_other_types_are_refused(
    tmp_path: Path, before: Any, after: Any, values: Any
) -> None:
    place = local_place(tmp_path)
    for n, kind in enumerate((before, after)):
        schema = EventSchema("logins", "ts", (Field("ts", "long", required=True), Field("x", kind)))
        table = Table(place)
        if n and values is None:
            with pytest.raises(UsageError, match=r"table barnabas\.logins: "):
                table.prepare(schema)
            continue
        table.prepare(schema)
        writer = TableWriter(table.layout, schema, "id", 0)
        others = {field.name: None for field in COORDINATES} | {
            "_topic_id": "id",
            "_topic_partition": 0,
            "_offset": n,
        }
        row = {"ts": BEGAN_MS, "x": values[n] if values else None, **others}
        writer.write(pa.Table.from_pylist([row], lake_schema(schema)))
        entry = entry_of(table, "load", schema)
        entry.add = writer.close()
        table.commit(entry)
    if values is None:
        return
    widest = stock(place).scan().to_arrow().sort_by("_offset")
    assert [_without_nulls(value) for value in widest["x"].to_pylist()] == list(values)
    table = Table(place)
    asked = pa.schema([widest.schema.field(name) for name in ("x", "_offset")])
    read = pa.concat_tables(scan.rows(table.layout, table.pieces(), asked)).sort_by("_offset")
    assert read["x"].to_pylist() == widest["x"].to_pylist()


def _without_nulls(value: Any) -> Any:
    return {name: v for name, v in value.items() if v is not None} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [
        (OperationalError("CREATE TABLE", {}, Exception("table x already exists")), False),
        (OperationalError("CREATE TABLE", {}, Exception("database is locked")), True),
        (ZeroDivisionError("already exists"), True),
    ],
    ids=["made by another", "another error", "a mistake"],
)
def test_concurrent_creation_of_a_catalog_succeeds_for_both(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_raised: bool
) -> None:
    errors = [error]

    def loading(name: str, **properties: str) -> Any:
        if errors:
            raise errors.pop()
        return name, properties

    monkeypatch.setattr(iceberg, "load_catalog", loading)
    if is_raised:
        with pytest.raises(type(error)):
            iceberg.loaded_catalog("n", {"a": "b"})
    else:
        assert iceberg.loaded_catalog("n", {"a": "b"}) == ("n", {"a": "b"})
    assert errors == []


def refuse_always() -> Any:
    raise CommitFailedException("another was faster")


def test_the_event_hour_of_a_row_is_that_of_its_time(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 25)
    table = Table(place)
    assert sorted(piece.partition for piece in table.pieces()) == [
        ((BEGAN_MS // HOUR_MS + n) * HOUR_MS,) for n in range(3)
    ]

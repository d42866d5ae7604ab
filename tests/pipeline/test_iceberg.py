"""The lake as stock readers of Iceberg see it: rows, types, partitions, versions, what compaction and vacuum leave."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import scan as scan_module
from barnabas_pipeline.lake.columns import COORDINATES, lake_schema
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.iceberg import Lake, Place
from barnabas_pipeline.lake.ledger import HOUR_MS, hour_number
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import find_orphans, vacuum
from barnabas_pipeline.schema import EventSchema

from .tables import (
    BEGAN_MS,
    GROWN,
    ScriptedCatalogs,
    catalog,
    compact,
    entry_of,
    load,
    local_place,
    scan,
    stock,
    versions,
)


def test_snapshot_has_the_rows_and_the_name_of_its_entry(place: Place) -> None:
    load(place, 25)
    load(place, 10)
    assert scan(place) == list(range(35))
    table = Table(place)
    assert {task.file.file_path for task in stock(place).scan().plan_files()} == set(table.files().rows)
    assert versions(place) == ["1", "2"]
    summary = stock(place).current_snapshot().summary.additional_properties
    state = table.state()
    assert (summary["barnabas.ledger-path"], summary["barnabas.ledger-sha256"]) == (state.path, state.digest)
    properties = stock(place).properties
    assert (properties["barnabas.ledger-path"], properties["barnabas.ledger-sha256"]) == (
        state.path,
        state.digest,
    )
    assert summary["total-records"] == "35"
    assert len(json.dumps(summary)) < 1500, "metadata.json holds them all"


class AnySchema(EventSchema):
    """A schema of any Arrow types."""

    @property
    def arrow(self) -> Any:
        point = pa.struct([pa.field("x", pa.float64()), pa.field("tags", pa.list_(pa.string()))])
        return pa.schema(
            [
                pa.field("at", pa.timestamp("ms", "UTC")),
                pa.field("day", pa.date32()),
                pa.field("cost", pa.decimal128(20, 3)),
                pa.field("raw", pa.binary()),
                pa.field("point", point),
                pa.field("points", pa.list_(point)),
                pa.field("by_name", pa.map_(pa.string(), point)),
                pa.field("small", pa.int16()),
                pa.field("local", pa.timestamp("us")),
            ]
        )


@pytest.mark.parametrize(
    ("partition_by", "files"),
    [("", 2), ("day(at), bucket[4](raw)", 2), ("identity(day),truncate[2](raw)", 2), ("none", 1)],
)
def test_events_of_any_type_round_trip_in_any_partitioning(
    tmp_path: Path, partition_by: str, files: int
) -> None:
    place = local_place(tmp_path, partition_by)
    schema = AnySchema("any", "at", ())
    events = [
        {
            "at": datetime(2026, 11, 20 + n, 7, 1, 2, 345_000, UTC),
            "day": date(2026, 11, 20 + n),
            "cost": Decimal("12345678901234567.891"),
            "raw": b"\x00%d" % n,
            "point": {"x": 0.5, "tags": ["a", None]},
            "points": [{"x": None, "tags": []}, None],
            "by_name": [("k", {"x": 1.5, "tags": None})],
            "small": -7,
            "local": datetime(2026, 11, 20, 1, 2, 3, 4),
            **{field.name: None for field in COORDINATES},
            "_topic_id": "id",
            "_topic_partition": 0,
            "_offset": n,
        }
        for n in range(2)
    ]
    table = Table(place)
    table.prepare(schema)
    rows = pa.Table.from_pylist(events, lake_schema(schema))
    writer = TableWriter(table.layout, schema, "id", 0)
    writer.write(rows)
    closed = writer.close()
    assert len(closed) == files
    assert {hour for file in closed for hour in file.hours} == {
        hour_number("2026-11-20T07"), hour_number("2026-11-21T07")
    }  # fmt: skip
    entry = entry_of(table, "load")
    entry.add = closed
    table.commit(entry)
    parts = scan_module.rows(table.layout, table.pieces(), rows.schema)
    actual = pa.concat_tables(parts).sort_by("_offset")
    assert actual.to_pylist() == rows.to_pylist(), "null lists of structs are no empty ones"
    stocks = (
        stock(place).scan().to_arrow().sort_by("_offset").select(["at", "cost", "points", "by_name", "small"])
    )
    assert stocks.cast(pa.schema([rows.schema.field(name) for name in stocks.column_names])).to_pylist() == [
        {name: row[name] for name in stocks.column_names} for row in rows.to_pylist()
    ]


@pytest.mark.parametrize(
    ("partition_by", "why"),
    [
        ("day(ts)", "day"),
        ("bucket(member)", "none, or TRANSFORM"),
        ("often(member)", "none, or TRANSFORM"),
        ("hour", "hour"),
        ("identity(nothing)", "nothing"),
        ("bucket[4](member", "none, or TRANSFORM"),
    ],
)
def test_a_partitioning_that_does_not_fit_is_a_wrong_option(
    tmp_path: Path, partition_by: str, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        load(local_place(tmp_path, partition_by), 1)


def test_a_filter_on_the_event_time_opens_only_its_hours(place: Place) -> None:
    load(place, 50)
    low = BEGAN_MS + 2 * HOUR_MS
    asked = stock(place).scan(row_filter=f"ts >= {low} and ts < {low + HOUR_MS}")
    assert len(list(asked.plan_files())) == 1 < len(list(stock(place).scan().plan_files()))
    assert sorted(asked.to_arrow()["_offset"].to_pylist()) == list(range(20, 30))


def test_a_schema_that_grows_gives_old_rows_nulls(place: Place) -> None:
    load(place, 10)
    load(place, 10, GROWN)
    rows = stock(place).scan().to_arrow().sort_by("_offset")
    assert rows["device"].to_pylist() == [None] * 10 + [f"d{n}" for n in range(10, 20)]
    compact(place)
    again = stock(place).scan().to_arrow().sort_by("_offset")
    assert again["device"].to_pylist() == rows["device"].to_pylist()


def test_compaction_keeps_rows_and_vacuum_keeps_old_snapshots(place: Place) -> None:
    for _ in range(4):
        load(place, 15)
    old = {piece.path for piece in Table(place).pieces()}
    before = stock(place).current_snapshot().snapshot_id
    compact(place)
    assert scan(place) == list(range(60))
    old -= {piece.path for piece in Table(place).pieces()}
    assert old
    assert vacuum(place, age_seconds=3600) == 0
    assert scan(place, snapshot_id=before) == list(range(60)), "a snapshot that is kept keeps its files"
    assert vacuum(place, age_seconds=-1) > len(old)
    assert len(versions(place)) == 1
    assert not any(path is not None and path.exists() for path in map(local_path, old))
    assert scan(place) == list(range(60))
    assert [entry.version for entry in Table(place).entries()] == [1, 2, 3, 4, 5], "the ledger is kept"
    with pytest.raises(UsageError, match=r"version 2 of .* has expired"):
        Table(place).pieces(2)
    load(place, 5)
    assert scan(place) == list(range(65))


def test_a_load_may_keep_few_snapshots(place: Place) -> None:
    for _ in range(6):
        load(place, 5, keep_snapshots=3)
    assert versions(place) == ["4", "5", "6"]
    assert scan(place) == list(range(30))
    assert find_orphans(Table(place), 3600) == [], "files stay until somebody asks for them to go"


def test_a_snapshot_with_a_tag_is_kept_with_the_newest(place: Place) -> None:
    for _ in range(3):
        load(place, 5)
    table = stock(place)
    table.manage_snapshots().create_tag(table.snapshots()[1].snapshot_id, "kept").commit()
    load(place, 5, keep_snapshots=2)
    assert versions(place) == ["2", "3", "4"]


def test_dead_letters_are_a_table_too(place: Place) -> None:
    load(place, 5)
    dead = DeadLetters(Table(place))
    assert not dead.publish(), "there are none"
    assert dead.iceberg() is None
    load(place, 5, dead=3)
    load(place, 5)
    load(place, 0, dead=2)
    dead = DeadLetters(Table(place))
    assert dead.publish()
    assert not dead.publish()
    load(place, 5)
    for _ in range(2):
        assert not DeadLetters(Table(place)).publish(), "what came since has none"
    assert len(dead.iceberg().snapshots()) == 1
    letters = catalog(place).load_table("barnabas.logins__dead").scan().to_arrow().sort_by("offset")
    assert letters["offset"].to_pylist() == [10, 11, 12, 18, 19]
    assert set(letters["reason"].to_pylist()) == {"json"}
    table = Table(place)
    assert DeadLetters(table).differences(table.entries()) == []
    paths = [*table.files().dead]
    theirs = catalog(place).load_table("barnabas.logins__dead")
    theirs.delete("offset < 15")
    name = "table barnabas.logins__dead"
    assert DeadLetters(table).differences(table.entries()) == [f"{name} lacks {paths[0]}"]
    theirs.append(letters)
    lacks, more = DeadLetters(table).differences(table.entries())
    assert lacks == f"{name} lacks {paths[0]}"
    assert more.startswith(f"{name} has file://")
    assert more.endswith(", which does not count")


def test_load_after_a_rollback_publishes_its_dead_letters(place: Place) -> None:
    load(place, 0, dead=3)
    load(place, 0, dead=2)
    load(place, 1)
    table = Table(place)
    dead = DeadLetters(table)
    assert dead.publish()
    stocks = stock(place)
    stocks.manage_snapshots().rollback_to_snapshot(stocks.snapshots()[0].snapshot_id).commit()
    load(place, 0, dead=4)
    table.refresh()
    assert dead.publish(), "in a version that had some of another"
    assert sorted(dead.iceberg().scan().to_arrow()["offset"].to_pylist()) == list(range(7))
    assert not dead.publish()


def test_what_is_published_is_what_is_new(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    load(place, 0, dead=3)
    DeadLetters(Table(place)).publish()
    load(place, 0, dead=2)
    with monkeypatch.context() as patch:
        patch.setattr(Table, "files", lambda _: pytest.fail("the whole ledger was read"))
        assert DeadLetters(Table(place)).publish()
    assert DeadLetters(Table(place)).differences(Table(place).entries()) == []


def test_removed_or_changed_dead_letters_are_reported(place: Place) -> None:
    load(place, 0, dead=3)
    load(place, 0, dead=2)
    catalogs = ScriptedCatalogs()
    dead = DeadLetters(Table(place, catalogs=catalogs))
    dead.publish()
    [first, second] = sorted(Table(place).files().dead.values(), key=lambda file: file.offset_min)

    def task(path: str, rows: int, deletes: int = 0) -> Any:
        file = SimpleNamespace(file_path=path, record_count=rows)
        return SimpleNamespace(file=file, delete_files=["x"] * deletes)

    for tasks, problems in (
        ([task(first.path, 3), task(second.path, 2)], []),
        ([task(first.path, 4), task(second.path, 2)], [f"says 4 rows of {first.path}, which has 3"]),
        ([task(first.path, 3), task(second.path, 2, 1)], [f"hides rows of {second.path}"]),
        ([task(second.path, 2), task("x", 3)], [f"lacks {first.path}", "has x, which does not count"]),
    ):

        def planned(_: str, load_table: Any, tasks: Any = tasks) -> Any:
            table = load_table()
            table.scan = lambda: SimpleNamespace(plan_files=lambda: tasks)
            return table

        catalogs.on_load = planned
        differences = dead.differences(Table(place).entries())
        assert differences == [f"table barnabas.logins__dead {problem}" for problem in problems]


def test_dead_letters_follow_a_rollback_of_their_table(place: Place) -> None:
    load(place, 0, dead=3)
    load(place, 0, dead=2)
    DeadLetters(Table(place)).publish()
    table = stock(place)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    load(place, 0, dead=4)
    assert DeadLetters(Table(place)).differences(Table(place).entries()) == [], "it follows another table yet"
    load(place, 1)
    table = Table(place)
    dead = DeadLetters(table)
    assert dead.publish()
    load(place, 1)
    table.refresh()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead, "_open", lambda **_: pytest.fail("the catalog was asked"))
        assert not dead.publish(), "what came since has none"
    letters = catalog(place).load_table("barnabas.logins__dead").scan().to_arrow()
    assert sorted(letters["offset"].to_pylist()) == list(range(7))


def test_apache_icebergs_own_library_for_java_reads_it(place: Place, iceberg_classpath: str) -> None:
    load(place, 25)
    load(place, 10, GROWN)
    compact(place)
    load(place, 5, GROWN)
    low = BEGAN_MS + HOUR_MS
    program = str(Path(__file__).parent / "iceberg" / "Read.java")
    lake = local_path(place.location.rpartition("/")[0])
    command = ["java", "-Xmx256m", "-cp", iceberg_classpath, program, str(lake), "barnabas.logins", str(low)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] == "version"] == ["1", "2", "3", "4"]
    rows = sorted((int(line[2]), line[1], line[3], line[4]) for line in lines if line[0] == "row")
    assert rows == [(n, "0", f"m{n}", "null" if n < 25 else f"d{n}") for n in range(10, 40)]


# --- names, catalogs --------------------------------------------------------------------------------------------------


def test_a_table_of_another_place_is_refused(tmp_path: Path, place: Place) -> None:
    load(place, 10)
    other = Lake(str(tmp_path / "lake")).place("others", "barnabas.logins")
    with pytest.raises(UsageError, match=r"is file://.*/logins, not file://.*/others: give --table"):
        load(other, 10)
    broken = Lake(str(tmp_path / "lake"), properties=(("type", "none"),)).place("logins")
    with pytest.raises(UsageError, match="catalog barnabas"):
        load(broken, 10)
    uri = ("uri", f"sqlite:///{tmp_path}/no/such/dir/x.db")
    with pytest.raises(IncompleteError, match="unable to open"):
        load(Lake(str(tmp_path / "lake"), properties=(("type", "sql"), uri)).place("logins"), 10)


def test_a_catalog_of_pyicebergs_configuration_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_environment: Callable[..., None]
) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    lake = tmp_path / "lake"
    lake.mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{lake}/other.db",
        "WAREHOUSE": f"file://{lake}",
    }.items():
        set_environment(**{f"PYICEBERG_CATALOG__MINE__{name}": value})
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # as a new process reads it
    with pytest.raises(UsageError, match="needs a catalog"):
        load(Lake(str(lake), "another").place("logins"), 1)
    load(Lake(str(lake), "mine").place("logins", "names.logins"), 10)
    assert sorted(path.name for path in lake.iterdir()) == ["logins", "other.db"]
    assert load_catalog("mine").load_table("names.logins").scan().to_arrow().num_rows == 10

"""A vacuum removes what no snapshot names and is old enough, and nothing else; columns that a file lacks are read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import scan as scan_module
from barnabas_pipeline.lake import store, vacuum
from barnabas_pipeline.lake.columns import COORDINATES
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import find_orphans, named

from .tables import catalog, compact, load, local_place, scan, staged, stock, versions

OLD, NEW = 1_000_000_000, time.time() + 10_000
DEAD_TABLE = "barnabas.logins__dead"


def root_of(place: Place) -> Path:
    root = local_path(place.location)
    assert root is not None
    return root


def stray(place: Place, name: str, time_s: float = OLD) -> str:
    """Write an object that nothing names, at some time; returns its location."""
    path = root_of(place) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (time_s, time_s))
    return f"file://{path}"


def test_old_unnamed_objects_are_orphans(place: Place) -> None:
    assert find_orphans(Table(place), 0) == []
    load(place, 5, dead=2)
    assert DeadLetters(Table(place)).publish()
    load(place, 5, dead=1)
    old = [stray(place, name) for name in ("metadata/b", "data/x/a", "dead/c", "_dead/metadata/d")]
    for name in ("data/young", "metadata/young"):
        stray(place, name, NEW)
    for name in ("_ledger/e", "_current/f", "g"):
        stray(place, name)
    assert find_orphans(Table(place), 3600) == sorted(old)
    assert find_orphans(Table(place), -20_000) == sorted(
        [*old, *(f"{place.location}/{name}/young" for name in ("data", "metadata"))]
    )


@pytest.mark.parametrize(("age", "is_found"), [(99, True), (100, True), (101, False)])
def test_an_object_is_as_old_as_it_was_last_written(place: Place, age: int, is_found: bool) -> None:
    load(place, 1)
    path = stray(place, "data/a", OLD)
    assert find_orphans(Table(place), age, lambda: OLD + 100.0) == ([path] if is_found else [])


def test_commit_during_a_listing_makes_no_orphan(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    load(place, 5)
    table = Table(place)
    entry, listing, done = staged(Table(place), 5, dead=1), store.listing, []

    def late(io: Any, location: str) -> Any:
        listed = [*listing(io, location)]
        if location.endswith("/dead"):
            Table(place).commit(entry)
            assert DeadLetters(Table(place)).publish()
            done.append(location)
        return iter(listed)

    monkeypatch.setattr(store, "listing", late)
    assert find_orphans(table, -20_000) == []
    assert done
    assert scan(place) == list(range(10))


def test_rename_during_a_listing_makes_no_orphan(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    load(place, 5, dead=1)
    table, listing = Table(place), store.listing
    table.state()

    def late(io: Any, location: str) -> Any:
        listed = [*listing(io, location)]
        if location.endswith("/dead"):
            catalog(place).rename_table(place.name, "barnabas.renamed")
        return iter(listed)

    monkeypatch.setattr(store, "listing", late)
    assert find_orphans(table, -20_000) == []
    assert catalog(place).load_table("barnabas.renamed").scan().to_arrow().num_rows == 5


def test_table_that_forbids_it_loses_no_file(place: Place) -> None:
    load(place, 5)
    load(place, 5)
    old = stray(place, "data/a")
    with stock(place).transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    with pytest.raises(UsageError, match=r"gc\.enabled=false"):
        vacuum.vacuum(place, age_seconds=-1)
    with pytest.raises(UsageError, match="--keep-snapshots"):
        load(place, 5, keep_snapshots=1)
    assert find_orphans(Table(place), 3600) == [old]
    assert len(stock(place).snapshots()) == 2
    load(place, 5)
    assert scan(place) == list(range(15))


def test_all_that_a_table_names_is_known() -> None:
    def snapshot(number: int, *manifests: Any) -> Any:
        return SimpleNamespace(manifest_list=f"list {number}", manifests=lambda io: [*manifests])

    def manifest(number: int, *files: str) -> Any:
        entries = [SimpleNamespace(data_file=SimpleNamespace(file_path=file)) for file in files]
        return SimpleNamespace(manifest_path=f"manifest {number}", fetch_manifest_entry=lambda io: entries)

    shared = manifest(1, "a", "b")
    table = SimpleNamespace(
        io=None,
        metadata_location="newest",
        metadata=SimpleNamespace(
            metadata_log=[SimpleNamespace(metadata_file="older")],
            statistics=[SimpleNamespace(statistics_path="puffin")],
        ),
        snapshots=lambda: [snapshot(1, shared), snapshot(2, shared, manifest(2, "c"))],
    )
    assert named(table) == {
        "newest", "older", "puffin", "list 1", "list 2", "manifest 1", "manifest 2", "a", "b", "c",
    }  # fmt: skip


# --- the vacuum -------------------------------------------------------------------------------------------------------


def test_old_snapshots_expire_but_for_the_newest_and_tags(place: Place) -> None:
    for _ in range(3):
        load(place, 5, dead=1)
        DeadLetters(Table(place)).publish()
    table = stock(place)
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "kept").commit()
    before = table.snapshots()[2].timestamp_ms / 1000
    assert vacuum.vacuum(place, age_seconds=1_000, clock=lambda: before + 100) == 0
    assert versions(place) == ["1", "2", "3"]
    assert vacuum.vacuum(place, age_seconds=1, clock=lambda: before + 100) > 0
    assert versions(place) == ["1", "3"]
    assert len(catalog(place).load_table(DEAD_TABLE).snapshots()) == 1
    assert scan(place) == [n for n in range(18) if n % 6 != 5]


def test_vacuum_publishes_and_keeps_dead_letters(place: Place) -> None:
    load(place, 5, dead=2)
    assert vacuum.vacuum(place, age_seconds=-20_000) == 0
    assert catalog(place).load_table(DEAD_TABLE).scan().to_arrow().num_rows == 2


def test_a_vacuum_removes_and_counts_what_was_compacted_away(place: Place) -> None:
    for _ in range(3):
        load(place, 5)
    old = {piece.path for piece in Table(place).pieces()}
    compact(place)
    old -= {piece.path for piece in Table(place).pieces()}
    assert len(old) == 2
    more = [stray(place, name) for name in ("data/a", "_dead/b")]
    paths = {path for path in root_of(place).rglob("*") if path.is_file()}
    count = vacuum.vacuum(place, age_seconds=-20_000)
    remaining = {path for path in root_of(place).rglob("*") if path.is_file()}
    assert count == len(paths - remaining)
    assert {f"file://{path}" for path in paths - remaining} >= {*old, *more}
    assert scan(place) == list(range(15))
    assert vacuum.vacuum(place, age_seconds=-20_000) == 0


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_missing_orphan_is_skipped_and_other_errors_raise(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    load(place, 5)
    locations, asked = [stray(place, f"data/{name}") for name in "ab"], []

    def delete(self: Any, location: str) -> None:
        asked.append(location)
        raise error(location)

    monkeypatch.setattr(type(Table(place).io), "delete", delete)
    if error is FileNotFoundError:
        assert vacuum.vacuum(place, age_seconds=3600) == 2
        assert asked == locations
    else:
        with pytest.raises(IncompleteError, match=r"^the lake cannot be reached: PermissionError: .+"):
            vacuum.vacuum(place, age_seconds=3600)
        assert asked == locations[:1]


# --- columns that a file lacks ----------------------------------------------------------------------------------------


def test_file_without_the_columns_has_its_rows_as_nulls(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 3)
    table = Table(place)
    asked = pa.schema([pa.field("x", pa.string()), pa.field("y", pa.int64())])
    [part] = scan_module.rows(table.layout, table.pieces(), asked)
    assert part.schema == asked
    assert part.to_pylist() == [{"x": None, "y": None}] * 3


@pytest.mark.parametrize(
    ("partition_by", "partition", "is_of_spec", "expected"),
    [
        ("identity(member)", ("m",), True, "m"),
        ("identity(member)", ("m",), False, None),
        ("identity(member)", (None,), True, None),
        ("identity(member)", (), True, None),
        ("bucket[4](member)", (3,), True, None),
        ("identity(ip), identity(member)", ("i", "m"), True, "m"),
        ("bucket[4](ip), identity(member)", (3, "m"), True, "m"),
    ],
)
def test_only_identity_partitions_give_missing_columns(
    tmp_path: Path, partition_by: str, partition: tuple[Any, ...], is_of_spec: bool, expected: str | None
) -> None:
    place = local_place(tmp_path, partition_by)
    load(place, 1)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"_offset": pa.array([7, 8], pa.int64())}), path)
    offset = next(field for field in COORDINATES if field.name == "_offset")
    asked = pa.schema([pa.field("member", pa.string()), offset])
    spec_id = stock(place).spec().spec_id if is_of_spec else 77
    piece = Piece(f"file://{path}", rows=2, spec_id=spec_id, partition=partition)
    [part] = scan_module.rows(Table(place).layout, [piece], asked)
    assert part.to_pylist() == [{"member": expected, "_offset": n} for n in (7, 8)]


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("file:/lake/a", "file:///lake/a"),
        ("file:///lake/a", "file:///lake/a"),
        ("s3a://lake/a", "s3://lake/a"),
        ("S3://lake/a", "s3://lake/a"),
        ("hdfs://name:8020/a:b", "hdfs://name:8020/a:b"),
        ("/lake/a:b", "/lake/a:b"),
    ],
)
def test_locations_are_compared_in_one_form(location: str, expected: str) -> None:
    assert store.comparable(location) == expected

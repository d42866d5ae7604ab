"""The table of current rows without its job: its place and form, its commits and conflicts, and what a vacuum leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg, store
from barnabas_pipeline.lake.changes import DELETED, NO_BUCKET, PLAIN, Form, Shape, buckets_of
from barnabas_pipeline.lake.current import Applied, Bucket, CurrentTable, Increment, Merger
from barnabas_pipeline.lake.iceberg import layout_of
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table

from .changing import BY_RECORD_KEY, PAIRS, Event, at, topic
from .tables import catalog, local_place

FORM = Form(Shape(("n",), PLAIN, 3), PAIRS)
NAME = "barnabas.logins__current"


@pytest.fixture
def events(tmp_path: Path) -> Table:
    """The table of events, into which nothing was loaded."""
    prepared = Table(local_place(tmp_path))
    prepared.prepare(PAIRS)
    return prepared


@pytest.fixture
def table(events: Table) -> CurrentTable:
    current = CurrentTable(events)
    current.refresh()
    current.prepare(FORM)
    return current


def changed(*rows: tuple[int, str | None], offset: int = 0) -> Any:
    """Changes by `n`; a text of None deletes the row."""
    dicts = [
        {"n": n, "text": text, "_topic_partition": 1, "_offset": end, "_changed_at": at(end), "_deleted": text is None}
        for end, (n, text) in enumerate(rows, offset)
    ]  # fmt: skip
    return pa.Table.from_pylist(dicts, FORM.arrow.append(DELETED))


def written(table: CurrentTable, changes: Any, *, is_moving: bool = False) -> list[Bucket]:
    """Write the buckets of some changes again, as a job does."""
    merger = Merger(
        layout_of(table.iceberg), FORM, table.files(), dict(table.applied.gone or {}), (), is_moving
    )
    numbers = buckets_of(FORM, changes)
    return [
        merger.write(int(bucket), [changes.filter(pa.array(numbers == bucket))])
        for bucket in sorted({*numbers.tolist()})
    ]


def commit(table: CurrentTable, changes: Any, *, is_moving: bool = False, **more: Any) -> Applied:
    done = written(table, changes, is_moving=is_moving)
    gone = dict(table.applied.gone or {}) | {outcome.number: outcome.gone for outcome in done if outcome.gone}
    entry = Applied(shape=FORM.shape, gone=gone if is_moving else None, **more)
    files, old = [file for row in done for file in row.add], [path for row in done for path in row.remove]
    table.commit(entry, files, old, keep_snapshots=more.get("keep", 0))
    return entry


def rows(table: CurrentTable) -> dict[int, str]:
    """The rows that a stock reader sees."""
    dicts = catalog(table.events.place).load_table(table.place.name).scan().to_arrow().to_pylist()
    assert len({row["n"] for row in dicts}) == len(dicts)
    return {row["n"]: row["text"] for row in dicts}


# --- its place and form -----------------------------------------------------------------------------------------------


def test_the_table_is_below_the_other_under_its_name(events: Table) -> None:
    current = CurrentTable(events)
    assert (current.place.name, current.place.location) == (NAME, f"{events.place.location}/_current/{NAME}")
    other = CurrentTable(events, "other.rows")
    assert (other.place.name, other.place.location) == (
        "other.rows",
        f"{events.place.location}/_current/other.rows",
    )
    assert other.place.catalog == events.place.catalog
    with pytest.raises(UsageError, match=r"'rows' is no NAMESPACE\.NAME"):
        CurrentTable(events, "rows")
    assert (current.refresh(), current.iceberg, current.files(), current.rows) == (Applied(), None, {}, 0)


def test_concurrent_creation_of_a_table_succeeds_for_both(events: Table) -> None:
    first, second = CurrentTable(events), CurrentTable(events)
    first.refresh(), second.refresh()
    first.prepare(FORM)
    second.prepare(FORM)
    assert second.iceberg.metadata_location == first.iceberg.metadata_location


# --- commits ----------------------------------------------------------------------------------------------------------


def test_defect_is_no_lost_answer_and_store_away_is_incomplete(
    table: CurrentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(type(table._catalog), "commit_table", fail)
        with pytest.raises(ZeroDivisionError):
            commit(table, changed((1, "a")))

    def away(*_: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(store, "write", away)
    with pytest.raises(IncompleteError, match=r"^the lake cannot be reached: ConnectionError: no route$"):
        table.commit(Applied(), [], [], keep_snapshots=0)
    monkeypatch.undo()
    monkeypatch.setattr(iceberg, "load_or_none", away)
    with pytest.raises(IncompleteError, match=r"^the lake cannot be reached: ConnectionError: no route$"):
        table.refresh()


# --- buckets ----------------------------------------------------------------------------------------------------------


def test_events_that_are_lost_are_counted_and_write_nothing(table: CurrentTable, tmp_path: Path) -> None:
    before = {*tmp_path.rglob("*.parquet")}
    merger = Merger(layout_of(table.iceberg), FORM, {}, {}, (), False)
    parts = [pa.table({"lost": [n]}) for n in (3, 4)]
    assert merger.write(NO_BUCKET, parts) == Bucket(NO_BUCKET, lost=7)
    assert {*tmp_path.rglob("*.parquet")} == before
    assert merger.write(2, []) == Bucket(2)


def test_increment_has_the_changes_of_its_ranges(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, *([Event({"n": n}, f"k{n}") for n in range(9)] for _ in range(2)))
    source.load()
    form = Form(BY_RECORD_KEY, PAIRS)
    pieces = source.table.pieces()

    def found(topic_id: str, ranges: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
        changes = Increment(source.table.layout, form, topic_id, ranges).changes(pieces)
        return sorted((row["_topic_partition"], row["_offset"]) for _, t in changes for row in t.to_pylist())

    assert found("id", {0: (3, 5), 1: (8, 9)}) == [(0, 3), (0, 4), (1, 8)]
    assert found("other", {0: (0, 9)}) == []
    assert found("id", {}) == []


# --- what goes --------------------------------------------------------------------------------------------------------


def test_what_no_snapshot_names_goes_when_it_is_old_enough(table: CurrentTable) -> None:
    for n in range(4):
        commit(table, changed((1, f"t{n}"), (2, None), offset=10 * n), is_moving=True)
    gone = [*(table.applied.gone or {}).values()]
    table.commit(Applied(shape=FORM.shape, gone=table.applied.gone), [], [], keep_snapshots=1)
    root = local_path(table.place.location)
    assert root is not None
    stray = [root / name / "x" for name in ("data", "metadata", "_gone", "_ledger")]
    for path in stray:
        path.write_bytes(b"x")
    young, old = [*root.rglob("*.parquet")], 1_000_000_000
    assert len(young) > 4
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))
    os.utime(stray[0])
    removed = table.vacuum(3600)
    assert [path.exists() for path in stray] == [True, False, False, True], "one is young, entries are kept"
    assert [local_path(path).exists() for path in gone] == [True] * len(gone)  # type: ignore[union-attr]
    assert removed > 3
    assert table.vacuum(3600) == 0
    assert table.vacuum(-1) == 1
    assert not stray[0].exists()
    assert rows(table) == {1: "t3"}


def test_files_of_earlier_snapshots_are_kept_by_a_vacuum(
    table: CurrentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2):
        commit(table, changed((1, None), offset=10 * n), is_moving=True)
    root = local_path(table.place.location)
    assert root is not None
    assert len([*(root / "_gone").iterdir()]) == 2
    assert table.vacuum(-1) == 0
    (root / "_gone" / "x").write_bytes(b"")
    delete = type(table.iceberg.io).delete

    def faster(self: Any, location: str) -> None:
        delete(self, location)
        raise FileNotFoundError(location)

    monkeypatch.setattr(type(table.iceberg.io), "delete", faster)
    assert table.vacuum(-1) == 1
    assert len([*(root / "_gone").iterdir()]) == 2


def test_vacuum_during_a_rename_of_current_rows_keeps_files(
    table: CurrentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, changed((1, "a")))
    listing = store.listing

    def late(io: Any, location: str) -> Any:
        listed = [*listing(io, location)]
        if location.endswith("/_gone"):
            catalog(table.events.place).rename_table(NAME, "barnabas.renamed")
        return iter(listed)

    monkeypatch.setattr(store, "listing", late)
    assert table.vacuum(-1) == 0
    theirs = catalog(table.events.place).load_table("barnabas.renamed")
    assert theirs.scan().to_arrow()["text"].to_pylist() == ["a"]

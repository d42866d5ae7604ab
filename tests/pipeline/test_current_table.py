"""The table of current rows without its job: its place and form, its commits and conflicts, and what a vacuum leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.transforms import BucketTransform

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg, store
from barnabas_pipeline.lake.changes import DELETED, NO_BUCKET, PLAIN, Form, Moment, Shape, buckets_of
from barnabas_pipeline.lake.current import Applied, Bucket, CurrentTable, Increment, Merger
from barnabas_pipeline.lake.iceberg import layout_of
from barnabas_pipeline.lake.ledger import BrokenLakeError
from barnabas_pipeline.lake.store import local_path, sha256_of
from barnabas_pipeline.lake.table import ConflictError, Table

from .changing import BY_RECORD_KEY, PAIRS, Event, at, topic
from .tables import catalog, local_place

FORM = Form(Shape(("n",), PLAIN, 3), PAIRS)
NAME = "barnabas.logins__current"


@pytest.fixture
def events(tmp_path: Path) -> Table:
    """The table of events, into which nothing was loaded."""
    found = Table(local_place(tmp_path))
    found.prepare(PAIRS)
    return found


@pytest.fixture
def table(events: Table) -> CurrentTable:
    found = CurrentTable(events)
    found.refresh()
    found.prepare(FORM)
    return found


def changed(*rows: tuple[int, str | None], offset: int = 0) -> Any:
    """Changes by `n`; a text of None deletes the row."""
    given = [
        {"n": n, "text": text, "_topic_partition": 1, "_offset": at_, "_changed_at": at(at_), "_deleted": text is None}
        for at_, (n, text) in enumerate(rows, offset)
    ]  # fmt: skip
    return pa.Table.from_pylist(given, FORM.arrow.append(DELETED))


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
    gone = dict(table.applied.gone or {}) | {one.number: one.gone for one in done if one.gone}
    entry = Applied(shape=FORM.shape, gone=gone if is_moving else None, **more)
    files, old = [file for one in done for file in one.add], [path for one in done for path in one.remove]
    table.commit(entry, files, old, keep_snapshots=more.get("keep", 0))
    return entry


def rows(table: CurrentTable) -> dict[int, str]:
    """The rows that a stock reader sees."""
    found = catalog(table.events.place).load_table(table.place.name).scan().to_arrow().to_pylist()
    assert len({one["n"] for one in found}) == len(found)
    return {one["n"]: one["text"] for one in found}


# --- its place and form -----------------------------------------------------------------------------------------------


def test_the_table_is_below_the_other_under_its_name(events: Table) -> None:
    found = CurrentTable(events)
    assert (found.place.name, found.place.location) == (NAME, f"{events.place.location}/current/{NAME}")
    other = CurrentTable(events, "other.rows")
    assert (other.place.name, other.place.location) == (
        "other.rows",
        f"{events.place.location}/current/other.rows",
    )
    assert other.place.catalog == events.place.catalog
    with pytest.raises(UsageError, match=r"'rows' is no NAMESPACE\.NAME"):
        CurrentTable(events, "rows")
    assert (found.refresh(), found.iceberg, found.files(), found.rows) == (Applied(), None, {}, 0)


@pytest.mark.parametrize(
    ("shape", "name", "column", "transform"),
    [
        (Shape(("n",), PLAIN, 3), "n_bucket", "n", "bucket[3]"),
        (Shape(("text", "n"), PLAIN, 3), "_bucket_number", "_bucket", "identity"),
    ],
)
def test_it_is_made_with_the_columns_of_its_form_and_partitioned_by_the_buckets_of_the_key(
    events: Table, shape: Shape, name: str, column: str, transform: str
) -> None:
    form = Form(shape, PAIRS)
    found = CurrentTable(events, "elsewhere.rows")
    found.prepare(form)
    for one in (found.iceberg, catalog(events.place).load_table("elsewhere.rows")):
        assert one.schema().column_names == form.arrow.names
        [field] = one.spec().fields
        assert (field.name, one.schema().find_column_name(field.source_id), str(field.transform)) == (
            name, column, transform,
        )  # fmt: skip
        assert one.properties["barnabas.location"] == found.place.location
        assert one.properties["commit.manifest-merge.enabled"] == "true"
        assert one.location() == found.place.location
    found.prepare(form)
    with pytest.raises(UsageError) as raised:
        found.prepare(Form(Shape(shape.key, PLAIN, 4) if len(shape.key) == 1 else FORM.shape, PAIRS))
    assert str(raised.value) == "elsewhere.rows was partitioned in another way: --rebuild into a new table"


def test_of_two_that_make_it_at_the_same_time_the_second_takes_the_one_that_there_is(events: Table) -> None:
    first, second = CurrentTable(events), CurrentTable(events)
    first.refresh(), second.refresh()
    first.prepare(FORM)
    second.prepare(FORM)
    assert second.iceberg.metadata_location == first.iceberg.metadata_location


def test_files_of_a_partitioning_that_was_are_noticed(table: CurrentTable) -> None:
    commit(table, changed(*((n, f"t{n}") for n in range(9))))
    assert sorted(table.files()) == [0, 1, 2]
    theirs = catalog(table.events.place).load_table(NAME)
    for count in (5, 3):
        with theirs.update_spec() as update:
            update.remove_field(theirs.spec().fields[0].name)
            update.add_field("n", BucketTransform(count), f"n_by_{count}")
    table.refresh()
    table.iceberg.metadata.default_spec_id  # noqa: B018 - as it is now
    with pytest.raises(UsageError, match="was partitioned in another way"):
        table.files()


# --- commits ----------------------------------------------------------------------------------------------------------


def test_each_commit_names_its_entry_and_the_one_before_it(table: CurrentTable) -> None:
    first = commit(table, changed((1, "a"), (2, "b")), events_version=5, ends={0: 7, 1: 9}, lost=3)
    assert table.applied is first
    second = commit(table, changed((2, "c"), (3, "d"), offset=10), rebuilt="asked for", topic_id="id")
    assert (first.version, first.previous, first.previous_path) == (1, "", "")
    assert (second.version, second.previous, second.previous_path) == (2, first.digest, first.path)
    assert first.path.startswith(f"{table.place.location}/ledger/{1:020d}-")
    theirs = catalog(table.events.place).load_table(NAME)
    said = [one.summary.additional_properties for one in theirs.snapshots()]
    assert [one["barnabas.ledger-kind"] for one in said] == ["apply", "rebuild"]
    assert [one["barnabas.ledger-version"] for one in said] == ["1", "2"]
    assert iceberg.ledger_of(theirs) == (2, second.path, second.digest)
    other = CurrentTable(table.events)
    assert other.refresh() == second
    assert Applied.decode(first.path, store.read(table.iceberg.io, first.path)) == first
    assert rows(table) == {1: "a", 2: "c", 3: "d"}
    assert (table.rows, other.rows) == (3, 3)
    commit(table, changed((1, None), (3, None), offset=20))
    assert (rows(table), table.rows, other.rows) == ({2: "c"}, 1, 3)
    assert other.refresh().version == 3
    assert other.refresh() is other.applied


def test_a_commit_that_another_has_overtaken_is_planned_again(table: CurrentTable) -> None:
    other = CurrentTable(table.events)
    commit(table, changed((1, "a")))
    other.refresh()
    commit(table, changed((1, "b")))
    with pytest.raises(ConflictError) as raised:
        commit(other, changed((1, "c")))
    assert str(raised.value) == f"version 2 of {NAME} was committed by another writer"
    assert other.applied == table.applied, "it has looked again"
    commit(other, changed((1, "c")))
    assert rows(table) == {1: "c"}
    with pytest.raises(ConflictError, match=f"version 3 of {NAME}"):
        table.commit(Applied(), [], ["file:///gone"], keep_snapshots=0)


@pytest.mark.parametrize("is_late", [True, False], ids=["it had happened", "it had not"])
def test_an_answer_that_is_lost_is_looked_for(
    table: CurrentTable, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    kind = type(table._catalog)
    commit_table = kind.commit_table

    def lost(self: Any, *more: Any) -> None:
        if is_late:
            commit_table(self, *more)
        raise CommitFailedException("said so")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit_table", lost)
        if is_late:
            entry = commit(table, changed((1, "a")))
            assert table.applied is entry
        else:
            with pytest.raises(ConflictError) as raised:
                commit(table, changed((1, "a")))
            assert type(raised.value.__cause__) is CommitFailedException
            assert table.applied == Applied()
    commit(table, changed((2, "b")))
    assert rows(table) == ({1: "a", 2: "b"} if is_late else {2: "b"})


def test_a_mistake_of_ours_is_no_lost_answer_and_a_store_that_is_away_is_told_as_such(
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


def test_few_snapshots_are_kept_if_that_is_asked_for(table: CurrentTable) -> None:
    for n in range(4):
        commit(table, changed((n, "x")))
    assert len(table.iceberg.snapshots()) == 4
    table.commit(Applied(), [], [], keep_snapshots=2)
    kept = [one.summary.additional_properties["barnabas.ledger-version"] for one in table.iceberg.snapshots()]
    assert kept == ["4", "5"]


def test_an_entry_that_was_changed_by_hand_is_a_broken_lake(table: CurrentTable) -> None:
    entry = commit(table, changed((1, "a")))
    path = local_path(entry.path)
    assert path is not None
    path.write_bytes(path.read_bytes().replace(b'"lost":0', b'"lost":1'))
    with pytest.raises(BrokenLakeError, match="is not what was committed"):
        CurrentTable(table.events).refresh()
    held = json.loads(entry.encode())
    assert "path" not in held
    assert held["format"] == 1


# --- buckets ----------------------------------------------------------------------------------------------------------


def test_a_bucket_that_is_written_again_says_what_it_adds_and_what_that_replaces(table: CurrentTable) -> None:
    commit(table, changed(*((n, f"t{n}") for n in range(30))))
    before = table.files()
    changes = changed((1, "new"), (4, None), (1, "newer"), (50, "more"), offset=100)
    numbers = buckets_of(FORM, changes).tolist()
    done = written(table, changes, is_moving=True)
    assert [one.number for one in done] == sorted({*numbers})
    for one in done:
        assert one.changes == numbers.count(one.number)
        assert one.remove == tuple(piece.path for piece in before[one.number])
        [file] = one.add
        assert (file.size, file.sha256) == sha256_of(table.iceberg.io, file.path)
        assert file.iceberg["partition"] == (one.number,)
        found = pq.read_table(file.path.removeprefix("file://"))
        assert (len(found), found["n"].to_pylist()) == (file.rows, sorted(found["n"].to_pylist()))
        assert set(buckets_of(FORM, found).tolist()) == {one.number}
        assert one.lost == 0
    [left] = [one for one in done if one.gone]
    assert left.number == numbers[1]
    assert left.gone.startswith(f"{table.place.location}/gone/")
    gone = pq.read_table(left.gone.removeprefix("file://")).to_pylist()
    assert gone == [{"n": 4, "_topic_partition": 1, "_offset": 101, "_changed_at": at(101)}]
    assert all(not one.gone for one in written(table, changes)), "nothing is remembered of one partition"


def test_what_a_deletion_has_left_is_read_again(table: CurrentTable) -> None:
    commit(table, changed((1, "a"), (1, None), offset=50), is_moving=True)
    assert rows(table) == {}
    late = changed((1, "late"), offset=5)
    commit(table, late, is_moving=True)
    assert rows(table) == {}, "it is older than the deletion"
    assert table.applied.gone
    commit(table, changed((2, "x"), (3, "x"), (1, "back"), offset=60), is_moving=True)
    assert rows(table) == {1: "back", 2: "x", 3: "x"}


def test_events_that_are_lost_are_counted_and_write_nothing(table: CurrentTable, tmp_path: Path) -> None:
    before = {*tmp_path.rglob("*.parquet")}
    merger = Merger(layout_of(table.iceberg), FORM, {}, {}, (), False)
    parts = [pa.table({"lost": [n]}) for n in (3, 4)]
    assert merger.write(NO_BUCKET, parts) == Bucket(NO_BUCKET, lost=7)
    assert {*tmp_path.rglob("*.parquet")} == before
    assert merger.write(2, []) == Bucket(2)


def test_a_truncation_alone_leaves_a_bucket_without_files(table: CurrentTable) -> None:
    commit(table, changed((1, "a"), (7, "b"), (8, "c")))
    files = table.files()
    merger = Merger(layout_of(table.iceberg), FORM, files, {}, (Moment(10, 0, 5, 99),), True)
    for bucket, pieces in files.items():
        assert merger.write(bucket, []) == Bucket(bucket, remove=tuple(one.path for one in pieces))
        assert merger.rows(bucket).num_rows == sum(one.rows for one in pieces)
    assert merger.rows(77).num_rows == 0


def test_an_increment_has_the_changes_of_its_ranges_and_incarnation(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, *([Event({"n": n}, f"k{n}") for n in range(9)] for _ in range(2)))
    source.load()
    form = Form(BY_RECORD_KEY, PAIRS)
    pieces = source.table.pieces()

    def found(topic_id: str, ranges: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
        made = Increment(source.table.layout, form, topic_id, ranges).changes(pieces)
        return sorted((row["_topic_partition"], row["_offset"]) for _, one in made for row in one.to_pylist())

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
    stray = [root / name / "x" for name in ("data", "metadata", "gone", "ledger")]
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


def test_what_earlier_snapshots_remember_is_kept_with_them_and_what_another_removes_is_no_error(
    table: CurrentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2):
        commit(table, changed((1, None), offset=10 * n), is_moving=True)
    root = local_path(table.place.location)
    assert root is not None
    assert len([*(root / "gone").iterdir()]) == 2
    assert table.vacuum(-1) == 0
    (root / "gone" / "x").write_bytes(b"")
    delete = type(table.iceberg.io).delete

    def faster(self: Any, location: str) -> None:
        delete(self, location)
        raise FileNotFoundError(location)

    monkeypatch.setattr(type(table.iceberg.io), "delete", faster)
    assert table.vacuum(-1) == 1
    assert len([*(root / "gone").iterdir()]) == 2


def test_of_a_table_that_is_renamed_while_objects_are_listed_nothing_goes(
    table: CurrentTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, changed((1, "a")))
    listing = store.listing

    def late(io: Any, location: str) -> Any:
        found = [*listing(io, location)]
        if location.endswith("/gone"):
            catalog(table.events.place).rename_table(NAME, "barnabas.renamed")
        return iter(found)

    monkeypatch.setattr(store, "listing", late)
    assert table.vacuum(-1) == 0
    theirs = catalog(table.events.place).load_table("barnabas.renamed")
    assert theirs.scan().to_arrow()["text"].to_pylist() == ["a"]

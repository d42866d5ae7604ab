"""Names, catalogs and their errors; what a snapshot says of a file, and of the entry of the ledger that counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg
from barnabas_pipeline.lake.columns import COORDINATES
from barnabas_pipeline.lake.iceberg import Catalogs, FileBounds, Lake, Place
from barnabas_pipeline.lake.ledger import BrokenLakeError, DataFile
from barnabas_pipeline.lake.table import Table

from .tables import GROWN, SCHEMA, add_snapshot, catalog, load, local_place, scan, stock

# --- names ------------------------------------------------------------------------------------------------------------


def test_a_topic_has_a_place_in_its_lake_and_a_name_that_catalogs_take() -> None:
    lake = Lake("s3://b/l/", "mine", (("type", "rest"),))
    place = lake.place("my-topic.v1", partition_by="day(ts)")
    assert place == Place(
        "s3://b/l/my-topic.v1", "barnabas.my_topic_v1", "mine", (("type", "rest"),), "day(ts)"
    )
    assert lake.place("t", "a.b.c").name == "a.b.c"
    assert lake.place("t", "a.b.c").namespace == "a.b"
    assert lake.place("Upper_9").name == "barnabas.Upper_9"
    assert Lake("/l").place("t") == Place("file:///l/t", "barnabas.t", "barnabas", (), "")


@pytest.mark.parametrize("name", ["a", "a.", ".b", "a..b", "."])
def test_a_name_without_a_namespace_is_a_wrong_option(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        Lake("/l").place("t", name)
    assert str(raised.value) == f"{name!r} is no NAMESPACE.NAME"
    assert iceberg.checked_name("a.b") == "a.b"
    with pytest.raises(UsageError):
        iceberg.checked_name("")


def test_a_lake_and_a_table_may_be_given_by_their_directories() -> None:
    lake, place = Lake("/l", "mine"), Place("s3://b/l/t", "x.y", "mine")
    assert iceberg.lake_of(lake) is lake
    assert iceberg.lake_of("/l") == iceberg.lake_of(Path("/l")) == Lake("/l")
    assert iceberg.place_of(place) is place
    expected = Place("file:///l/below/my-topic", "barnabas.my_topic")
    assert iceberg.place_of("/l/below/my-topic") == iceberg.place_of(Path("/l/below/my-topic")) == expected


# --- catalogs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["type", "uri", "py-catalog-impl"])
def test_each_property_that_says_what_a_catalog_is_makes_it_known(key: str) -> None:
    given = ((key, "x"), ("more", "y"))
    assert iceberg.check_catalog(Lake("s3://b/l", "c", given)) == dict(given)
    assert iceberg.check_catalog(Lake("/l", "barnabas", given)) == dict(given), "nor is it ours then"


def test_a_directory_has_a_catalog_of_its_own_under_our_name_alone() -> None:
    assert iceberg.check_catalog(Lake("/a/l", properties=(("warehouse", "no"), ("more", "y")))) == {
        "more": "y",
        "type": "sql",
        "uri": "sqlite:////a/l/catalog.db",
        "warehouse": "file:///a/l",
    }
    for lake, location in (
        (Lake("/a/l", "mine"), "file:///a/l"),
        (Lake("s3://b/l"), "s3://b/l"),
        (Lake("s3://b/l", properties=(("warehouse", "w"),)), "s3://b/l"),
    ):
        with pytest.raises(UsageError) as raised:
            iceberg.check_catalog(lake)
        assert str(raised.value) == (
            f"{location} needs a catalog that has its tables: --catalog NAME of pyiceberg's configuration, or "
            "--catalog-property type=rest --catalog-property uri=... and the like"
        )


def test_a_catalog_is_opened_with_our_file_io_unless_another_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(iceberg, "load_catalog", lambda name, **properties: opened.append((name, properties)))
    root = tmp_path / "deep" / "lake"
    for _ in range(2):
        iceberg.open_catalog(Lake(str(root)).place("t"))
        assert root.is_dir()
    iceberg.open_catalog(Lake("s3://b/l", "mine", (("type", "rest"), ("py-io-impl", "theirs"))).place("t"))
    ours = {"py-io-impl": "barnabas_pipeline.lake.store.StoreIO"}
    assert opened == [
        *[("barnabas", ours | iceberg.check_catalog(Lake(str(root))))] * 2,
        ("mine", {"type": "rest", "py-io-impl": "theirs"}),
    ]


@pytest.mark.parametrize("error", [ValueError("no such type"), NotInstalledError("pip install x")])
def test_a_catalog_that_cannot_be_is_a_wrong_option(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(iceberg, "load_catalog", fail)
    with pytest.raises(UsageError) as raised:
        iceberg.open_catalog(Lake("s3://b/l", "mine", (("type", "x"),)).place("t"))
    assert str(raised.value) == f"catalog mine: {error}"


def test_tables_of_one_lake_share_a_catalog_and_those_of_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Place] = []

    def opening(place: Place) -> Any:
        opened.append(place)
        return object()

    monkeypatch.setattr(iceberg, "open_catalog", opening)
    catalogs, lake = Catalogs(), Lake("s3://b/l", "c", (("type", "rest"),))
    first = catalogs.of(lake.place("a"))
    assert catalogs.of(lake.place("b", "x.y", "none")) is first
    others = [replace(lake, location="s3://b/m"), replace(lake, catalog="d"), replace(lake, properties=())]
    made = [catalogs.of(one.place("a")) for one in others]
    assert len({id(first), *map(id, made)}) == 4
    assert [catalogs.of(one.place("b")) for one in others] == made
    assert len(opened) == 4


def test_threads_that_ask_at_the_same_time_get_one_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs, both = Catalogs(), threading.Barrier(2)

    def opening(place: Place) -> Any:
        with pytest.raises(threading.BrokenBarrierError):
            both.wait(0.05)  # nobody else comes so far
        return object()

    monkeypatch.setattr(iceberg, "open_catalog", opening)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(catalogs.of(Place("s3://b/l/t", "a.b"))))
        for _ in range(2)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len({*map(id, found)}) == 1
    assert len(found) == 2


# --- errors of others -------------------------------------------------------------------------------------------------


def error_of(module: str) -> Exception:
    made = type("StrangeError", (Exception,), {"__module__": module})
    return made("first line\nsecond line")


FOREIGN = ("pyiceberg", "sqlalchemy", "sqlite3", "requests", "urllib3", "thrift", "botocore", "google")


@pytest.mark.parametrize("module", FOREIGN)
def test_an_error_of_a_library_of_catalogs_or_stores_is_to_be_tried_again(module: str) -> None:
    for error in (error_of(module), error_of(f"{module}.exc")):
        assert iceberg.is_foreign(error)
        with pytest.raises(IncompleteError) as raised, iceberg.explained():
            raise error
        assert str(raised.value) == "the lake cannot be reached: StrangeError: first line"
        assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [PermissionError("no"), TimeoutError("no"), ConnectionError("no")])
def test_so_is_one_of_the_system(error: OSError) -> None:
    assert iceberg.is_foreign(error)
    with pytest.raises(IncompleteError) as raised, iceberg.explained():
        raise error
    assert str(raised.value) == f"the lake cannot be reached: {type(error).__name__}: no"


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("x"),
        UsageError("x"),
        BrokenLakeError("x"),
        error_of("pyicebergs.x"),
        error_of("my.google"),
    ],
)
def test_a_mistake_of_ours_and_what_was_explained_before_comes_out_as_it_is(error: Exception) -> None:
    assert not iceberg.is_foreign(error)
    with pytest.raises(type(error)) as raised, iceberg.explained():
        raise error
    assert raised.value is error


def test_an_object_that_is_not_there_is_for_the_caller_to_judge() -> None:
    with pytest.raises(FileNotFoundError), iceberg.explained():
        raise FileNotFoundError("gone")


@pytest.mark.parametrize(
    ("errors", "raised", "calls"),
    [
        ([], None, 1),
        ([lambda: error_of("sqlalchemy")], None, 2),
        ([lambda: error_of("sqlalchemy")] * 2, "StrangeError", 2),
        ([ZeroDivisionError], "ZeroDivisionError", 1),
    ],
)
def test_a_namespace_is_tried_once_more_if_another_may_have_made_it(
    errors: list[Callable[[], Exception]], raised: str | None, calls: int
) -> None:
    left, asked = [*errors], []

    class Slow:
        def create_namespace_if_not_exists(self, name: str) -> None:
            asked.append(name)
            if left:
                raise left.pop()()

    try:
        iceberg.create_namespace(Slow(), Place("s3://b/l/t", "a.b.c"))  # type: ignore[arg-type]
        found = None
    except Exception as error:
        found = type(error).__name__
    assert (found, asked) == (raised, ["a.b"] * calls)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_of_two_that_make_a_table_the_second_takes_the_one_that_there_is(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    ours = iceberg.open_catalog(place)
    iceberg.create(ours, place, SCHEMA)
    before = stock(place).metadata_location
    iceberg.create(ours, place, GROWN)
    assert stock(place).metadata_location == before
    properties = stock(place).properties
    assert properties["barnabas.location"] == place.location
    assert properties["write.metadata.metrics.column._topic_id"] == "full"
    assert properties["commit.manifest.min-count-to-merge"] == "50"
    assert stock(place).format_version == 2
    assert stock(place).location() == place.location


def test_coordinates_have_the_same_numbers_in_each_table(tmp_path: Path) -> None:
    names = [one.name for one in COORDINATES]
    for number, schema in enumerate((SCHEMA, GROWN)):
        place = local_place(tmp_path / str(number))
        Table(place).prepare(schema)
        by_number = sorted(stock(place).schema().fields, key=lambda one: one.field_id)
        assert [one.name for one in by_number][: len(names)] == names
        assert [one.field_id for one in by_number][: len(names)] == list(range(1, len(names) + 1))


def test_a_table_is_none_if_there_is_none_and_another_one_is_named(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    ours = iceberg.open_catalog(place)
    assert iceberg.load_or_none(ours, place) is None
    load(place, 1)
    assert iceberg.load_or_none(ours, place).name() == ("barnabas", "logins")
    other = replace(place, location=f"{place.location}2")
    with pytest.raises(UsageError) as raised:
        iceberg.load_or_none(ours, other)
    assert str(raised.value) == (
        f"table barnabas.logins of catalog barnabas is {place.location}, not {other.location}: give --table"
    )
    columns = pa.schema([pa.field("x", pa.int32())])
    catalog(place).create_table("barnabas.theirs", columns, location=f"{place.location}3")
    theirs = replace(place, name="barnabas.theirs")
    with pytest.raises(
        UsageError, match=r"^table barnabas\.theirs of catalog barnabas is nothing of ours, not file:"
    ):
        iceberg.load_or_none(ours, theirs)


@pytest.mark.parametrize("error", [TableAlreadyExistsError, NoSuchTableError])
def test_only_that_a_table_is_there_already_is_no_error_of_making_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    place = local_place(tmp_path)
    ours = iceberg.open_catalog(place)

    def fail(*_: Any) -> None:
        raise error("x")

    monkeypatch.setattr(type(ours), "commit_table", fail)
    if error is TableAlreadyExistsError:
        iceberg.create(ours, place, SCHEMA)
    else:
        with pytest.raises(NoSuchTableError):
            iceberg.create(ours, place, SCHEMA)


@pytest.mark.parametrize("refusals", [19, 20])
def test_columns_are_added_in_twenty_tries_each_of_which_looks_again(refusals: int) -> None:
    """Another that changes the schema at the same time has refused some of them."""
    done: list[str] = []

    class Update:
        def __enter__(self) -> Update:
            return self

        def __exit__(self, *_: object) -> None:
            done.append("update")
            if done.count("update") <= refusals:
                raise iceberg.CommitFailedException("another was faster")
            known.append(NestedField(2, "more", StringType(), required=False))

        def union_by_name(self, wanted: Any) -> None:
            assert wanted is more

    known = [NestedField(1, "old", StringType(), required=False)]
    table = SimpleNamespace(
        name=lambda: ("a", "b"),
        schema=lambda: Schema(*known),
        refresh=lambda: done.append("refresh"),
        update_schema=Update,
    )
    more = pa.schema([pa.field("more", pa.string())])
    if refusals < 20:
        iceberg.evolve(table, more)
        assert done == ["update", "refresh"] * 19 + ["update"]
    else:
        with pytest.raises(IncompleteError) as raised:
            iceberg.evolve(table, more)
        assert str(raised.value) == "others change the schema of a.b: run again"
        assert done == ["update", "refresh"] * 20


@pytest.mark.parametrize("error", [ValueError("x"), ValidationError("x"), None])
def test_a_column_that_cannot_be_changed_so_is_a_wrong_schema(error: Exception | None) -> None:
    class Update:
        def __enter__(self) -> Update:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def union_by_name(self, wanted: Any) -> None:
            if error is not None:
                raise error

    table = SimpleNamespace(name=lambda: ("a", "b", "c"), schema=lambda: Schema(), update_schema=Update)
    with pytest.raises(UsageError) as raised:
        iceberg.evolve(table, pa.schema([pa.field("more", pa.string())]))
    why = "x" if error else "a column of it has another type than the field of the schema"
    assert str(raised.value) == f"table a.b.c: {why}"


# --- what a snapshot says ---------------------------------------------------------------------------------------------


def said(version: int | None, parent: int | None, number: int) -> Any:
    named = {} if version is None else {
        "barnabas.ledger-version": str(version),
        "barnabas.ledger-path": f"path {version}",
        "barnabas.ledger-sha256": f"digest {version}",
    }  # fmt: skip
    summary = SimpleNamespace(additional_properties=named)
    return SimpleNamespace(snapshot_id=number, parent_snapshot_id=parent, summary=summary)


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        ([], (5, "path 5", "digest 5")),
        ([said(7, None, 1)], (7, "path 7", "digest 7")),
        ([said(7, None, 1), said(8, 1, 2)], (8, "path 8", "digest 8")),
        ([said(7, None, 1), said(None, 1, 2), said(None, 2, 3)], (7, "path 7", "digest 7")),
        ([said(None, None, 1), said(None, 1, 2)], (5, "path 5", "digest 5")),
        ([said(None, 99, 2)], (5, "path 5", "digest 5")),  # its parent has expired
    ],
)
def test_the_entry_that_counts_is_that_of_the_newest_snapshot_with_one_else_that_of_the_properties(
    snapshots: list[Any], expected: tuple[int, str, str]
) -> None:
    by_number = {one.snapshot_id: one for one in snapshots}
    table = SimpleNamespace(
        current_snapshot=lambda: snapshots[-1] if snapshots else None,
        snapshot_by_id=by_number.get,
        properties=said(5, None, 0).summary.additional_properties,
    )
    assert iceberg.ledger_of(table) == expected


def test_a_table_that_nothing_was_loaded_into_has_no_entry() -> None:
    table = SimpleNamespace(current_snapshot=lambda: None, properties={})
    assert iceberg.ledger_of(table) == (0, "", "")
    assert iceberg.summary_of(SimpleNamespace(summary=None)) == {}


def test_files_are_found_by_their_paths_in_the_newest_snapshot(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    Table(place).prepare(SCHEMA)
    assert iceberg.named_files(stock(place), ["x"]) == []
    for _ in range(3):
        load(place, 5)
    table = stock(place)
    paths = sorted(one.file.file_path for one in table.scan().plan_files())
    assert iceberg.named_files(table, []) == []
    assert [one.file_path for one in iceberg.named_files(table, [paths[1], "x"])] == [paths[1]]
    table.delete("_offset < 5")
    left = sorted(one.file_path for one in iceberg.named_files(table, paths))
    assert left == sorted(one.file.file_path for one in table.scan().plan_files())
    assert len(left) == 2


ENDS = {"_topic_id": ("id", "id"), "_topic_partition": (3, 3), "_offset": (10, 19)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, FileBounds("id", 3, 10, 19)),
        ({"_topic_id": ("id", "other")}, FileBounds("", 3, 10, 19)),
        ({"_topic_id": (None, "id")}, FileBounds("", 3, 10, 19)),
        ({"_topic_id": ("id", None)}, FileBounds("", 3, 10, 19)),
        ({"_topic_id": (None, None)}, FileBounds("", 3, 10, 19)),
        ({"_topic_partition": (3, 4)}, FileBounds("id", -1, 10, 19)),
        ({"_topic_partition": (0, 0)}, FileBounds("id", 0, 10, 19)),
        ({"_topic_partition": (None, 3)}, FileBounds("id", -1, 10, 19)),
        ({"_topic_partition": (None, None)}, FileBounds("id", -1, 10, 19)),
        ({"_offset": (0, 0)}, FileBounds("id", 3, 0, 0)),
        ({"_offset": (None, 19)}, FileBounds("id", 3, -1, 19)),
        ({"_offset": (10, None)}, FileBounds("id", 3, 10, -1)),
    ],
)
def test_bounds_of_a_file_are_those_that_its_snapshot_has(
    tmp_path: Path, change: dict[str, Any], expected: FileBounds
) -> None:
    place = local_place(tmp_path)
    Table(place).prepare(SCHEMA)
    schema = stock(place).schema()
    bounds: list[dict[int, bytes]] = [{}, {}]
    for name, ends in (ENDS | change).items():
        field = schema.find_field(name)
        for side, value in zip(bounds, ends, strict=True):
            if value is not None:
                side[field.field_id] = to_bytes(field.field_type, value)
    lower, upper = bounds
    file = SimpleNamespace(lower_bounds=lower, upper_bounds=upper)
    assert iceberg.bounds_of(file, schema) == expected
    nothing = SimpleNamespace(lower_bounds=None, upper_bounds=None)
    assert iceberg.bounds_of(nothing, schema) == FileBounds("", -1, -1, -1)


def test_a_file_is_named_as_it_was_written() -> None:
    file = DataFile("file:///a", 5, 77, "s", "id")
    file.iceberg = {"partition": ("x", 3), "spec_id": 2, "record_count": 5, "value_counts": {1: 4}}
    found = iceberg.iceberg_file(file)
    assert (found.file_path, found.file_size_in_bytes, found.record_count) == ("file:///a", 77, 5)
    assert [found.partition[n] for n in range(2)] == ["x", 3]
    assert found.value_counts == {1: 4}
    assert file.iceberg["partition"] == ("x", 3), "the file itself is as it was"


def test_workers_know_a_table_without_its_snapshots(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    load(place, 5)
    add_snapshot(place)
    table = Table(place)
    layout = table.layout
    metadata, io = layout.open()
    assert (metadata.location, metadata.schema(), metadata.spec()) == (
        place.location, table.iceberg.schema(), table.iceberg.spec(),
    )  # fmt: skip
    assert (metadata.snapshots, metadata.snapshot_log, metadata.metadata_log) == ([], [], [])
    assert metadata.current_snapshot_id is None
    assert metadata.refs == {}
    assert io.properties["py-io-impl"] == "barnabas_pipeline.lake.store.StoreIO"
    assert layout.open() == (metadata, io), "opened once"
    fake = SimpleNamespace(
        metadata=table.iceberg.metadata,
        io=SimpleNamespace(properties={"b": 1, "a": "x", "c": True, "d": object(), "e": None}),
    )
    assert iceberg.layout_of(fake).io == (("a", "x"), ("b", "1"), ("c", "True"))
    assert scan(place) == list(range(5))

"""Names, catalogs and their errors; what a snapshot says of a file, and of the entry of the ledger that counts."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg, pyiceberg_internals, table_schema
from barnabas_pipeline.lake.columns import COORDINATES
from barnabas_pipeline.lake.iceberg import FileBounds, Lake, Place
from barnabas_pipeline.lake.ledger import BrokenLakeError
from barnabas_pipeline.lake.table import Table

from .tables import GROWN, SCHEMA, local_place, stock

# --- names ------------------------------------------------------------------------------------------------------------


def test_topic_has_a_place_and_a_valid_table_name() -> None:
    lake = Lake("s3://b/l/", "mine", (("type", "rest"),))
    place = lake.place("my-topic.v1", partition_by="day(ts)")
    assert place == Place(
        "s3://b/l/my-topic.v1", "barnabas.my_topic_v1", "mine", (("type", "rest"),), "day(ts)"
    )
    assert lake.place("t", "a.b.c").name == "a.b.c"
    assert lake.place("t", "a.b.c").namespace == "a.b"
    assert lake.place("Upper_9").name == "barnabas.Upper_9"
    assert Lake("/l").place("t") == Place("file:///l/t", "barnabas.t", "barnabas", (), "")


def test_pyiceberg_creates_no_table_of_format_version_3(tmp_path: Path) -> None:
    catalog = iceberg.open_catalog(local_place(tmp_path))
    catalog.create_namespace("a")
    with pytest.raises(NotImplementedError, match="V3"):  # else decision 0776 is to be made again
        catalog.create_table("a.b", Schema(), properties={"format-version": "3"})


# --- what Nessie needs ------------------------------------------------------------------------------------------------


def test_new_schema_of_a_commit_says_its_largest_column_id() -> None:
    fields = [{"id": 3, "name": "a", "required": False, "type": "int"}]
    fields += [{"id": 1, "name": "b", "required": False, "type": {
        "type": "list", "element-id": 8, "element": "string", "element-required": False}}]  # fmt: skip
    schema = {"type": "struct", "fields": fields, "schema-id": 0, "identifier-field-ids": []}
    updates = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    body = json.dumps({"updates": updates, "requirements": []}).encode()
    sent = json.loads(pyiceberg_internals.with_last_column_ids(body) or b"")
    assert sent == {"updates": [updates[0] | {"last-column-id": 8}, updates[1]], "requirements": []}
    for unchanged in (None, b'{"updates": []}'):
        assert pyiceberg_internals.with_last_column_ids(unchanged) == unchanged


def test_table_without_rows_gets_other_column_ids(tmp_path: Path) -> None:
    Table(place := local_place(tmp_path, "none")).prepare(SCHEMA)
    columns = Schema(NestedField(7, "a", StringType(), required=False))
    pyiceberg_internals.renumber(stock(place), columns)
    assert stock(place).schema().fields == columns.fields


def test_branch_or_tag_in_nessie_is_refused() -> None:
    def table(**properties: str) -> Any:
        return SimpleNamespace(
            catalog=SimpleNamespace(properties=properties), name=lambda: ("shop", "orders")
        )

    iceberg.check_refs(table(), "staged")
    with pytest.raises(UsageError, match=r"shop\.orders is in Nessie.* no staged: "):
        iceberg.check_refs(table(**{iceberg.OF_NESSIE: "true"}), "staged")


# --- catalogs ---------------------------------------------------------------------------------------------------------


def test_directory_has_a_sqlite_catalog_by_default() -> None:
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


def test_rest_catalog_that_does_not_answer_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        lake = Lake("/a/l", "c", (("uri", uri), ("rest.client.socket-timeout-ms", "200")))
        begun = time.monotonic()
        with (
            pytest.raises(IncompleteError, match="the lake cannot be reached: ReadTimeout"),
            iceberg.explained(),
        ):
            iceberg.loaded_catalog("c", iceberg.check_catalog(lake))
        assert time.monotonic() - begun < 5


# --- errors of others -------------------------------------------------------------------------------------------------


def error_of(module: str) -> Exception:
    kind = type("StrangeError", (Exception,), {"__module__": module})
    return kind("first line\nsecond line")


FOREIGN = (
    "pyiceberg",
    "sqlalchemy",
    "sqlite3",
    "requests",
    "urllib3",
    "thrift",
    "hive_metastore",
    "botocore",
    "google",
)


@pytest.mark.parametrize("module", FOREIGN)
def test_errors_of_catalogs_and_stores_are_incomplete(module: str) -> None:
    for error in (error_of(module), error_of(f"{module}.exc")):
        assert iceberg.is_foreign(error)
        with pytest.raises(IncompleteError) as raised, iceberg.explained():
            raise error
        assert str(raised.value) == "the lake cannot be reached: StrangeError: first line"
        assert raised.value.__cause__ is error


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
def test_other_errors_pass_unchanged(error: Exception) -> None:
    assert not iceberg.is_foreign(error)
    with pytest.raises(type(error)) as raised, iceberg.explained():
        raise error
    assert raised.value is error


# --- tables -----------------------------------------------------------------------------------------------------------


def test_coordinates_have_the_same_numbers_in_each_table(tmp_path: Path) -> None:
    names = [field.name for field in COORDINATES]
    for number, schema in enumerate((SCHEMA, GROWN)):
        place = local_place(tmp_path / str(number))
        Table(place).prepare(schema)
        by_number = sorted(stock(place).schema().fields, key=lambda field: field.field_id)
        assert [field.name for field in by_number][: len(names)] == names
        assert [field.field_id for field in by_number][: len(names)] == list(range(1, len(names) + 1))


@pytest.mark.parametrize("refusals", [19, 20])
def test_columns_are_added_in_at_most_twenty_tries(refusals: int) -> None:
    """Another that changes the schema at the same time has refused some of them."""
    done: list[str] = []

    class Update:
        def __enter__(self) -> Update:
            return self

        def __exit__(self, *_: object) -> None:
            done.append("update")
            if done.count("update") <= refusals:
                raise iceberg.CommitFailedException("another was faster")
            fields.append(NestedField(2, "more", StringType(), required=False))

        def union_by_name(self, other: Any) -> None:
            assert other is more

    fields = [NestedField(1, "old", StringType(), required=False)]
    table = SimpleNamespace(
        name=lambda: ("a", "b"),
        schema=lambda: Schema(*fields),
        refresh=lambda: done.append("refresh"),
        update_schema=Update,
    )
    more = pa.schema([pa.field("more", pa.string())])
    if refusals < 20:
        table_schema.evolve(table, more)
        assert done == ["update", "refresh"] * 19 + ["update"]
    else:
        with pytest.raises(IncompleteError) as raised:
            table_schema.evolve(table, more)
        assert str(raised.value) == "others change the schema of a.b: run again"
        assert done == ["update", "refresh"] * 20


# --- what a snapshot says ---------------------------------------------------------------------------------------------


def said(version: int | None, parent: int | None, number: int, **more: str) -> Any:
    named = {} if version is None else {
        "barnabas.ledger-version": str(version),
        "barnabas.ledger-path": f"path {version}",
        "barnabas.ledger-sha256": f"digest {version}",
    }  # fmt: skip
    summary = SimpleNamespace(additional_properties={**named, **more})
    return SimpleNamespace(
        snapshot_id=number, parent_snapshot_id=parent, sequence_number=number, summary=summary
    )


SURE, BEHIND, UNKNOWN = iceberg.Lineage.SURE, iceberg.Lineage.BEHIND, iceberg.Lineage.UNKNOWN
NEWEST = {"barnabas.ledger-snapshot": "50", "barnabas.ledger-sequence": "50"}


@pytest.mark.parametrize(
    ("snapshots", "version", "lineage", "is_own"),
    [
        ([], 5, SURE, True),
        ([said(7, None, 1)], 7, SURE, True),
        ([said(7, None, 1), said(8, 1, 2)], 8, SURE, True),
        ([said(7, None, 1), said(None, 1, 2), said(None, 2, 3)], 7, SURE, False),
        ([said(None, 50, 51)], 5, SURE, False),  # the snapshot of the newest entry has expired
        ([said(None, 51, 52)], 5, UNKNOWN, False),  # and one of another engine
        ([said(None, 48, 49)], 5, BEHIND, False),
        ([said(None, 48, 49), said(None, 49, 51)], 5, BEHIND, False),  # rolled back, and changed since
    ],
)
def test_newest_snapshot_with_an_entry_names_the_ledger(
    snapshots: list[Any], version: int, lineage: iceberg.Lineage, is_own: bool
) -> None:
    by_number = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    table = SimpleNamespace(
        current_snapshot=lambda: snapshots[-1] if snapshots else None,
        snapshot_by_id=by_number.get,
        properties=said(5, None, 0, **NEWEST).summary.additional_properties,
    )
    expected = (version, f"path {version}", f"digest {version}", lineage, is_own)
    assert iceberg.ledger_of(table) == expected


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

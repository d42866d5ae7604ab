"""Maintenance and changes by Spark with Iceberg's runtime, in one session, with a load and an audit of ours after each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from barnabas_pipeline.errors import PipelineError
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.lake.iceberg import CATALOG_FILE, Lake
from barnabas_pipeline.lake.store import local_path

from .cells import BAD, IP, LOADS, ROWS, Cell
from .tables import SCHEMA
from .test_engines import run_spark
from .topics import Here, Topic

DAYS_AGO = 4 * 86_400
"""Files so old count as orphans by the default of Spark's procedure."""


def call(procedure: str, arguments: str = "") -> Callable[[Cell, str], list[str]]:
    return lambda _, table: [f"CALL barnabas.system.{procedure}(table => '{table}'{arguments})"]


def roll_back(cell: Cell, table: str) -> list[str]:
    return [f"CALL barnabas.system.rollback_to_snapshot('{table}', {cell.snapshot(2).snapshot_id})"]


def cherry_pick(cell: Cell, table: str) -> list[str]:
    first, last = (cell.snapshot(version).snapshot_id for version in (1, 3))
    return [
        f"CALL barnabas.system.rollback_to_snapshot('{table}', {first})",
        f"CALL barnabas.system.cherrypick_snapshot('{table}', {last})",
    ]


def fast_forward(_: Cell, table: str) -> list[str]:
    return [
        f"ALTER TABLE {table} CREATE BRANCH tried",
        f"DELETE FROM {table}.branch_tried WHERE _offset = 1",
        f"CALL barnabas.system.fast_forward('{table}', 'main', 'tried')",
    ]


def sql(*statements: str) -> Callable[[Cell, str], list[str]]:
    return lambda _, table: [statement.replace("TABLE_", table) for statement in statements]


MERGE_ON_READ = "ALTER TABLE TABLE_ SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
VERSION_3 = "ALTER TABLE TABLE_ SET TBLPROPERTIES ('format-version'='3')"
OPERATIONS: dict[str, tuple[Callable[[Cell, str], list[str]], str]] = {
    "expire": (
        call("expire_snapshots", ", older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"),
        "0 0",
    ),
    "files": (call("rewrite_data_files", ", options => map('min-input-files','2')"), "0 0"),
    "manifests": (call("rewrite_manifests"), "0 0"),
    "orphans": (call("remove_orphan_files"), "0 0"),
    "rollback": (roll_back, "0 0"),
    "cherry": (cherry_pick, "3 3"),
    "forward": (fast_forward, "0 0"),
    "delete": (sql("DELETE FROM TABLE_ WHERE _offset = 1"), "0 0"),
    "positions": (sql(MERGE_ON_READ, "DELETE FROM TABLE_ WHERE _offset = 1"), "0 0"),
    "update": (sql("UPDATE TABLE_ SET ip = 'other' WHERE _offset = 1"), "0 3"),
    "upsert": (
        sql(
            "MERGE INTO TABLE_ t USING (SELECT 1 AS o) s ON t._offset = s.o WHEN MATCHED THEN UPDATE SET ip = 'other'"
        ),
        "0 3",
    ),
    "merge": (
        sql("MERGE INTO TABLE_ t USING (SELECT 1 AS o) s ON t._offset = s.o WHEN MATCHED THEN DELETE"),
        "0 0",
    ),
    "rename": (sql("ALTER TABLE TABLE_ RENAME COLUMN member TO person"), "4 4"),
    "evolve": (sql("ALTER TABLE TABLE_ ADD COLUMN remark STRING"), "0 0"),
    "upgrade": (sql(VERSION_3), "4 0"),
    "vectors": (sql(VERSION_3, MERGE_ON_READ, "DELETE FROM TABLE_ WHERE _offset = 1"), "4 0"),
    "variant": (sql(VERSION_3, "ALTER TABLE TABLE_ ADD COLUMN remark VARIANT"), "4 4"),
}
"""Statements by operation, and the exit codes of a load and of an audit after it."""
UPDATING = ("update", "upsert")  # offset 1
DELETING = ("delete", "positions", "vectors", "merge", "forward")  # of offset 1


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    """A table for each operation, which Spark has done to it."""
    directory = tmp_path_factory.mktemp("maintained")
    cells: dict[str, Cell] = {}
    statements: list[str] = []
    lake = Lake(str(directory / "lake"))
    for name, (make, _) in OPERATIONS.items():
        own = Topic(directory / f"data-{name}")
        cell = Cell(
            own, LoadOptions(own.options, lake.place(name), SCHEMA), directory / "lake" / CATALOG_FILE
        )
        for _ in range(LOADS):
            cell.load()
        cells[name] = cell
        statements += make(cell, f"barnabas.barnabas.{name}")
    before = time.time() - DAYS_AGO
    root = local_path(cells["orphans"].place.location)
    assert root is not None
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (before, before))
    run_spark(next(iter(cells.values())).place, *statements)
    return cells


@pytest.mark.parametrize("operation", OPERATIONS)
def test_load_and_audit_after_an_operation_of_spark(cells: dict[str, Cell], operation: str) -> None:
    cell, codes = cells[operation], []
    for job in (Cell.load, Cell.audit):
        try:
            job(cell)
            codes.append("0")
        except PipelineError as error:
            codes.append(str(error.exit_code) if len(str(error).splitlines()) == 1 else str(error))
    assert " ".join(codes) == OPERATIONS[operation][1]
    if operation in UPDATING:
        compact(Here(), cell.place)  # type: ignore[arg-type]
        assert cell.ips() == {offset: "other" if offset == 1 else IP for offset in range(16) if offset != BAD}
    if codes[1] == "0":
        if operation != "evolve" and codes[0] == "0":
            compact(Here(), cell.place)  # type: ignore[arg-type]
        end = cell.topic.ends[0] - (0 if codes[0] == "0" else ROWS)
        expected = {*range(end)} - {BAD} - ({1} if operation in DELETING else set())
        assert cell.offsets() == sorted(expected)
        cell.audit()

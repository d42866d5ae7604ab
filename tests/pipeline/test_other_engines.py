"""Changes of a table by other engines, with each job of ours after them: exact, or one line and an exit code, no silence.

The operations are those of Iceberg, by pyiceberg where it has them. `test_spark_maintenance.py` has them by Spark.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from barnabas_pipeline.errors import PipelineError
from barnabas_pipeline.jobs.backfill import backfill
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.jobs.erase import erase
from barnabas_pipeline.jobs.redrive import redrive
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.changes import PLAIN, Shape
from barnabas_pipeline.lake.columns import COORDINATES
from barnabas_pipeline.lake.commits import named_files
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import named, vacuum
from tests.support.effort import daily

from .cells import BAD, IP, Cell
from .stores import BUCKET
from .tables import BEGAN_MS
from .topics import Here

FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
HIDDEN = ("_", ".")


# --- what others do -------------------------------------------------------------------------------------------------


def expire(cell: Cell) -> None:
    cell.iceberg.maintenance.expire_snapshots().older_than(FUTURE).commit()


def rewrite(cell: Cell, times: int = 1) -> None:
    for _ in range(times):
        cell.iceberg.overwrite(cell.iceberg.scan().to_arrow())


def rewrite_twice_and_expire(cell: Cell) -> None:
    rewrite(cell, 2)
    expire(cell)


def delete(cell: Cell) -> None:
    cell.iceberg.delete("_offset == 1")


def delete_and_expire(cell: Cell) -> None:
    delete(cell)
    rewrite(cell)
    expire(cell)


def update(cell: Cell) -> None:
    rows = cell.iceberg.scan(row_filter="_offset == 1").to_arrow()
    names = rows.column_names
    changed = rows.set_column(
        names.index("ip"), rows.schema.field("ip"), pa.array(["other"], rows["ip"].type)
    )
    cell.iceberg.overwrite(changed, overwrite_filter="_offset == 1")


def roll_back(cell: Cell) -> None:
    cell.iceberg.manage_snapshots().rollback_to_snapshot(cell.snapshot(2).snapshot_id).commit()


def roll_back_to_a_rewritten_one_and_expire(cell: Cell, is_changed: bool = False) -> None:
    roll_back(cell)
    rewrite(cell)
    before = cell.iceberg.current_snapshot().snapshot_id
    cell.load()
    cell.load()
    cell.iceberg.manage_snapshots().rollback_to_snapshot(before).commit()
    if is_changed:
        rewrite(cell)
    expire(cell)


def roll_back_to_a_rewritten_one_change_it_and_expire(cell: Cell) -> None:
    roll_back_to_a_rewritten_one_and_expire(cell, is_changed=True)


def cherry_pick(cell: Cell) -> None:
    """The third load on top of the first, as another engine picks it: no entry is named by that snapshot."""
    files = named_files(cell.iceberg, [file.path for file in Table(cell.place).entries(2)[0].add])
    cell.iceberg.manage_snapshots().rollback_to_snapshot(cell.snapshot(1).snapshot_id).commit()
    with cell.iceberg.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def branch_and_fast_forward(cell: Cell) -> None:
    cell.iceberg.manage_snapshots().create_branch(cell.snapshot(3).snapshot_id, "tried").commit()
    cell.iceberg.delete("_offset == 1", branch="tried")
    cell.iceberg.manage_snapshots().set_current_snapshot(ref_name="tried").commit()


def append(cell: Cell) -> None:
    rows = cell.iceberg.scan(row_filter="_offset == 1").to_arrow()
    rows = rows.set_column(
        rows.column_names.index("_offset"), rows.schema.field("_offset"), pa.nulls(1, pa.int64())
    )
    cell.iceberg.append(rows)


def append_without_coordinates(cell: Cell) -> None:
    rows = cell.iceberg.scan(row_filter="_offset == 1").to_arrow()
    for coordinate in COORDINATES:
        at = rows.column_names.index(coordinate.name)
        rows = rows.set_column(at, rows.schema.field(at), pa.nulls(1, rows.schema.field(at).type))
    cell.iceberg.append(rows)


def rename_column(cell: Cell) -> None:
    with cell.iceberg.update_schema() as schema:
        schema.rename_column("member", "person")


def drop_column(cell: Cell) -> None:
    with cell.iceberg.update_schema() as schema:
        schema.delete_column("member")


def add_column(cell: Cell) -> None:
    with cell.iceberg.update_schema() as schema:
        schema.add_column("remark", StringType())


def upgrade(cell: Cell, *fields: dict[str, Any]) -> None:
    """Format version 3, which pyiceberg does not write: by hand, as another engine's commit would leave it."""
    location = cell.iceberg.metadata_location
    document = {**json.loads(store.read(cell.io, location)), "format-version": 3, "next-row-id": 0}
    document["schemas"][-1]["fields"] += fields
    upgraded = f"{location.rpartition('/')[0]}/00099-{uuid.uuid4()}.metadata.json"
    store.write(cell.io, upgraded, json.dumps(document).encode())
    with sqlite3.connect(cell.database) as connection:
        name = cell.place.name.rpartition(".")[2]
        change = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?"
        connection.execute(change, (upgraded, name))


def upgrade_and_add_a_variant(cell: Cell) -> None:
    """A type of column that pyiceberg does not know."""
    upgrade(cell, {"id": 99, "name": "remark", "type": "variant", "required": False})


def remove_orphans(cell: Cell) -> None:
    """As Iceberg's action does: what no metadata names, but for names that begin with an underscore or a point."""
    used, root = {*map(store.comparable, named(cell.iceberg))}, f"{cell.place.location}/"
    for listed in store.listing(cell.io, cell.place.location):
        parts = listed.location.removeprefix(root).split("/")
        if (
            not any(part.startswith(HIDDEN) for part in parts)
            and store.comparable(listed.location) not in used
        ):
            cell.io.delete(listed.location)


def lose_metadata(cell: Cell) -> None:
    cell.io.delete(cell.iceberg.metadata_location)


# --- our jobs ---------------------------------------------------------------------------------------------------------


def follow(cell: Cell) -> None:
    shape = Shape(("member",), PLAIN, 2)
    CurrentRows(CurrentOptions(cell.place, Here, shape)).round()  # type: ignore[arg-type]


JOBS: dict[str, Callable[[Cell], Any]] = {
    "load": Cell.load,
    "audit": Cell.audit,
    "compact": lambda cell: compact(Here(), cell.place),  # type: ignore[arg-type]
    "backfill": lambda cell: backfill(
        Here(),
        cell.options,
        from_ms=BEGAN_MS,
        to_ms=BEGAN_MS + 2 * HOUR_MS,
        reason="",  # type: ignore[arg-type]
    ),
    "redrive": lambda cell: redrive(cell.options),
    "erase": lambda cell: erase(cell.place, "_offset == 5"),
    "vacuum": lambda cell: vacuum(cell.place, age_seconds=3600),
    "current": follow,
    "read": Cell.offsets,
}
DELETING = (delete, delete_and_expire, branch_and_fast_forward)  # of offset 1
OUTCOMES: dict[Callable[[Cell], None], str] = {
    #                load audit compact backfill redrive erase vacuum current read
    expire:                                            "0 0 0 0 0 0 0 0 0",
    rewrite:                                           "0 0 0 0 0 0 0 0 0",
    rewrite_twice_and_expire:                          "0 0 0 0 0 0 0 0 0",
    delete:                                            "0 0 0 0 0 0 0 0 0",
    delete_and_expire:                                 "0 3 0 0 0 0 0 0 0",
    update:                                            "0 3 0 0 0 0 0 0 0",
    roll_back:                                         "0 0 0 0 0 0 0 0 0",
    roll_back_to_a_rewritten_one_and_expire:           "0 0 0 0 0 0 0 0 0",
    roll_back_to_a_rewritten_one_change_it_and_expire: "3 3 3 3 3 3 3 3 3",
    cherry_pick:                                       "3 3 3 3 0 0 0 0 0",
    branch_and_fast_forward:                           "0 0 0 0 0 0 0 0 0",
    append:                                            "0 3 0 3 0 0 0 0 0",
    append_without_coordinates:                        "0 3 0 4 0 0 0 0 0",
    rename_column:                                     "4 4 4 4 4 4 0 4 4",
    drop_column:                                       "4 4 4 4 4 4 0 4 4",
    add_column:                                        "0 0 4 0 0 4 0 0 0",
    upgrade:                                           "4 0 4 4 4 4 0 0 0",
    upgrade_and_add_a_variant:                         "4 4 4 4 4 4 4 4 4",
    remove_orphans:                                    "0 0 0 0 0 0 0 0 0",
    lose_metadata:                                     "3 3 3 3 3 3 3 3 3",
}  # fmt: skip
"""The exit code of each job after each operation; after 0 the table is exact, which a load and an audit then show."""


KINDS = ("local", "s3", "rest")
"""A lake on this machine with SQLite, in an S3 with SQLite, on this machine with a REST catalog."""
OTHERWISE: dict[tuple[str, Callable[[Cell], None]], str] = {
    ("rest", lose_metadata): "2 2 2 2 2 2 2 2 2"  # the server has the error, which may pass
}
"""Outcomes that are others with a kind of lake."""


@pytest.fixture
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    kind, lake, database = request.param, f"{tmp_path}/lake", tmp_path / "catalog.db"
    if kind == "local":
        return Cell.made(tmp_path)
    if kind == "s3":
        lake = f"s3://{BUCKET}/{tmp_path.name}"
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{database}",
            **request.getfixturevalue("s3").properties,
        }
    else:
        served = request.getfixturevalue("rest_catalog")
        properties, database = served.properties, served.database
    place = Lake(lake, properties=tuple(sorted(properties.items()))).place("logins")
    return Cell.made(tmp_path, place, database)


ELSEWHERE = [(kind, operation) for operation in OUTCOMES for kind in KINDS[1:]]


@pytest.mark.parametrize(
    ("cell", "operation"),
    [*((KINDS[0], operation) for operation in OUTCOMES), *daily(ELSEWHERE, 5)],
    indirect=["cell"],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_job_is_exact_or_fails_after_an_operation(
    request: pytest.FixtureRequest, cell: Cell, operation: Callable[[Cell], None]
) -> None:
    outcomes = []
    operation(cell)
    kept = cell.keep()
    for job, run in JOBS.items():
        cell.restore(kept)
        try:
            run(cell)
        except PipelineError as error:
            outcomes.append(str(error.exit_code) if len(str(error).splitlines()) == 1 else str(error))
            continue
        outcomes.append("0")
        try:
            cell.load()
        except PipelineError:
            continue  # the row of `load` says so
        offsets = {*range(cell.topic.ends[0])} - {BAD} - ({1} if operation in DELETING else set())
        expected = dict.fromkeys(sorted(offsets - ({5} if job == "erase" else set())), IP)
        if operation is update and job != "backfill":
            expected[1] = "other"
        assert cell.ips() == expected, job
        with suppress(PipelineError):  # the row of `audit` says so
            cell.audit()
    kind = request.node.callspec.params["cell"]
    assert " ".join(outcomes) == OTHERWISE.get((kind, operation), OUTCOMES[operation])

"""Rows that go on purpose: the ledger knows them, audits count them, and a vacuum removes their bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.errors import DataLossError, UsageError
from barnabas_pipeline.jobs.current import CurrentOptions, CurrentRows
from barnabas_pipeline.jobs.erase import erase, retain
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.changes import PLAIN, Shape
from barnabas_pipeline.lake.ledger import HOUR_MS
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum

from .cells import BAD, Cell
from .tables import BEGAN_MS, stock
from .test_other_engines import delete, expire
from .topics import Here, login

ALL = [n for n in range(12) if n != BAD]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return Cell.made(tmp_path)


@pytest.mark.parametrize(
    ("where", "erased"),
    [
        ("member = 'm4'", {4}),
        ("_offset >= 4 and _offset < 8", {4, 5, 6, 7}),
        ("member in ('m0', 'm11')", {0, 11}),
        ("member = 'nobody'", set()),
        ("member is null", set()),
        ("_offset >= 0", {*ALL}),
    ],
)
def test_erased_rows_are_gone_and_audits_stay_exact(cell: Cell, where: str, erased: set[int]) -> None:
    summary = erase(cell.place, where, reason="by law")
    assert summary.rows == len(erased)
    remaining = [n for n in ALL if n not in erased]
    assert cell.offsets() == remaining
    report = cell.audit()
    assert (report.erased, report.erased_by_others, report.loaded) == (len(erased), 0, len(remaining))
    assert erase(cell.place, where).rows == 0
    cell.load()
    vacuum(cell.place, age_seconds=-20_000)
    cell.audit()
    notes = [entry.note for entry in Table(cell.place).entries() if entry.kind == "erase"]
    assert notes == (["by law"] if erased else [])
    root = local_path(cell.place.location)
    assert root is not None
    members = {name for path in (root / "data").rglob("*.parquet") for name in members_in(path)}
    assert not members & {f"m{n}" for n in erased}, "also on the disk"


def members_in(path: Path) -> list[str]:
    return pq.ParquetFile(path).read(["member"])["member"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("where", ["", "nothing = 1", "member = 1 2", "member >", "member = date"])
def test_wrong_condition_is_one_line(cell: Cell, where: str) -> None:
    with pytest.raises(UsageError) as raised:
        erase(cell.place, where)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(("hours", "expected"), [(0, ALL), (1, [1, 4, 5, 7, 8, 10, 11]), (9, [])])
def test_retention_removes_whole_hours(cell: Cell, hours: int, expected: list[int]) -> None:
    summary = retain(cell.place, before_ms=BEGAN_MS + hours * HOUR_MS + 999)
    assert summary.rows == len(ALL) - len(expected)
    assert cell.offsets() == expected
    assert cell.audit().erased == summary.rows


def test_erased_row_that_comes_back_is_named_by_an_audit(cell: Cell) -> None:
    rows = stock(cell.place).scan(row_filter="_offset == 4").to_arrow()
    erase(cell.place, "_offset = 4")
    stock(cell.place).append(rows)
    with pytest.raises(DataLossError, match="offset 4 of partition 0 was erased, and is a row"):
        cell.audit()


def test_deletion_by_others_is_noted_once_and_outlives_expiry(cell: Cell) -> None:
    delete(cell)
    report = cell.audit()
    assert (report.erased_by_others, len(report.notes)) == (1, 1)
    assert "deleted 1 rows" in report.notes[0]
    expire(cell)
    report = cell.audit()
    assert (report.erased, report.erased_by_others, report.notes) == (1, 0, [])


KEYED = Shape(("member",), PLAIN, 2)


def members_of(cell: Cell) -> dict[str, int]:
    """Follow the events, compare, and return the offset of the newest event by member."""
    rows = CurrentRows(CurrentOptions(cell.place, Here, KEYED))  # type: ignore[arg-type]
    rows.round()
    assert rows.check().differences == 0
    table = (
        Table(cell.place).catalogs.of(cell.place).load_table(f"{cell.place.name}__current").scan().to_arrow()
    )
    return dict(zip(table["member"].to_pylist(), table["_offset"].to_pylist(), strict=True))


def test_current_rows_of_retained_events_outlive_a_rebuild(cell: Cell) -> None:
    all_rows = {f"m{n}": n for n in ALL}
    assert members_of(cell) == all_rows
    assert retain(cell.place, before_ms=BEGAN_MS + HOUR_MS).rows == 4
    assert members_of(cell) == all_rows
    cell.topic.append(login(2, "m3"))
    load(Here(), cell.options)
    erase(cell.place, "member = 'm7'")  # of an event that remains: everything is applied again
    expected = {**all_rows, "m3": 12}
    del expected["m7"]
    assert members_of(cell) == expected
    erase(cell.place, "member = 'm6' or member = 'm8'")  # the event of m6 was removed for its age
    assert members_of(cell) == {member: at for member, at in expected.items() if member not in ("m6", "m8")}
    again = CurrentRows(CurrentOptions(cell.place, Here, KEYED, rebuild=True))  # type: ignore[arg-type]
    assert again.round().has_done
    assert again.check().differences == 0
    assert members_of(cell) == {member: at for member, at in expected.items() if member not in ("m6", "m8")}


def test_erasure_without_rows_of_events_reaches_current_rows(cell: Cell) -> None:
    members_of(cell)
    retain(cell.place, before_ms=BEGAN_MS + HOUR_MS)
    assert erase(cell.place, "member = 'm0'").rows == 0, "its event was removed for its age"
    assert "m0" not in members_of(cell)

"""Rules of a table's one commit: how often it is tried, after which waits, what is a conflict, and how each end is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.exc import OperationalError

from barnabas_pipeline.lake import iceberg
from barnabas_pipeline.lake import table as table_module
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.ledger import BrokenLakeError, Entry
from barnabas_pipeline.lake.table import ConflictError, Table

from .tables import (
    add_snapshot,
    catalog,
    entries_of,
    entry_of,
    load,
    scan,
    staged,
    stock,
    versions,
)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited; nobody really waits."""
    waited: list[float] = []
    monkeypatch.setattr(table_module.time, "sleep", waited.append)
    return waited


def begun(place: Place) -> tuple[Table, Entry]:
    """A table with ten rows, and an entry with seven more that is to be committed."""
    load(place, 10)
    table = Table(place)
    return table, staged(table, 7)


def unknown() -> Exception:
    return CommitStateUnknownException("gateway timeout\nand a page of HTML")


def locked() -> Exception:
    return OperationalError("UPDATE", {}, Exception("database is locked"))


def refused() -> Exception:
    return CommitFailedException("another was faster")


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Callable[[], Exception] | None) -> list[Any]:
    """Have the tries of a commit fail, one after the other; None lets one be done, and so does the end of the list."""
    left, tries, put = [*errors], [], Table._put

    def fail(self: Table, *more: Any) -> None:
        tries.append(more)
        error = left.pop(0) if left else None
        if error is not None:
            raise error()
        put(self, *more)

    monkeypatch.setattr(Table, "_put", fail)
    return tries


# --- tries ------------------------------------------------------------------------------------------------------------


def test_commit_retries_while_other_writers_make_progress(
    place: Place, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, made = begun(place)

    def overtaken() -> Exception:
        add_snapshot(place)
        return refused()

    tries = failing(monkeypatch, locked, locked, *[overtaken] * 7, refused)
    table.commit(made)
    assert len(tries) == 11
    assert waits == [0.05, 0.1, 0.2, 0, 0, 0, 0, 0, 0, 0], "counted anew after each snapshot of another"
    assert scan(place) == list(range(17))
    assert versions(place) == ["1", *[None] * 7, "2"]


def test_lost_answer_of_a_commit_is_resolved_by_the_catalog(
    place: Place, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, made = begun(place)
    kind = type(table.catalogs.of(place))
    left, tries, load_or_none, commit_table = [1, 2], [], iceberg.load_or_none, kind.commit_table

    def away(*more: Any) -> Any:
        if left:
            left.pop()
            raise ConnectionError("no route")
        return load_or_none(*more)

    def lost(self: Any, *more: Any) -> None:
        tries.append(1)
        commit_table(self, *more)
        monkeypatch.setattr(iceberg, "load_or_none", away)
        raise unknown()

    monkeypatch.setattr(kind, "commit_table", lost)
    table.commit(made)
    monkeypatch.undo()
    assert (len(tries), waits) == (3, [0.05, 0.1, 0.2]), "a second commit of the same is refused"
    assert versions(place) == ["1", "2"]
    assert scan(place) == list(range(17))
    assert table.state().version == 2


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_a_commit_that_another_has_overtaken_is_tried_once(
    place: Place, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, made = begun(place)

    def overtaken() -> Exception:
        monkeypatch.undo()
        load(place, 3)
        return refused()

    tries = failing(monkeypatch, overtaken)
    with pytest.raises(ConflictError) as raised:
        table.commit(made)
    assert str(raised.value) == f"version 2 of {place.location} was committed by another writer"
    assert len(tries) == 1
    assert table.state().version == 2, "it has seen the other"
    assert scan(place) == list(range(13))


def test_files_of_another_partitioning_are_written_again(place: Place, waits: list[float]) -> None:
    load(place, 5)
    table = Table(place)
    made = staged(table, 25)
    assert len(made.add) > 1
    with stock(place).update_spec() as spec:
        spec.add_identity("member")
    table.refresh()
    made.add[0].iceberg["spec_id"] = stock(place).metadata.default_spec_id
    with pytest.raises(ConflictError) as raised:
        table.commit(made)
    assert str(raised.value) == f"{place.location} is partitioned in another way now: run again"
    assert (scan(place), waits) == (list(range(5)), [])
    load(place, 7)
    assert scan(place) == list(range(12))


def test_table_dropped_during_a_commit_is_a_conflict(
    place: Place, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, made = begun(place)

    def dropped() -> Exception:
        catalog(place).drop_table(place.name)
        return refused()

    tries = failing(monkeypatch, dropped)
    with pytest.raises(ConflictError) as raised:
        table.commit(made)
    assert str(raised.value) == f"version 2 of {place.location}: table barnabas.logins is gone"
    assert len(tries) == 1
    assert not table.exists()


@pytest.mark.parametrize("version", [1, 2])
def test_existing_version_conflicts_before_anything_is_written(place: Place, version: int) -> None:
    for _ in range(2):
        load(place, 5)
    table = Table(place)
    made = entry_of(table, "load")
    made.version = version
    before = stock(place).metadata_location
    with pytest.raises(
        ConflictError, match=rf"^version {version} of file://.* was committed by another writer$"
    ):
        table.commit(made)
    assert len(entries_of(place)) == 2
    assert stock(place).metadata_location == before
    made.version = 4
    with pytest.raises(BrokenLakeError, match="entry 4 does not follow 2"):
        table.commit(made)
    assert len(entries_of(place)) == 2

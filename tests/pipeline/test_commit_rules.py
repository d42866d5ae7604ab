"""Rules of a table's one commit: how often it is tried, after which waits, what is a conflict, and how each end is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.exc import OperationalError

from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.ledger import BrokenLakeError
from barnabas_pipeline.lake.table import ConflictError, Table

from .tables import (
    ScriptedCatalogs,
    add_snapshot,
    catalog,
    entries_of,
    entry_of,
    failing,
    load,
    scan,
    staged,
    stock,
    versions,
)


class Begun:
    """A table with ten rows, and an entry with seven more that is to be committed to a catalog that fails first.

    `waits`: the seconds that were waited; no time really passes.
    """

    def __init__(self, place: Place, *errors: Callable[[], BaseException]) -> None:
        load(place, 10)
        self.waits: list[float] = []
        self.script, self.tries = failing(*errors)
        self.catalogs = ScriptedCatalogs()
        self.table = Table(place, catalogs=self.catalogs, sleep=self.waits.append)
        self.entry = staged(self.table, 7)

    def commit(self) -> None:
        self.catalogs.on_commit = self.script
        self.table.commit(self.entry)


def unknown() -> Exception:
    return CommitStateUnknownException("gateway timeout\nand a page of HTML")


def locked() -> Exception:
    return OperationalError("UPDATE", {}, Exception("database is locked"))


def refused() -> Exception:
    return CommitFailedException("another was faster")


# --- tries ------------------------------------------------------------------------------------------------------------


def test_commit_retries_while_other_writers_make_progress(place: Place) -> None:
    def overtaken() -> Exception:
        add_snapshot(place)
        return refused()

    begun = Begun(place, locked, locked, *[overtaken] * 7, refused)
    begun.commit()
    assert len(begun.tries) == 11
    assert begun.waits == [0.05, 0.1, 0.2, 0, 0, 0, 0, 0, 0, 0], "counted anew after each snapshot of another"
    assert scan(place) == list(range(17))
    assert versions(place) == ["1", *[None] * 7, "2"]


def test_lost_answer_of_a_commit_is_resolved_by_the_catalog(place: Place) -> None:
    begun = Begun(place)
    away, _ = failing(*[lambda: ConnectionError("no route")] * 3)  # of the second try, too
    lost, tries = failing(*[unknown] * 9, is_late=True)

    def commit(name: str, do: Callable[[], Any]) -> Any:
        begun.catalogs.on_load = away
        return lost(name, do)

    begun.script = commit
    begun.commit()
    assert (len(tries), begun.waits) == (3, [0.05, 0.1, 0.2]), "a second commit of the same is refused"
    assert versions(place) == ["1", "2"]
    assert scan(place) == list(range(17))
    assert begun.table.state().version == 2


# --- conflicts --------------------------------------------------------------------------------------------------------


def test_a_commit_that_another_has_overtaken_is_tried_once(place: Place) -> None:
    def overtaken() -> Exception:
        load(place, 3)
        return refused()

    begun = Begun(place, overtaken)
    with pytest.raises(ConflictError) as raised:
        begun.commit()
    assert str(raised.value) == f"version 2 of {place.location} was committed by another writer"
    assert len(begun.tries) == 1
    assert begun.table.state().version == 2, "it has seen the other"
    assert scan(place) == list(range(13))


def test_files_of_another_partitioning_are_written_again(place: Place) -> None:
    load(place, 5)
    waits: list[float] = []
    table = Table(place, sleep=waits.append)
    entry = staged(table, 25)
    assert len(entry.add) > 1
    with stock(place).update_spec() as spec:
        spec.add_identity("member")
    table.refresh()
    entry.add[0].iceberg["spec_id"] = stock(place).metadata.default_spec_id
    with pytest.raises(ConflictError) as raised:
        table.commit(entry)
    assert str(raised.value) == f"{place.location} is partitioned in another way now: run again"
    assert (scan(place), waits) == (list(range(5)), [])
    load(place, 7)
    assert scan(place) == list(range(12))


def test_table_dropped_during_a_commit_is_a_conflict(place: Place) -> None:
    def dropped() -> Exception:
        catalog(place).drop_table(place.name)
        return refused()

    begun = Begun(place, dropped)
    with pytest.raises(ConflictError) as raised:
        begun.commit()
    assert str(raised.value) == f"version 2 of {place.location}: table barnabas.logins is gone"
    assert len(begun.tries) == 1
    assert not begun.table.exists()


@pytest.mark.parametrize("version", [1, 2])
def test_existing_version_conflicts_before_anything_is_written(place: Place, version: int) -> None:
    for _ in range(2):
        load(place, 5)
    table = Table(place)
    entry = entry_of(table, "load")
    entry.version = version
    before = stock(place).metadata_location
    with pytest.raises(
        ConflictError, match=rf"^version {version} of file://.* was committed by another writer$"
    ):
        table.commit(entry)
    assert len(entries_of(place)) == 2
    assert stock(place).metadata_location == before
    entry.version = 4
    with pytest.raises(BrokenLakeError, match="entry 4 does not follow 2"):
        table.commit(entry)
    assert len(entries_of(place)) == 2

"""Ledgers and dead letters of earlier releases, which engines take for orphans: taken over by the next commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.commits import changing
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import dead_columns, describe
from barnabas_pipeline.lake.iceberg import KIND, LOCATION, PATH, PROPERTIES, SHA256, VERSION, Place
from barnabas_pipeline.lake.ledger import digest
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum

from .tables import catalog, compact, load, scan, staged, stock
from .test_other_engines import remove_orphans

DEAD_NAME = "barnabas.logins__dead"


def load_as_earlier(place: Place, count: int, dead: int) -> None:
    """Commit a load as releases did with directories `ledger` and `dead`."""
    table = Table(place)
    entry = staged(table, count, dead=dead)
    for file in entry.dead_add:
        path = file.path.replace(f"/{store.DEAD}/", "/dead/")
        store.write(table.io, path, store.read(table.io, file.path))
        table.io.delete(file.path)
        file.path = path
    after = table.state().copy()
    after.apply(entry)
    entry.after = after.to_dict()
    data = entry.encode()
    path = f"{place.location}/ledger/{entry.version:020d}-x.json"
    store.write(table.io, path, data)
    named = {VERSION: str(entry.version), PATH: path, SHA256: digest(data), KIND: "load"}
    changing(table.existing, named, entry.add, []).commit_transaction()
    if dead:
        publish_as_earlier(catalog(place), place, named, entry.dead_add)


def publish_as_earlier(opened: Catalog, place: Place, named: dict[str, str], files: list[Any]) -> None:
    location = f"{place.location}/dead"
    if not opened.table_exists(DEAD_NAME):
        properties = {**PROPERTIES, LOCATION: location}
        opened.create_table(DEAD_NAME, dead_columns(), location=location, properties=properties)
    table = opened.load_table(DEAD_NAME)
    described = [describe(table.io, table.metadata, replace(file)) for file in files]
    changing(table, named, described, []).commit_transaction()


@pytest.fixture
def earlier(place: Place) -> Place:
    for count, dead in ((5, 1), (4, 2), (3, 0)):
        load_as_earlier(place, count, dead)
    return place


def files_below(place: Place) -> set[Path]:
    root = store.local_path(place.location)
    assert root is not None
    return {path for path in root.rglob("*") if path.is_file()}


def test_table_of_an_earlier_release_is_read_as_it_is(earlier: Place) -> None:
    before = files_below(earlier)
    table = Table(earlier)
    assert [entry.version for entry in table.entries()] == [1, 2, 3]
    assert DeadLetters(table).differences(table.entries()) == []
    assert not DeadLetters(table).publish()
    assert files_below(earlier) == before


@pytest.mark.parametrize(
    "commit", [lambda place: load(place, 2), lambda place: load(place, 2, dead=1), compact]
)
def test_next_commit_takes_ledger_and_dead_letters_over(earlier: Place, commit: Any) -> None:
    before = files_below(earlier)
    commit(earlier)
    DeadLetters(Table(earlier)).publish()
    assert before <= files_below(earlier), "nothing is removed"
    dead, offsets = catalog(earlier).load_table(DEAD_NAME).scan().to_arrow().num_rows, scan(earlier)

    class Cell:
        place, iceberg, io = earlier, stock(earlier), StoreIO({})

    remove_orphans(Cell())  # type: ignore[arg-type]
    assert not any("ledger" in path.parts or "dead" in path.parts for path in files_below(earlier))
    table = Table(earlier)
    assert [entry.version for entry in table.entries()] == [1, 2, 3, 4]
    assert DeadLetters(table).differences(table.entries()) == []
    theirs = catalog(earlier).load_table(DEAD_NAME)
    assert theirs.location() == f"{earlier.location}/_dead"
    assert len(theirs.snapshots()) == 1
    assert theirs.scan().to_arrow().num_rows == dead >= 3
    load(earlier, 5, dead=1)
    assert DeadLetters(Table(earlier)).publish()
    assert scan(earlier) == [*offsets, *range(offsets[-1] + 1 + (dead > 3), offsets[-1] + 6 + (dead > 3))]
    vacuum(earlier, age_seconds=3600)
    assert catalog(earlier).load_table(DEAD_NAME).scan().to_arrow().num_rows == dead + 1

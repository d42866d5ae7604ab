"""A table as it says of itself: its versions with states and files, entries of its ledger, snapshots that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg, store
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.ledger import digest
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import ConflictError, Table

from .tables import SCHEMA, entries_of, load, local_place, scan, staged, stock, versions

# --- what is committed ------------------------------------------------------------------------------------------------


def test_state_after_a_commit_equals_a_fresh_read(place: Place) -> None:
    load(place, 5)
    table = Table(place)
    entry = staged(table, 12, dead=3)
    table.commit(entry)
    assert table.state() == Table(place).state()
    assert table.state().ends == {0: 20}
    assert table.state().digest == digest(entries_of(place)[1].read_bytes())
    assert str(local_path(table.state().path)) == str(entries_of(place)[1])


def test_ledger_is_adopted_with_its_files_by_a_new_table_only(place: Place, tmp_path: Path) -> None:
    for count in (5, 7):
        load(place, count)
    source, other = Table(place), local_place(tmp_path / "other")
    table = Table(other)
    table.prepare(SCHEMA)
    before = source.state(1)
    last = source.entries()[-1]
    last.add = [*source.entries()[1].add]
    every = [*staged(table, 12).add]
    table.adopt(before, last, every)
    assert versions(other) == ["2"]
    assert scan(other) == list(range(12)), "not the file of its last entry alone"
    with pytest.raises(ConflictError, match=r"version 2 of .* was committed by another writer"):
        Table(other).adopt(before, last, every)
    assert versions(other) == ["2"]


# --- what there is ----------------------------------------------------------------------------------------------------


def test_table_gone_after_its_creation_is_incomplete(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "create", lambda *_: None)
    with pytest.raises(IncompleteError) as raised:
        Table(place).prepare(SCHEMA)
    assert str(raised.value) == "table barnabas.logins was created, and is gone again"


def test_earlier_state_is_named_by_the_next_entry(place: Place) -> None:
    states = []
    for count in (3, 5, 7):
        load(place, count)
        states.append(Table(place).state())
    table = Table(place)
    assert [table.state(version) for version in (1, 2, 3, None)] == [*states, states[2]]
    for version in (-1, 0, 4):
        with pytest.raises(UsageError) as raised:
            table.state(version)
        assert str(raised.value) == f"{place.location} has no version {version}"


@pytest.mark.parametrize(("after", "is_listed"), [(0, True), (2, True), (3, False), (5, False), (9, False)])
def test_many_entries_are_read_ahead_once_each(
    place: Place, monkeypatch: pytest.MonkeyPatch, after: int, is_listed: bool
) -> None:
    for _ in range(5):
        load(place, 1)
    table = Table(place, read_ahead_min=2)
    table.state()
    ledger = entries_of(place)[0].parent
    for name in (".nfs0000000000001", "_SUCCESS", "short"):
        (ledger / name).write_text("of somebody else")
    listed, reads, listing, read = [], [], store.listing, store.read
    monkeypatch.setattr(store, "listing", lambda io, path: (listed.append(path), listing(io, path))[1])
    monkeypatch.setattr(store, "read", lambda io, path: (reads.append(path), read(io, path))[1])
    entries = table.entries(after)
    assert [entry.version for entry in entries] == list(range(after + 1, 6))
    assert listed == ([f"{place.location}/_ledger"] if is_listed else [])
    numbers = [int(path.rpartition("/")[2][:20]) for path in reads if path.endswith(".json")]
    assert sorted(numbers) == list(range(after + 1, 6)), "each once, and none that nobody asked for"


def test_version_has_its_files_until_its_snapshot_expires(place: Place) -> None:
    for count in (3, 5, 7):
        load(place, count)
    table = Table(place)
    counts = {version: sum(piece.rows for piece in table.pieces(version)) for version in (1, 2, 3, None)}
    assert counts == {1: 3, 2: 8, 3: 15, None: 15}
    first = stock(place).snapshots()[0].snapshot_id
    stock(place).maintenance.expire_snapshots().by_ids([first]).commit()
    table.refresh()
    with pytest.raises(UsageError) as raised:
        table.pieces(1)
    assert str(raised.value) == f"version 1 of {place.location} has expired"
    assert sum(piece.rows for piece in table.pieces(2)) == 8


# --- entries ----------------------------------------------------------------------------------------------------------


def test_lake_of_an_earlier_format_is_refused_by_default(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    root = local_path(place.location)
    assert root is not None
    (root / "_log").mkdir(parents=True)
    (root / "_log" / f"{1:020d}.json").write_text(json.dumps({}))
    with pytest.raises(UsageError) as raised:
        Table(place).refresh()
    assert str(raised.value) == (
        f"{root} is a lake of an earlier format: barnabas-pipeline migrate --from {root.parent} "
        "--lake NEW --topic logins"
    )
    assert Table(place, may_be_old=True).refresh().version == 0

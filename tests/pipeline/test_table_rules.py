"""A table as it says of itself: its versions with states and files, entries of its ledger, snapshots that are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake import iceberg, store
from barnabas_pipeline.lake import table as table_module
from barnabas_pipeline.lake.iceberg import Catalogs, Place
from barnabas_pipeline.lake.ledger import BrokenLakeError, digest
from barnabas_pipeline.lake.store import StoreIO, local_path
from barnabas_pipeline.lake.table import ConflictError, Table, read_entry, write_entry

from .tables import (
    SCHEMA,
    add_snapshot,
    entries_of,
    entry_of,
    load,
    local_place,
    scan,
    staged,
    stock,
    versions,
)

# --- what is committed ------------------------------------------------------------------------------------------------


def test_a_snapshot_says_of_which_kind_its_entry_is_and_the_properties_name_it_too(place: Place) -> None:
    load(place, 5)
    table = Table(place)
    table.commit(entry_of(table, "seal"))
    said = [one.summary.additional_properties["barnabas.ledger-kind"] for one in stock(place).snapshots()]
    assert said == ["load", "seal"]
    named = {key: one for key, one in stock(place).properties.items() if key.startswith("barnabas.ledger")}
    state = table.state()
    assert named == {
        "barnabas.ledger-version": "2",
        "barnabas.ledger-path": state.path,
        "barnabas.ledger-sha256": state.digest,
    }


def test_the_state_after_a_commit_is_the_one_that_another_process_reads(place: Place) -> None:
    load(place, 5)
    table = Table(place)
    made = staged(table, 12, dead=3)
    table.commit(made)
    assert table.state() == Table(place).state()
    assert table.state().ends == {0: 20}
    assert table.state().digest == digest(entries_of(place)[1].read_bytes())
    assert str(local_path(table.state().path)) == str(entries_of(place)[1])


def test_an_entry_is_written_under_its_version_and_a_name_that_nobody_else_uses(tmp_path: Path) -> None:
    root = f"file://{tmp_path}/t"
    table = SimpleNamespace(location=lambda: root, io=StoreIO({}))
    paths = [write_entry(table, 42, data) for data in (b"one", b"two")]
    for path in paths:
        assert re.fullmatch(rf"{root}/ledger/00000000000000000042-[0-9a-f-]{{36}}\.json", path)
    assert [store.read(table.io, path) for path in paths] == [b"one", b"two"]


def test_a_ledger_of_another_place_is_adopted_with_all_files_that_count_and_only_by_a_new_table(
    place: Place, tmp_path: Path
) -> None:
    for count in (5, 7):
        load(place, count)
    given, other = Table(place), local_place(tmp_path / "other")
    table = Table(other)
    table.prepare(SCHEMA)
    before = given.state(1)
    made = given.entries()[-1]
    made.add = [*given.entries()[1].add]
    every = [*staged(table, 12).add]
    table.adopt(before, made, every)
    assert versions(other) == ["2"]
    assert scan(other) == list(range(12)), "not the file of its last entry alone"
    with pytest.raises(ConflictError, match=r"version 2 of .* was committed by another writer"):
        Table(other).adopt(before, made, every)
    assert versions(other) == ["2"]


# --- what there is ----------------------------------------------------------------------------------------------------


def test_a_table_without_a_commit_has_no_version_and_no_files(place: Place) -> None:
    table = Table(place)
    assert (table.exists(), table.iceberg, table.pieces(), table.entries()) == (False, None, [], [])
    with pytest.raises(UsageError) as raised:
        table.loaded()
    assert str(raised.value) == f"nothing was loaded into {place.location} yet"
    table.prepare(SCHEMA)
    assert (table.exists(), table.pieces(), table.state().version) == (False, [], 0)
    assert table.iceberg is not None
    assert not Table(place).exists(), "nor for others"
    table.commit(staged(table, 5))
    assert (table.exists(), table.loaded().version) == (True, 1)


def test_a_table_that_is_gone_right_after_it_was_made_is_told_as_such(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "create", lambda *_: None)
    with pytest.raises(IncompleteError) as raised:
        Table(place).prepare(SCHEMA)
    assert str(raised.value) == "table barnabas.logins was created, and is gone again"


def test_a_state_is_read_again_only_if_another_entry_counts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(place, 5)
    table = Table(place)
    first, read = table.state(), store.read
    reads: list[str] = []
    monkeypatch.setattr(store, "read", lambda io, path: (reads.append(path), read(io, path))[1])
    assert table.refresh() is first
    add_snapshot(place)
    assert table.refresh() is first
    assert (table.state(1), reads) == (first, [])
    load(place, 7)
    reads.clear()
    assert table.state() is first, "until it looks again"
    assert table.refresh().version == 2
    assert reads == [table.state().path]


def test_an_earlier_state_is_the_one_that_the_entry_after_it_names(place: Place) -> None:
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
def test_more_than_a_few_entries_are_read_ahead_and_each_entry_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, after: int, is_listed: bool
) -> None:
    monkeypatch.setattr(table_module, "READ_AHEAD_MIN", 2)
    for _ in range(5):
        load(place, 1)
    table = Table(place)
    table.state()
    ledger = entries_of(place)[0].parent
    for name in (".nfs0000000000001", "_SUCCESS", "short"):
        (ledger / name).write_text("of somebody else")
    listed, reads, listing, read = [], [], store.listing, store.read
    monkeypatch.setattr(store, "listing", lambda io, path: (listed.append(path), listing(io, path))[1])
    monkeypatch.setattr(store, "read", lambda io, path: (reads.append(path), read(io, path))[1])
    found = table.entries(after)
    assert [one.version for one in found] == list(range(after + 1, 6))
    assert listed == ([f"{place.location}/ledger"] if is_listed else [])
    numbers = [int(one.rpartition("/")[2][:20]) for one in reads if one.endswith(".json")]
    assert sorted(numbers) == list(range(after + 1, 6)), "each once, and none that nobody asked for"


def test_a_version_has_the_files_of_its_snapshot_until_that_has_expired(place: Place) -> None:
    for count in (3, 5, 7):
        load(place, count)
    table = Table(place)
    counts = {version: sum(one.rows for one in table.pieces(version)) for version in (1, 2, 3, None)}
    assert counts == {1: 3, 2: 8, 3: 15, None: 15}
    first = stock(place).snapshots()[0].snapshot_id
    stock(place).maintenance.expire_snapshots().by_ids([first]).commit()
    table.refresh()
    with pytest.raises(UsageError) as raised:
        table.pieces(1)
    assert str(raised.value) == f"version 1 of {place.location} has expired"
    assert sum(one.rows for one in table.pieces(2)) == 8


def test_snapshots_are_kept_as_many_as_asked_for_and_all_if_nobody_asks(place: Place) -> None:
    for _ in range(3):
        load(place, 1)
    load(place, 1, keep_snapshots=4)
    assert versions(place) == ["1", "2", "3", "4"]
    load(place, 1, keep_snapshots=4)
    assert versions(place) == ["2", "3", "4", "5"]
    load(place, 1, keep_snapshots=1)
    assert versions(place) == ["6"]
    assert scan(place) == list(range(6))


def test_the_snapshot_of_a_branch_of_somebody_is_kept(place: Place) -> None:
    for _ in range(3):
        load(place, 1)
    table = stock(place)
    table.manage_snapshots().create_branch(table.snapshots()[0].snapshot_id, "theirs").commit()
    load(place, 1, keep_snapshots=1)
    assert versions(place) == ["1", "4"]


# --- entries ----------------------------------------------------------------------------------------------------------


def test_an_entry_is_read_once_and_is_the_one_that_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, path = StoreIO({}), f"file://{tmp_path}/e.json"
    store.write(io, path, b"stored")
    assert read_entry(io, path, digest(b"stored")) == b"stored"
    assert read_entry(io, path, digest(b"given"), b"given") == b"given", (
        "what was read ahead is not read again"
    )
    for data in (None, b"other"):
        with pytest.raises(BrokenLakeError) as raised:
            read_entry(io, path, digest(b"given"), data)
        assert str(raised.value) == f"entry {path} of the ledger is not what was committed"
    with pytest.raises(BrokenLakeError) as raised:
        read_entry(io, f"{path}x", digest(b"given"))
    assert str(raised.value) == f"entry {path}x of the ledger is missing"

    def away(*_: Any) -> bytes:
        raise PermissionError("not yours")

    monkeypatch.setattr(store, "read", away)
    with pytest.raises(IncompleteError, match=r"^the lake cannot be reached: PermissionError: not yours$"):
        read_entry(io, path, "")


def test_tables_share_the_catalogs_that_they_are_given(place: Place, tmp_path: Path) -> None:
    catalogs = Catalogs()
    load(place, 5)
    tables = [Table(place, catalogs=catalogs) for _ in range(2)]
    assert tables[0].catalogs.of(place) is tables[1].catalogs.of(place)
    assert Table(place).catalogs.of(place) is not catalogs.of(place)


def test_a_lake_of_an_earlier_format_is_read_only_by_whoever_says_so(tmp_path: Path) -> None:
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

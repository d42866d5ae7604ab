"""The table of dead letters beside other publishers, and manifests of a lake of the earlier format."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.lake import old
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import Place, ledger_of
from barnabas_pipeline.lake.ledger import BrokenLakeError, PartitionCommit, State, hour_number
from barnabas_pipeline.lake.table import Table

from .tables import ScriptedCatalogs, catalog, entry_of, failing, load, stock

NAME = "barnabas.logins__dead"


def letters(place: Place) -> list[int]:
    """The offsets that a stock reader sees."""
    return sorted(catalog(place).load_table(NAME).scan().to_arrow()["offset"].to_pylist())


def redrive(place: Place, *paths: str) -> None:
    """Commit that some files of dead letters count no more."""
    table = Table(place)
    entry = entry_of(table, "redrive")
    entry.dead_remove = [*paths]
    table.commit(entry)


def rolled_back(place: Place, version: int) -> None:
    table = stock(place)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[version - 1].snapshot_id).commit()


# --- publishing -------------------------------------------------------------------------------------------------------


def test_dead_letter_table_names_the_entry_of_its_ledger(place: Place) -> None:
    load(place, 5, dead=2)
    load(place, 3)
    dead = DeadLetters(Table(place))
    assert (dead.place.name, dead.place.location) == (NAME, f"{place.location}/_dead")
    assert dead.publish()
    state, theirs = Table(place).state(), catalog(place).load_table(NAME)
    assert theirs.location() == dead.place.location
    assert theirs.properties["barnabas.location"] == dead.place.location
    assert ledger_of(theirs)[:3] == (2, state.path, state.digest)
    assert letters(place) == [5, 6]
    assert not DeadLetters(Table(place)).publish(), "others find it done"
    assert len(catalog(place).load_table(NAME).snapshots()) == 1


@pytest.mark.parametrize("refusals", [19, 20])
def test_a_publisher_that_is_refused_looks_again_twenty_times(place: Place, refusals: int) -> None:
    load(place, 5, dead=2)
    refuse, tries = failing(*[lambda: CommitFailedException("another was faster")] * refusals)
    dead = DeadLetters(Table(place, catalogs=ScriptedCatalogs(refuse)))
    if refusals < 20:
        assert dead.publish()
        assert letters(place) == [5, 6]
    else:
        with pytest.raises(IncompleteError) as raised:
            dead.publish()
        assert str(raised.value) == f"table {NAME}: others were faster"
    assert len(tries) == 20


def test_of_two_publishers_at_once_the_second_finds_it_done(place: Place) -> None:
    load(place, 5, dead=2)
    catalogs = ScriptedCatalogs()
    slow = DeadLetters(Table(place, catalogs=catalogs))

    def meanwhile() -> None:
        assert DeadLetters(Table(place)).publish()

    with faults.acting("dead.before_commit", meanwhile):
        assert not slow.publish()
    assert letters(place) == [5, 6]
    assert len(catalog(place).load_table(NAME).snapshots()) == 1
    catalogs.on_load = lambda *_: pytest.fail("the catalog was asked")
    assert not slow.publish(), "and knows it"


def test_removed_letters_are_not_published(place: Place) -> None:
    load(place, 0, dead=2)
    load(place, 0, dead=3)
    assert DeadLetters(Table(place)).publish()
    first, _ = Table(place).files().dead
    load(place, 0, dead=4)
    load(place, 0, dead=1)
    third = [*Table(place).files().dead][2]
    redrive(place, first, third)
    table = Table(place)
    dead = DeadLetters(table)
    assert dead.publish()
    assert letters(place) == [2, 3, 4, 9]
    assert len(dead.iceberg().snapshots()) == 2, "all of it at once"
    assert dead.differences(table.entries()) == []
    redrive(place, *table.files().dead)
    assert DeadLetters(Table(place)).publish()
    assert letters(place) == []


@pytest.mark.parametrize("loads", [1, 2, 3, 4])
def test_rolled_back_letters_are_removed(place: Place, loads: int) -> None:
    """So the version that was published may be the newest one too, or an earlier one, of another ledger."""
    for count in (3, 2, 1):
        load(place, 0, dead=count)
    assert DeadLetters(Table(place)).publish()
    rolled_back(place, 1)
    for count in range(loads):
        load(place, 0, dead=4 + count)
    table = Table(place)
    assert table.state().version == 1 + loads
    dead = DeadLetters(table)
    assert dead.differences(table.entries()) == [], "it does not follow this one"
    assert dead.publish()
    assert dead.differences(table.entries()) == []
    assert letters(place) == list(range(table.state().ends[0]))
    paths = {task.file.file_path for task in dead.iceberg().scan().plan_files()}
    assert paths == set(table.files().dead), "those of before are not there beside them"
    assert not dead.publish()


def test_rollback_to_no_letters_removes_the_published_ones(place: Place) -> None:
    load(place, 5)
    load(place, 0, dead=2)
    dead = DeadLetters(table := Table(place))
    assert dead.publish()
    rolled_back(place, 1)
    assert table.refresh().version == 1
    assert dead.publish()
    assert letters(place) == []


def test_redrive_restores_letters_removed_by_an_engine(place: Place) -> None:
    for count in (3, 2):
        load(place, 0, dead=count)
    assert DeadLetters(Table(place)).publish()
    catalog(place).load_table(NAME).delete("offset < 5")
    assert letters(place) == []
    redrive(place, next(iter(Table(place).files().dead)))
    table = Table(place)
    assert DeadLetters(table).publish()
    assert letters(place) == [3, 4]
    assert DeadLetters(table).differences(table.entries()) == []


# --- the earlier format -----------------------------------------------------------------------------------------------


def written(root: Path, *changes: dict[str, Any]) -> list[str]:
    """Write manifests as the first releases did, each of which names the one before it; returns their digests."""
    (root / "_log").mkdir()
    digests: list[str] = []
    for number, change in enumerate(changes, 1):
        manifest = {
            "format": 1, "version": number, "previous": digests[-1] if digests else "", "kind": "load", "cluster_id": "c",
            "topic": "logins", "topic_id": "id", "job": {"name": f"job {number}"}, "schema": {"name": "logins"},
            "partitions": {}, "add": [], "remove": [], "dead_add": [], "dead_remove": [], "sealed": [], "lost": {},
            "redriven": {}, "note": f"n{number}",
        }  # fmt: skip
        data = json.dumps(manifest | change).encode()
        (root / "_log" / f"{number:020d}.json").write_bytes(data)
        digests.append(hashlib.sha256(data).hexdigest())
    return digests


def test_manifest_becomes_an_entry_with_files_of_the_old_lake(tmp_path: Path) -> None:
    assert not old.exists(tmp_path)
    file = {
        "path": "data/a", "rows": 3, "size": 70, "sha256": "s", "topic_id": "id", "partition": 1, "hour": "2026-11-20T07",
        "offset_min": 5, "offset_max": 9, "colour": "unknown here",
    }  # fmt: skip
    letters = {**file, "path": "dead/b", "hour": "", "reasons": {"json": 2}}
    commit = {
        "start": 5, "end": 11, "leader_epoch": 2, "high_watermark": 12, "loaded": 3, "dead": 2, "control": 1,
        "aborted": 0, "compacted": 0,
    }  # fmt: skip
    digests = written(
        tmp_path,
        {"add": [file], "dead_add": [letters], "partitions": {"1": commit}},
        {"kind": "compact", "remove": ["data/a"], "dead_remove": ["dead/b"]},
    )
    assert old.exists(tmp_path)
    first, second = old.entries(tmp_path, "file:///old")
    [added], [letter] = first.add, first.dead_add
    assert (added.path, added.rows, added.size, added.hours) == (
        "file:///old/data/a", 3, 70, [hour_number("2026-11-20T07")],
    )  # fmt: skip
    assert (added.offset_min, added.offset_max, added.partition) == (5, 9, 1)
    assert (letter.path, letter.hours, letter.reasons) == ("file:///old/dead/b", [], {"json": 2})
    assert first.partitions == {"1": PartitionCommit(5, 11, 2, 12, 3, 2, 1, 0, 0)}
    assert (second.remove, second.dead_remove) == (["file:///old/data/a"], ["file:///old/dead/b"])
    assert [entry.job for entry in (first, second)] == [
        {"name": f"job {n + 1}", "manifest_sha256": digests[n]} for n in range(2)
    ]
    assert [(entry.version, entry.kind, entry.note) for entry in (first, second)] == [
        (1, "load", "n1"),
        (2, "compact", "n2"),
    ]
    assert [(row.previous, row.previous_path, row.format) for row in (first, second)] == [("", "", 2)] * 2


def test_entries_of_manifests_are_chained(tmp_path: Path) -> None:
    commits = [
        {
            "start": start, "end": end, "leader_epoch": 0, "high_watermark": end, "loaded": end - start,
            "dead": 0, "control": 0, "aborted": 0, "compacted": 0,
        }
        for start, end in ((5, 8), (8, 15))
    ]  # fmt: skip
    written(tmp_path, *({"partitions": {"0": commit}} for commit in commits))
    state = State()
    for number, entry in enumerate(old.entries(tmp_path, ""), 1):
        before = state.copy()
        after = old.following(state, entry)
        assert state == before
        assert (entry.previous, entry.previous_path) == (state.digest, state.path)
        assert entry.after == after.to_dict()
        state = entry.state(f"ledger/{number}", entry.encode())
    assert (state.version, state.starts, state.ends, state.totals[0].loaded) == (2, {0: 5}, {0: 15}, 10)
    with pytest.raises(BrokenLakeError, match="entry 2 does not follow 2"):
        old.following(state, entry)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, "does not follow 1"),
        ({"version": 3}, "does not follow 1"),
        ({"version": 1}, "does not follow 1"),
        ({"previous": ""}, "does not follow 1"),
        ({"previous": "0" * 64}, "does not follow 1"),
        ({"partitions": {"0": {}}}, "cannot be read: TypeError"),
        ({"add": [{}]}, "cannot be read: TypeError"),
        ({"job": None}, "cannot be read: TypeError"),
        ({"colour": 1}, "cannot be read: TypeError"),
        ({"add": None}, "cannot be read: TypeError"),
    ],
    ids=str,
)
def test_a_manifest_that_does_not_follow_or_is_none_is_named(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    written(tmp_path, {}, change, {})
    entries = old.entries(tmp_path, "")
    assert next(entries).version == 1
    with pytest.raises(BrokenLakeError) as raised:
        next(entries)
    assert str(raised.value).startswith(f"manifest 2 of {tmp_path} {why}")


@pytest.mark.parametrize("data", [b"", b"[]", b'"x"', b"{}", b"{"])
def test_a_manifest_that_is_no_json_object_is_named(tmp_path: Path, data: bytes) -> None:
    written(tmp_path, {}, {})
    (tmp_path / "_log" / f"{2:020d}.json").write_bytes(data)
    with pytest.raises(BrokenLakeError) as raised:
        [*old.entries(tmp_path, "")]
    assert str(raised.value).startswith(f"manifest 2 of {tmp_path} cannot be read: ")


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_manifest_that_is_missing_before_another_is_named(tmp_path: Path, missing: int) -> None:
    written(tmp_path, {}, {}, {}, {})
    (tmp_path / "_log" / f"{missing:020d}.json").unlink()
    entries = old.entries(tmp_path, "")
    assert [next(entries).version for _ in range(1, missing)] == list(range(1, missing))
    with pytest.raises(BrokenLakeError) as raised:
        next(entries)
    assert str(raised.value) == f"manifest {missing} of {tmp_path} is missing"


def test_missing_last_manifest_is_not_noticed(tmp_path: Path) -> None:
    written(tmp_path, {}, {}, {})
    (tmp_path / "_log" / f"{3:020d}.json").unlink()
    assert [entry.version for entry in old.entries(tmp_path, "")] == [1, 2]

"""The one commit of a table: of two writers one is first, lost answers count once, a death anywhere costs nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import FileIO
from sqlalchemy.exc import IntegrityError, OperationalError

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.ledger import BrokenLakeError
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.lake.vacuum import find_orphans, vacuum

from .conftest import ROOT
from .tables import (
    Script,
    ScriptedCatalogs,
    add_snapshot,
    catalog,
    compact,
    failing,
    load,
    scan,
    staged,
    stock,
    versions,
)


def scripted(place: Place, on_commit: Script) -> Table:
    """A table of a catalog that answers so; its commits are tried without pauses."""
    return Table(place, catalogs=ScriptedCatalogs(on_commit), sleep=lambda _: None)


# --- several writers --------------------------------------------------------------------------------------------------


def test_second_writer_of_one_state_conflicts(place: Place) -> None:
    load(place, 10)
    table = Table(place)
    entry = staged(table, 10)
    load(place, 7)
    with pytest.raises(ConflictError, match=r"version 2 of .* was committed by another writer"):
        table.commit(entry)
    assert scan(place) == list(range(17))
    table.commit(staged(table, 5))
    assert scan(place) == list(range(22)), "from the state of the other"
    assert versions(place) == ["1", "2", "3"]


def test_of_two_first_writers_one_gives_way(place: Place) -> None:
    tables = [Table(place), Table(place)]
    entries = [staged(table, 10) for table in tables]
    tables[0].commit(entries[0])
    with pytest.raises(ConflictError):
        tables[1].commit(entries[1])
    assert scan(place) == list(range(10))


def test_concurrent_creation_of_a_namespace_succeeds_for_both(place: Place) -> None:
    table = Table(place)
    opened = table.catalogs.of(place)
    create, refusals = (
        opened.create_namespace_if_not_exists,
        [IntegrityError("INSERT", {}, Exception("UNIQUE"))],
    )

    def late(*more: Any) -> None:
        create(*more)
        if refusals:
            raise refusals.pop()

    opened.create_namespace_if_not_exists = late  # type: ignore[method-assign]
    table.commit(staged(table, 10))
    assert (scan(place), refusals) == (list(range(10)), [])


def test_pyiceberg_retries_no_commit_on_an_unseen_head(place: Place) -> None:
    load(place, 10)
    with stock(place).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    table = Table(place)
    entry = staged(table, 10)
    load(place, 10)
    with pytest.raises(ConflictError):
        table.commit(entry)
    assert scan(place) == list(range(20))


def test_snapshot_of_another_engine_is_no_conflict(place: Place) -> None:
    load(place, 10)
    table = Table(place)
    entry = staged(table, 10)
    for _ in range(3):
        add_snapshot(place)
    table.commit(entry)
    assert versions(place) == ["1", None, None, None, "2"]
    assert scan(place) == list(range(20))
    add_snapshot(place)
    assert Table(place).state() == table.state()


def test_compaction_is_planned_again_after_a_foreign_snapshot(place: Place) -> None:
    load(place, 5)
    load(place, 5)
    from barnabas_pipeline.jobs.compact import merge, plan

    from .tables import entry_of

    table = Table(place)
    [group] = plan(table, table.state(), 128 << 20, 2)
    entry = entry_of(table, "compact")
    entry.add, entry.remove = [merge(group)], [file.path for file in group.files]
    stock(place).delete("_offset == 3")
    with pytest.raises(ConflictError):
        table.commit(entry)
    assert scan(place) == [0, 1, 2, 4, 5, 6, 7, 8, 9], "what was deleted does not come back"
    compact(place)
    assert scan(place) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_an_entry_outlives_the_snapshots_that_named_it(place: Place) -> None:
    load(place, 10)
    load(place, 10)
    add_snapshot(place)
    table = stock(place)
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.snapshots()][:-1]).commit()
    assert versions(place) == [None]
    assert Table(place).state().version == 2
    load(place, 10)
    assert scan(place) == list(range(30))
    assert [entry.version for entry in Table(place).entries()] == [1, 2, 3]


def test_rolled_back_table_is_loaded_from_its_state(place: Place) -> None:
    for _ in range(3):
        load(place, 10)
    table = stock(place)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert Table(place).state().ends == {0: 10}
    load(place, 5)
    assert scan(place) == list(range(15))
    assert [entry.version for entry in Table(place).entries()] == [1, 2]


# --- answers that are lost --------------------------------------------------------------------------------------------


def unknown() -> Exception:
    return CommitStateUnknownException("gateway timeout")


def locked() -> Exception:
    return OperationalError("UPDATE", {}, Exception("database is locked"))


def refused() -> Exception:
    return CommitFailedException("said so after it had happened, to a request that was repeated")


FAILURES: list[Callable[[], Exception]] = [unknown, locked, refused, lambda: TimeoutError("read")]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("is_late", [True, False], ids=["after it has happened", "before"])
@pytest.mark.parametrize("first", [True, False])
def test_a_commit_counts_once_whatever_the_catalog_answers(
    place: Place, failure: Callable[[], Exception], is_late: bool, first: bool
) -> None:
    if not first:
        load(place, 10)
    entry = staged(Table(place), 10)
    scripted(place, failing(failure, failure, is_late=is_late)[0]).commit(entry)
    total = 10 if first else 20
    assert scan(place) == list(range(total)), "manifests of a commit that landed are not removed either"
    assert versions(place) == [str(n + 1) for n in range(total // 10)]


def test_failing_catalog_ends_a_commit_that_can_be_repeated(place: Place) -> None:
    load(place, 10)
    entry = staged(Table(place), 10)
    with pytest.raises(IncompleteError, match=r"version 2 of .* cannot be committed: .*locked"):
        scripted(place, failing(*[locked] * 99)[0]).commit(entry)
    assert scan(place) == list(range(10))
    load(place, 10)
    assert scan(place) == list(range(20))


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_many_entries_are_read_and_uncommitted_ones_ignored(place: Place) -> None:
    for _ in range(5):
        load(place, 1)
    ledger = local_path(f"{place.location}/_ledger")
    assert ledger is not None
    (ledger / f"{3:020d}-of-a-writer-that-died.json").write_text("{")
    table = Table(place, read_ahead_min=2)
    assert [entry.version for entry in table.entries()] == [1, 2, 3, 4, 5]
    assert [entry.version for entry in table.entries(2)] == [3, 4, 5]
    assert [table.state(version).ends for version in (1, 4, 5)] == [{0: 1}, {0: 4}, {0: 5}]
    for version in (0, 6):
        with pytest.raises(UsageError, match=f"has no version {version}"):
            table.state(version)


@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize("how", ["lost", "changed"])
def test_changed_entry_is_found_by_its_successor(place: Place, which: int, how: str) -> None:
    for _ in range(3):
        load(place, 1)
    ledger = local_path(f"{place.location}/_ledger")
    assert ledger is not None
    [path] = ledger.glob(f"{which:020d}-*")
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b'"note":""', b'"note":"!"'))
    why = "is missing" if how == "lost" else "is not what was committed"
    with pytest.raises(BrokenLakeError, match=rf"{path.name} of the ledger {why}"):
        Table(place).entries()


def test_what_would_break_the_ledger_is_not_even_written(place: Place) -> None:
    load(place, 10)
    table = Table(place)
    entry = staged(table, 10)
    entry.partitions["0"].start = 11
    with pytest.raises(BrokenLakeError, match="10 is next, not 11"):
        table.commit(entry)
    ledger = local_path(f"{place.location}/_ledger")
    assert ledger is not None
    assert len([*ledger.iterdir()]) == 1


# --- crashes ----------------------------------------------------------------------------------------------------------

DYING = """
from pyiceberg.catalog.sql import SqlCatalog
from barnabas_pipeline import faults

class Catalog(SqlCatalog):
    '''Dies when a commit has written its metadata, and names it to nobody.'''

    @staticmethod
    def _write_metadata(metadata, io, metadata_path, *more, **options):
        SqlCatalog._write_metadata(metadata, io, metadata_path, *more, **options)
        if metadata.snapshots:
            faults.POINTS["catalog.before_swap"] = ""
            faults.point("catalog.before_swap")
"""
COMMIT_POINTS = [
    "commit.before_catalog",
    "commit.before_swap",
    "catalog.before_swap",
    "commit.after_swap",
    "commit.after",
]


def die(place: Place, tmp_path: Path, point: str, what: str) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    lake = local_path(place.location.rpartition("/")[0])
    code = f"""
from tests.pipeline.tables import *
from barnabas_pipeline.lake.dead import DeadLetters
properties = {{"py-catalog-impl": "dying.Catalog", "uri": "sqlite:///{lake}/catalog.db", "warehouse": "file://{lake}"}}
place = Lake("{lake}", properties=tuple(properties.items())).place("logins")
{what}
"""
    path = os.pathsep.join([f"{ROOT}/server", f"{ROOT}/pipeline", str(ROOT), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": path, "BARNABAS_FAULT": point}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("point", COMMIT_POINTS)
@pytest.mark.parametrize("first", [True, False])
def test_writer_killed_in_a_commit_loses_and_doubles_nothing(
    place: Place, tmp_path: Path, point: str, first: bool
) -> None:
    (tmp_path / "lake").mkdir()
    if not first:
        load(place, 10)
    die(place, tmp_path, point, "load(place, 10)")
    before = 0 if first else 10
    is_committed = point in ("commit.after_swap", "commit.after")
    state = Table(place).state()
    assert state.ends.get(0, 0) == before + (10 if is_committed else 0)
    load(place, 10)
    total = before + (20 if is_committed else 10)
    assert scan(place) == list(range(total))
    assert [entry.version for entry in Table(place).entries()] == [n + 1 for n in range(total // 10)]
    if not is_committed:
        assert find_orphans(Table(place), -1), "the dead left files, which nobody sees"
    vacuum(place, age_seconds=-1)
    assert scan(place) == list(range(total))
    assert find_orphans(Table(place), -1) == []


@pytest.mark.parametrize("point", ["dead.before_commit", "dead.after_commit"])
def test_dead_letters_are_published_after_a_crash(place: Place, tmp_path: Path, point: str) -> None:
    load(place, 5, dead=2)
    die(place, tmp_path, point, "DeadLetters(Table(place)).publish()")
    assert DeadLetters(Table(place)).publish() == (point == "dead.before_commit")
    letters = catalog(place).load_table("barnabas.logins__dead").scan().to_arrow()
    assert sorted(letters["offset"].to_pylist()) == [5, 6]


def test_a_local_file_is_on_the_disk_before_it_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas_pipeline.lake import store

    synced: list[str] = []
    monkeypatch.setattr(store, "sync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    load(place, 10)
    table = stock(place)
    named = {table.metadata_location, Table(place).state().path, table.current_snapshot().manifest_list}
    named |= {manifest.manifest_path for manifest in table.current_snapshot().manifests(table.io)}
    named |= {piece.path for piece in Table(place).pieces()}
    paths = {str(local_path(uri)) for uri in named}
    assert paths | {str(Path(path).parent) for path in paths} <= set(synced)
    assert isinstance(table.io, FileIO)

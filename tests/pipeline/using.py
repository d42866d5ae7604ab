"""A lake that is used and one with a writer that dies, in whatever store it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import find_orphans, vacuum

from .tables import catalog, compact, load, scan, versions

ROOT = Path(__file__).resolve().parents[2]
STEPS = {
    "task.before_whole": False,
    "commit.before_catalog": False,
    "commit.before_swap": False,
    "commit.after_swap": True,
    "commit.after": True,
}
"""Places where a writer dies, and whether its load is committed by then."""


def objects(place: Place) -> list[str]:
    """All objects of a table."""
    io = Table(place).io
    return [entry.location for entry in store.listing(io, place.location)]


def use_lake(place: Place) -> None:
    """Load, publish dead letters, compact, and remove what no longer counts; stock readers see each row."""
    load(place, 15)
    load(place, 15, dead=3)
    assert DeadLetters(Table(place)).publish()
    compact(place)
    assert scan(place) == list(range(30))
    assert versions(place) == ["1", "2", "3"]
    table = Table(place)
    assert [entry.version for entry in table.entries()] == [1, 2, 3]
    assert DeadLetters(table).differences(table.entries()) == []
    before = len(objects(place))
    assert vacuum(place, age_seconds=3600) == 0
    removed = vacuum(place, age_seconds=-1)
    assert removed > 3
    assert len(objects(place)) <= before - removed + 4, "removed, but for new metadata of what was expired"
    assert find_orphans(Table(place), -1) == []
    assert scan(place) == list(range(30))
    assert catalog(place).load_table("barnabas.logins__dead").scan().to_arrow().num_rows == 3


def run_here(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run some Python in a process of its own, with more in its environment."""
    path = os.pathsep.join(
        [f"{ROOT}/server", f"{ROOT}/pipeline", str(ROOT), os.environ.get("PYTHONPATH", "")]
    )
    environment = {**os.environ, "PYTHONPATH": path, **more}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True
    )


def die_at(place: Place, point: str, *, is_committed: bool) -> None:
    """Have a writer die at a step of its commit; the next load goes on, and what is removed is no row."""
    load(place, 10)
    code = f"from tests.pipeline.tables import *; load({place!r}, 10)"
    done = run_here(code, BARNABAS_FAULT=point)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert Table(place).state().ends == {0: 20 if is_committed else 10}
    load(place, 10)
    total = 30 if is_committed else 20
    assert scan(place) == list(range(total))
    vacuum(place, age_seconds=-1)
    assert scan(place) == list(range(total))

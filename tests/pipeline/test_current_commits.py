"""Commits of tables of current rows: several runs, answers that are lost, files that go, the command and its exit codes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from barnabas_pipeline import faults
from barnabas_pipeline.cli import main
from barnabas_pipeline.jobs.current import CurrentRows
from barnabas_pipeline.lake import iceberg

from .changing import PAIRS, Event, Topic, current, pairs, rows_of, topic, truth
from .conftest import ROOT
from .tables import catalog
from .test_faults import run_cli

POINTS = [name for name in faults.POINTS if name.startswith("current.")]


def test_second_of_two_runs_continues_from_the_first(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, pairs(random.Random(1), 40, 5))
    source.load({0: 10})
    current(source).round()
    source.load({0: 20})
    slow = current(source)

    def meanwhile() -> None:
        source.load()
        assert current(source).round().has_done

    with faults.acting("current.after_buckets", meanwhile):
        assert not slow.round().has_done, "the other has applied all"
    assert rows_of(slow) == truth(source.partitions)
    assert slow.table.applied.version == 2


@pytest.mark.parametrize("is_late", [True, False], ids=["after it has happened", "before"])
def test_a_commit_counts_once_whatever_the_catalog_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    source = topic(tmp_path, PAIRS, pairs(random.Random(2), 40, 5))
    source.load({0: 10})
    current(source).round()
    source.load()
    job = current(source)
    kind = type(iceberg.open_catalog(source.place))
    commit_table, errors = kind.commit_table, [CommitStateUnknownException("timeout"), TimeoutError("read")]

    def commit(self: Any, *more: Any) -> Any:
        done = commit_table(self, *more) if is_late or not errors else None
        if errors:
            raise errors.pop()
        return done

    monkeypatch.setattr(kind, "commit_table", commit)
    assert job.round().has_done
    monkeypatch.undo()
    assert rows_of(job) == truth(source.partitions)
    assert (job.table.applied.version, job.check().differences) == (2, 0)


def test_a_check_names_what_differs_and_a_rebuild_mends_it(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": n, "text": f"t{n}"}, f"k{n}") for n in range(9)])
    source.load()
    job = current(source)
    job.round()
    table = catalog(source.place).load_table(job.table.place.name)
    table.delete("_key == 'k3'")
    changed = table.scan("_key == 'k4'").to_arrow()
    table.overwrite(changed.set_column(1, changed.schema.field(1), [[-1]]), "_key == 'k4'")
    report = job.check()
    assert report.differences == 2
    assert min(report.examples).split(", should be")[0].endswith("is not there")
    again = current(source, None, rebuild=True)
    again.round()
    assert again.check().differences == 0
    assert again.summary.rebuilt == "asked for"


def test_old_files_go_when_no_snapshot_names_them(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, *(pairs(random.Random(n), 60, 5) for n in range(2)))
    for end in range(10, 61, 10):
        source.load({0: end, 1: end})
        job = current(source, keep_snapshots=2)
        job.round()
    assert len(job.table.iceberg.snapshots()) == 2
    assert job.table.vacuum(3600) == 0, "they are young"
    before = objects(job)
    removed = job.table.vacuum(0)
    assert removed == len(before) - len(objects(job)) > 10
    assert job.table.vacuum(0) == 0, "nothing is left to remove"
    assert rows_of(current(source, None) if job.round().has_done else job) == truth(source.partitions)
    assert current(source).check().differences == 0
    directory = Path(job.table.place.location.removeprefix("file://"))
    kept = {Path(path).name for path in (job.table.applied.gone or {}).values()}
    assert {path.name for path in (directory / "_gone").iterdir()} >= kept


def objects(job: CurrentRows) -> set[Path]:
    """All files of a table but those of its ledger, which are kept."""
    directory = Path(job.table.place.location.removeprefix("file://"))
    return {path for path in directory.rglob("*") if path.is_file() and path.parent.name != "_ledger"}


# --- the command ----------------------------------------------------------------------------------------------------


def command(source: Topic, *more: str) -> list[str]:
    lake = source.place.location.rpartition("/")[0]
    return ["current", "--topic", "logins", "--lake", lake, "--json", *more]


def test_run_killed_anywhere_is_exact_after_the_next(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, pairs(random.Random(3), 60, 8), pairs(random.Random(4), 60, 8))
    for n, name in enumerate(POINTS, 1):
        source.load({0: 12 * n, 1: 12 * n})
        done = run_cli(*command(source, "--key-from", "record-key", "--buckets", "2"), fault=name)
        assert done.returncode == -signal.SIGKILL, f"{name}:\n{done.stderr[-2000:]}"
    source.load()
    done = run_cli(*command(source))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["lost"], summary["dead"], summary["rows"]) == (0, 0, len(truth(source.partitions)))
    assert rows_of(current(source, None)) == truth(source.partitions)
    assert json.loads(run_cli(*command(source, "--check")).stdout)["differences"] == 0


def test_exit_codes_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a"), Event({"n": 2})])
    assert main(command(source, "--key", "n", "--key-from", "record-key")) == 4
    assert main(command(source, "--buckets", "2")) == 4
    assert main(command(source, "--key", "n", "--buckets", "0")) == 4
    assert main(command(source, "--trigger", "sometimes")) == 4
    capsys.readouterr()
    assert main(command(source, "--check")) == 4
    assert f"there is no table {source.place.name}" in capsys.readouterr().err
    source.load()
    assert main(command(source, "--key-from", "record-key")) == 0
    assert json.loads(capsys.readouterr().out)["lost"] == 1
    assert main(command(source, "--strict", "--vacuum-hours", "0")) == 2, "an event has no key"
    assert main(command(source, "--check")) == 0
    catalog(source.place).load_table(f"{source.place.name}__current").delete("n == 1")
    assert main(command(source, "--check")) == 3


def test_a_job_that_follows_waits_for_the_first_load(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a")])
    job = current(source, waits=True)
    assert not job.round().has_done
    source.load()
    assert job.round().has_done
    assert rows_of(job, "n") == {"a": (1,)}


def test_rounds_end_with_a_signal_and_a_summary(tmp_path: Path) -> None:
    source = topic(tmp_path, PAIRS, [Event({"n": 1}, "a")])
    words = [*command(source, "--key-from", "record-key"), "--trigger", "10 milliseconds"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline"}
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas_pipeline.cli", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        source.load()
        job = current(source, None)
        until = time.monotonic() + 60
        while not job.table.refresh().version:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.05)
        process.terminate()
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert json.loads(out)["rows"] == 1

"""kill -9 at every step of a load, of the driver or of a worker: the lake is exact, and no clean-up was needed.

Each point is a run of the real command that dies there (or its worker does), on one lake that goes on growing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline import faults
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import find_orphans, vacuum
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.schema import BUILT_IN

from .conftest import ROOT, SITE, Broker, Stream
from .test_lake import check, options, rows_of, send_small, small_topic

OTHERS = ("compact.", "current.", "dead.", "derived.", "mirror.", "publish.")
LOAD_POINTS = [name for name in faults.POINTS if not name.startswith(OTHERS)]
DRIVER_POINTS = [name for name in LOAD_POINTS if not name.startswith("task.")]
PORTION = 60


def run_cli(*arguments: str, fault: str = "", once: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline",
        "BARNABAS_FAULT": fault,
    }
    if once is not None:
        environment["BARNABAS_FAULT_ONCE"] = str(once)
    command = [sys.executable, "-m", "barnabas_pipeline.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, cwd=ROOT)


def load_arguments(broker: Broker, lake: Path, *more: str) -> list[str]:
    arguments = ["load", "--topic", "logins", "--bootstrap", broker.bootstrap, "--lake", str(lake), "--json"]
    return [*arguments, "--master", "local[2, 4]", "--conf", "spark.driver.memory=512m", *more]


@pytest.mark.parametrize(("trigger", "points"), [("once", LOAD_POINTS), ("available", DRIVER_POINTS)])
def test_a_load_that_dies_anywhere_is_exact_after_the_next(
    spark: Any, tmp_path: Path, new_broker: Callable[..., Broker], trigger: str, points: list[str]
) -> None:
    broker = new_broker()
    log = small_topic(broker, PORTION)
    lake, once = tmp_path / "lake", tmp_path / "once"
    once.mkdir()
    sent = PORTION
    for name in points:
        done = run_cli(*load_arguments(broker, lake, "--trigger", trigger), fault=name, once=once)
        assert (once / name).exists(), f"{name} was not reached:\n{done.stderr[-2000:]}"
        if name.startswith("task."):
            assert done.returncode == 0, f"{name}: a worker's death is survived:\n{done.stderr[-2000:]}"
        else:
            assert done.returncode == -signal.SIGKILL, name
        send_small(broker, "logins", sent, PORTION)
        sent += PORTION
    done = run_cli(*load_arguments(broker, lake, "--trigger", trigger))
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["job"] == "load"
    loading = LoadOptions(log, str(lake / "logins"), BUILT_IN["logins"])
    rows = rows_of(spark, loading)
    assert len(rows) == sum(rows.values()) == sent, "each record once"
    report = check(spark, loading, now_ms=SITE.start_ms)
    assert report.problems == []
    assert report.offsets == report.rows_compared == sent
    assert find_orphans(Table(loading.root), 0), "the dead left files, which nobody sees"


DEAD_POINTS = ["commit.after_swap", *(name for name in faults.POINTS if name.startswith("dead."))]


@pytest.mark.parametrize(
    ("trigger", "points"), [("once", DEAD_POINTS), ("available", ["dead.before_commit"])]
)
def test_stock_readers_see_rows_once_after_any_crash(
    tmp_path: Path, new_broker: Callable[..., Broker], trigger: str, points: list[str]
) -> None:
    from pyiceberg.catalog import load_catalog

    broker = new_broker()
    sent = PORTION if trigger == "once" else 2 * PORTION
    small_topic(broker, sent)
    lake = tmp_path / "lake"
    arguments = load_arguments(broker, lake, "--trigger", trigger, "--value-bytes-max", "54")
    for name in points:
        done = run_cli(*arguments, fault=name)
        assert done.returncode == -signal.SIGKILL, f"{name}:\n{done.stderr[-2000:]}"
        send_small(broker, "logins", sent, 2 * PORTION)  # from three digits on, an event is too large
        sent += 2 * PORTION
    done = run_cli(*arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{lake}/catalog.db")
    table, dead = catalog.load_table("barnabas.logins"), catalog.load_table("barnabas.logins__dead")
    rows = sorted(table.scan().to_arrow()["_offset"].to_pylist())
    letters = sorted(dead.scan().to_arrow()["offset"].to_pylist())
    assert rows
    assert letters
    assert sorted(rows + letters) == list(range(sent))
    ranges = [entry.partitions["0"] for entry in Table(lake / "logins").entries()]
    assert [span.start for span in ranges] == [0, *(span.end for span in ranges[:-1])], (
        "commits follow each other"
    )
    if trigger == "available":
        return
    common = ["--topic", "logins", "--lake", str(lake), "--json"]
    spark = ["--master", "local[2, 4]", "--conf", "spark.driver.memory=512m"]
    done = run_cli("compact", *common, *spark, "--vacuum-hours", "0", fault="compact.after_commit")
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert len(list(table.refresh().scan().plan_files())) == 1
    done = run_cli("compact", *common, *spark, "--vacuum-hours", "0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["removed_orphans"] > 0
    assert sorted(table.refresh().scan().to_arrow()["_offset"].to_pylist()) == rows
    table.delete("_offset >= 0")
    reading = ["--bootstrap", broker.bootstrap, "--now", str(SITE.start_ms), *spark]
    audited = run_cli("audit", *common, *reading, "--strict")
    report = json.loads(audited.stdout.splitlines()[-1])
    assert (audited.returncode, report["erased_by_others"], report["problems"]) == (2, len(rows), [])


def test_wrong_options_of_the_catalog_are_usage_errors(tmp_path: Path) -> None:
    common = ["redrive", "--topic", "logins"]
    done = run_cli(*common, "--lake", str(tmp_path), "--catalog-property", "x")
    assert (done.returncode, "not NAME=VALUE" in done.stderr) == (4, True)
    done = run_cli(*common, "--lake", "s3://bucket/lake")
    assert (done.returncode, "needs a catalog" in done.stderr) == (4, True)
    done = run_cli(*common, "--lake", str(tmp_path), "--table", "logins")
    assert (done.returncode, "no NAMESPACE.NAME" in done.stderr) == (4, True)


def test_exit_codes_tell_usage_from_data_loss(tmp_path: Path, new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    assert run_cli("load", "--topic", "t").returncode == 4
    assert run_cli("fly").returncode == 4
    done = run_cli(*load_arguments(broker, tmp_path / "lake"))
    assert done.returncode == 4, "there is no such topic"
    assert "there is no topic 'logins'" in done.stderr
    log = LogOptions("logins", "wire", broker.bootstrap)
    assert small_topic(broker, 10) == log
    asked = ["--from-offsets", '{"0": 50}']
    done = run_cli(*load_arguments(broker, tmp_path / "lake", *asked))
    assert (done.returncode, "partition 0: [10, 50)" in done.stderr) == (3, True), done.stderr


def test_a_compaction_that_dies_anywhere_loses_nothing(spark: Any, stream: Stream, tmp_path: Path) -> None:
    loading = options(stream, tmp_path, "logins", offsets_per_commit_max=300)
    load(spark, loading)
    before = rows_of(spark, loading)
    arguments = ["compact", "--topic", "logins", "--lake", str(tmp_path), "--master", "local[2, 4]", "--json"]
    for name in ("compact.before_commit", "commit.before_swap", "compact.after_commit"):
        done = run_cli(*arguments, fault=name)
        assert done.returncode == -signal.SIGKILL, f"{name}:\n{done.stderr[-2000:]}"
        assert rows_of(spark, loading) == before, name
    assert check(spark, loading).problems == []
    assert vacuum(loading.root, age_seconds=0) > 0
    assert rows_of(spark, loading) == before

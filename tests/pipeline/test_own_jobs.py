"""Jobs of other packages: a wheel in a fresh environment, a job that no page has beside the one of the page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.simulate.model import Event, Simulation, Site
from tests.pipeline.conftest import ROOT
from tests.pipeline.written import append
from tests.support.pages import EXAMPLES

SLOWEST = '''
from pyspark.sql import functions as sf

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.derived import DerivedJob


class Slowest(DerivedJob):
    """Pages by their slowest answer, with how many members saw them so slow or faster, of those with some size."""

    name = "slowest"
    kinds = ("views",)
    sums = ("views", "tenths")

    def __init__(self, least):
        self.least = least

    def partial(self, tables):
        tenths = sf.round(sf.col("took_ms") * 10).cast("bigint")
        found = tables["views"].where("took_ms is not null").groupBy("url")
        return found.agg(sf.count("*").alias("views"), sf.sum(tenths).alias("tenths"), sf.max("took_ms").alias("worst"))

    def merge(self, partials):
        return partials.groupBy("url").agg(
            sf.sum("views").alias("views"), sf.sum("tenths").alias("tenths"), sf.max("worst").alias("worst"))

    def params(self):
        return {}

    def finish(self, condensed):
        mean = (sf.col("tenths") / sf.col("views") / 10).alias("mean")
        return {"slowest": condensed.where(sf.col("views") >= self.least).select("url", "views", "worst", mean)}

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--least", type=int, default=1)

    @classmethod
    def from_options(cls, args):
        if args.least < 1:
            raise UsageError("--least is at least 1")
        return cls(args.least)
'''
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "site-jobs"
version = "1"

[project.entry-points."barnabas_pipeline.jobs"]
agents = "site_jobs:Agents"
slowest = "site_jobs.slowest:Slowest"

[tool.hatch.build.targets.wheel]
packages = ["site_jobs"]
"""


def ran(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    return subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, timeout=300, cwd="/"
    )


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and a package of jobs; what they need lies in that of the tests."""
    work = tmp_path_factory.mktemp("own")
    package = work / "site-jobs" / "site_jobs"
    package.mkdir(parents=True)
    shutil.copy(EXAMPLES / "agents_job.py", package / "__init__.py")
    (package / "slowest.py").write_text(SLOWEST)
    (work / "site-jobs" / "pyproject.toml").write_text(PROJECT)
    for source in (ROOT, work / "site-jobs"):
        words = ["build", "--target", "wheel", "--directory", str(work / "dist")]
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", *words], cwd=source, capture_output=True, text=True,
            env={**os.environ, "BARNABAS_COMPILED": "no"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    venv.create(work / "venv", with_pip=True)
    python = work / "venv" / "bin" / "python"
    done = ran(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", *(work / "dist").iterdir())
    assert done.returncode == 0, done.stderr
    inside = ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    (Path(inside) / "needed.pth").write_text(sysconfig.get_path("purelib"))
    path = ran(python, "-c", "import barnabas_pipeline; print(barnabas_pipeline.__file__)").stdout
    assert path.startswith(inside), "the wheel is what runs, not the checkout"
    return python.parent


def test_jobs_of_a_package_run_as_ours_do(programs: Path, tmp_path: Path) -> None:
    events = [view for view in Simulation(Site(seed=3, events=4_000)).events() if view.kind == "views"]
    lake, out = tmp_path / "lake", tmp_path / "out"
    common = ["--lake", str(lake), "--out", str(out), "--json", "--master", "local[2]"]

    def run(job: str, *more: str) -> dict[str, object]:
        done = ran(programs / "barnabas-pipeline", job, *common, *more)
        assert done.returncode == 0, done.stderr[-2000:]
        return dict(json.loads(done.stdout.splitlines()[-1]))

    append(lake, events[:1_500])
    assert run("slowest")["is_replay"]
    append(lake, events[1_500:])
    done = run("slowest", "--least", "2")
    assert (done["is_replay"], done["rows_read"]) == (False, len(events) - 1_500)
    assert pq.read_table(out / "slowest/results/slowest.parquet").to_pylist() == slowest(events, 2)
    run("agents")
    agents = pq.read_table(out / "agents/results/agents.parquet").to_pylist()
    assert {row["agent"]: row["views"] for row in agents} == Counter(view.fields["agent"] for view in events)


def slowest(events: list[Event], least: int) -> list[dict[str, object]]:
    """Count the same in Python."""
    took: dict[str, list[float]] = {}
    for event in events:
        took.setdefault(event.fields["url"], []).append(event.fields["took_ms"])
    return [
        {"url": url, "views": len(runs), "worst": max(runs), "mean": sum(round(ms * 10) for ms in runs) / len(runs) / 10}
        for url, runs in sorted(took.items()) if len(runs) >= least
    ]  # fmt: skip


def test_what_is_wrong_with_a_job_is_said_as_for_ours(programs: Path, tmp_path: Path) -> None:
    command = programs / "barnabas-pipeline"
    listed = ran(command, "--help").stdout
    assert "slowest" in listed
    assert "a job of site-jobs" in listed
    assert "--least" in ran(command, "slowest", "--help").stdout
    common = ["--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "out")]
    done = ran(command, "slowest", *common, "--least", "0")
    assert (done.returncode, done.stderr) == (4, "usage: --least is at least 1\n")
    done = ran(command, "agents", *common, "--to-topic", "t", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 4

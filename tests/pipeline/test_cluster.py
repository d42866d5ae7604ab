"""A real cluster: a standalone master and two workers, and loads submitted to it by spark-submit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline.jobs.derived import Derived
from barnabas_pipeline.jobs.visitors import Visitors
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import find_orphans
from compat.spark import account, sender
from compat.spark.cluster import SPECULATION, SparkCluster, kill_group

from .conftest import Broker, Stream
from .stores import BUCKET, FailingS3, Where
from .test_lake import check, good_events, options, rows_of

JOB_SECONDS_MAX = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def load_arguments(bootstrap: str, topic: str, lake: Path | str) -> list[str]:
    arguments = ["load", "--topic", topic, "--json", "--bootstrap", bootstrap, "--lake", str(lake)]
    return [*arguments, "--split-bytes", "50000", "--worker-offsets-max", "0"]


def stopping(point: str, once: Path) -> dict[str, str]:
    """Settings by which the first task that comes to a point stops there."""
    names = {"FAULT": point, "FAULT_ONCE": str(once), "FAULT_SIGNAL": "SIGSTOP"}
    return {f"spark.executorEnv.BARNABAS_{name}": value for name, value in names.items()}


def wait_until(is_so: Callable[[], bool], job: subprocess.Popen[str], log: Path) -> None:
    """Wait until something is so, while a job runs."""
    deadline = time.monotonic() + JOB_SECONDS_MAX
    while not is_so():
        assert job.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def finish(job: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """The summary of a job that is to end well."""
    try:
        out, _ = job.communicate(timeout=JOB_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        kill_group(job)
        raise
    assert job.returncode == 0, log.read_text()[-3000:]
    return dict(json.loads(out.strip().splitlines()[-1]))


def test_a_load_that_is_submitted_to_a_cluster_is_exact(
    spark: Any, stream: Stream, tmp_path: Path, cluster: SparkCluster
) -> None:
    log = tmp_path / "log"
    summary = finish(cluster.submit(load_arguments(stream.bootstrap, "votes", tmp_path / "lake"), log), log)
    assert summary["loaded"] + summary["dead"] == len(stream.of("votes"))
    executors = [path for n in range(2) for path in cluster.work(n).glob("app-*/*/stderr")]
    assert len({path.parents[2] for path in executors}) == 2, "both workers had a part in it"
    loading = options(stream, tmp_path / "lake", "votes")
    assert rows_of(spark, loading) == good_events(stream, "votes")
    assert check(spark, loading).problems == []


@pytest.mark.parametrize("point", ["task.after_block", "task.after_files"])
def test_a_task_that_was_run_twice_is_there_once(
    spark: Any, stream: Stream, tmp_path: Path, cluster: SparkCluster, point: str
) -> None:
    """The first attempt stops in the middle of its files or with all of them whole; another one takes its place."""
    log, once = tmp_path / "log", tmp_path / "once"
    once.mkdir()
    before = cluster.task_attempts()
    arguments = load_arguments(stream.bootstrap, "votes", tmp_path / "lake")
    summary = finish(cluster.submit(arguments, log, conf={**SPECULATION, **stopping(point, once)}), log)
    assert (once / point).exists(), "a task has stopped"
    attempts = cluster.task_attempts() - before
    assert attempts["speculative"] >= attempts["speculative, first to end"] >= 1, attempts
    assert summary["loaded"] + summary["dead"] == len(stream.of("votes"))
    loading = options(stream, tmp_path / "lake", "votes")
    assert rows_of(spark, loading) == good_events(stream, "votes")
    assert check(spark, loading, deep=True).problems == []
    orphans = find_orphans(Table(loading.root), -1)
    assert any("/data/" in path for path in orphans), "what the first attempt has written, and nobody names"


def test_results_in_a_store_equal_those_in_a_directory(
    spark: Any, stream: Stream, tmp_path: Path, cluster: SparkCluster, s3: FailingS3
) -> None:
    """The catalog is the driver's alone, and the store is all that the executors reach."""
    log, root = tmp_path / "log", f"s3://{BUCKET}/{tmp_path.name}"
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", **s3.properties}
    del properties["s3.retry-strategy-impl"]  # a class of the tests
    lake = ["--lake", f"{root}/lake"]
    for name, value in properties.items():
        lake += ["--catalog-property", f"{name}={value}"]
    finish(cluster.submit([*load_arguments(stream.bootstrap, "profiles", f"{root}/lake"), *lake], log), log)
    summary = finish(cluster.submit(["visitors", "--json", *lake, "--out", f"{root}/results"], log), log)
    shown = Where(f"{root}/results/visitors/results", StoreIO(properties))
    assert shown.names() == ["visitors.csv", "visitors.parquet"]
    assert summary["results"] == {"visitors": f"{shown.location}/visitors.parquet"}
    place = Lake(f"{root}/lake", properties=tuple(properties.items()))
    Derived(Visitors(), lake=place, root=str(tmp_path / "here")).update(spark)
    assert shown.all() == Where(f"file://{tmp_path}/here/visitors/results", StoreIO({})).all()
    assert summary["rows_read"] == sum(good_events(stream, "profiles").values())


SEED = 7


def lose_executors(cluster: SparkCluster, _job: subprocess.Popen[str]) -> None:
    for pid in cluster.executors():
        os.kill(pid, signal.SIGKILL)


def lose_worker(cluster: SparkCluster, _job: subprocess.Popen[str]) -> None:
    for number in range(2):  # the stopped task is in one of them
        cluster.kill_worker(number)
        cluster.start_worker(number)


def lose_driver(_cluster: SparkCluster, job: subprocess.Popen[str]) -> None:
    kill_group(job)


def test_lost_worker_or_broker_costs_no_record(
    tmp_path: Path, cluster: SparkCluster, new_broker: Callable[..., Broker]
) -> None:
    broker = new_broker()
    lake, log, journal = tmp_path / "lake", tmp_path / "log", tmp_path / "journal"
    sender.make_topic(broker.bootstrap)
    arguments = load_arguments(broker.bootstrap, sender.TOPIC, lake)
    for lose in (lose_executors, lose_worker, lose_driver):
        sender.send(broker.bootstrap, "s", journal, SEED, 20)
        once = tmp_path / lose.__name__
        once.mkdir()
        job = cluster.submit(arguments, log, conf=stopping("task.after_files", once))
        wait_until(lambda once=once: any(once.iterdir()), job, log)  # type: ignore[misc]
        lose(cluster, job)
        if lose is lose_driver:
            assert job.returncode == -signal.SIGKILL
            job = cluster.submit(arguments, log)
        finish(job, log)
    ends = cluster.task_attempts()
    assert ends["ExecutorLostFailure"] >= 2, ends
    report = account.take(broker.bootstrap, lake, [(journal, "s")])
    assert report.is_exact, report
    assert report.transactions_aborted > 3
    assert report.committed == report.acknowledged > 1000
    assert report.in_the_log == report.committed + report.taken_back
    assert Table(lake / sender.TOPIC).state().version == 3
    assert find_orphans(Table(lake / sender.TOPIC), -1), "what the lost have written, and nobody names"

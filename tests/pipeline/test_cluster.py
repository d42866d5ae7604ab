"""A real cluster: a standalone master and two workers, and a load submitted to it by spark-submit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyspark
import pytest

from .conftest import ROOT, Stream
from .test_lake import check, good_events, options, rows_of

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 90


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline",
    }


def start(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    file: IO[bytes]
    with log.open("wb") as file:
        return subprocess.Popen(command, env=environment(), stdout=file, stderr=subprocess.STDOUT)


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        text = log.read_text(errors="replace")
        match = re.search(pattern, text)
        if match:
            return match
        assert process.poll() is None and time.monotonic() < deadline, text  # noqa: PT018  # one condition: it may still come
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    started = []
    log = tmp_path / "master.log"
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    process = start(log, "org.apache.spark.deploy.master.Master", *local, "--port", "0")
    started.append(process)
    url = wait_for(log, r"Starting Spark master at (spark://\S+)", process)[1]
    for n in range(2):
        worker_log = tmp_path / f"worker{n}.log"
        sizes = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work{n}")]
        worker = start(worker_log, "org.apache.spark.deploy.worker.Worker", *local, *sizes, url)
        started.append(worker)
        wait_for(worker_log, "Successfully registered with master", worker)
    yield url
    for one in reversed(started):
        one.terminate()
        one.wait(30)


def test_a_load_that_is_submitted_to_a_cluster_is_exact(
    spark: Any, stream: Stream, tmp_path: Path, master: str
) -> None:
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    command += ["--conf", "spark.ui.enabled=false", "--driver-memory", "512m"]
    command += [str(ROOT / "pipeline" / "barnabas_pipeline" / "cli.py"), "load", "--topic", "votes", "--json"]
    command += ["--bootstrap", stream.bootstrap, "--lake", str(tmp_path / "lake"), "--split-bytes", "50000"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    assert summary["loaded"] + summary["dead"] == len(stream.of("votes"))
    executors = [path for n in range(2) for path in (tmp_path / f"work{n}").glob("app-*/*/stderr")]
    assert len({path.parents[2] for path in executors}) == 2, "both workers had a part in it"
    loading = options(stream, tmp_path / "lake", "votes")
    assert rows_of(spark, loading) == good_events(stream, "votes")
    assert check(spark, loading).problems == []

"""Spark's own cluster manager on loopback: a master, workers, and jobs that are submitted to it.

The rule: each worker is another host to Spark (127.0.0.2, 127.0.0.3, ...), for a speculative copy of a task is never run
on the host of the first. Only descendants of processes that were started here are ever signalled.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import pyspark

from tests.support.systems import children

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
MAIN = ROOT / "pipeline" / "barnabas_pipeline" / "cli.py"
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 30
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",  # of a job's tasks, so that one of two is enough
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
}
"""A task is run a second time once it takes half as long again as the median of the others, and a second."""
IMPORTS = f"{ROOT}/server{os.pathsep}{ROOT}/pipeline"


class SparkError(Exception):
    """A process of the cluster does not start; the message has its log."""


class SparkCluster:
    """A standalone master and its workers, each with one core."""

    def __init__(self, directory: Path, workers: int = 2, memory: str = "600m") -> None:
        self.directory = directory
        self.url = ""
        self._count, self._memory = workers, memory
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._submitted = 0

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the master and all workers. Raises SparkError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.event_logs.mkdir()
        log = self.directory / "master.log"
        place = ["--host", "127.0.0.1", "--webui-port", "0", "--port", "0"]
        self._master = self._start(log, "org.apache.spark.deploy.master.Master", *place, host="127.0.0.1")
        self.url = wait_for(log, r"Starting Spark master at (spark://\S+)", self._master)[1]
        for number in range(self._count):
            self.start_worker(number)

    def start_worker(self, number: int) -> None:
        """Start a worker, for the first time or again. Raises SparkError."""
        log = self.directory / f"worker{number}.log"
        log.unlink(missing_ok=True)
        host = f"127.0.0.{number + 2}"
        sizes = ["--cores", "1", "--memory", self._memory, "--work-dir", str(self.work(number))]
        place = ["--host", host, "--webui-port", "0", *sizes, self.url]
        self._workers[number] = self._start(log, "org.apache.spark.deploy.worker.Worker", *place, host=host)
        wait_for(log, "Successfully registered with master", self._workers[number])

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executors end themselves when they miss it."""
        self._workers[number].kill()
        self._workers.pop(number).wait()

    def stop(self) -> None:
        """End all of it."""
        processes = [*self._workers.values(), *([self._master] if self._master else [])]
        self._workers.clear()
        self._master = None
        for process in processes:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def event_logs(self) -> Path:
        """The directory that each application leaves its events in."""
        return self.directory / "events"

    def work(self, number: int) -> Path:
        """The directory of a worker, with the logs of its executors."""
        return self.directory / f"work{number}"

    def executors(self) -> list[int]:
        """The process ids of all executors."""
        return children(*(worker.pid for worker in self._workers.values()))

    def python_workers(self) -> list[int]:
        """The process ids of all processes that run tasks: the children of each executor's daemon."""
        return children(*children(*self.executors()))

    def submit(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        conf: Mapping[str, str] | None = None,
        more: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Run a job of the pipeline by spark-submit, as a session of its own; what it prints can be read."""
        self._submitted += 1
        settings = {
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.event_logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            **(conf or {}),
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, "--driver-memory", "512m"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += [*more, str(MAIN), *arguments]
        with log.open("a") as errors:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                env={
                    **environment_of("127.0.0.1"), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": IMPORTS,
                    **(environment or {}),
                },
            )  # fmt: skip

    def task_attempts(self) -> Counter[str]:
        """Count the attempts of tasks in all event logs: `all`, `speculative`, and how each ended, by reason."""
        attempts: Counter[str] = Counter()
        for path in self.event_logs.iterdir():
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith('{"Event":"SparkListenerTask') and line.endswith("}"):
                    _count(json.loads(line), attempts)
        return attempts

    def _start(self, log: Path, *arguments: str, host: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        file: IO[bytes]
        with log.open("wb") as file:
            return subprocess.Popen(command, env=environment_of(host), stdout=file, stderr=subprocess.STDOUT)


def _count(event: dict[str, object], attempts: Counter[str]) -> None:
    info = event["Task Info"]
    assert isinstance(info, dict)
    if event["Event"] == "SparkListenerTaskStart":
        attempts["all"] += 1
        attempts["speculative"] += info["Speculative"]
    elif event["Event"] == "SparkListenerTaskEnd":
        reason = event["Task End Reason"]
        assert isinstance(reason, dict)
        attempts[str(reason["Reason"])] += 1
        attempts["speculative, first to end"] += info["Speculative"] and reason["Reason"] == "Success"


def environment_of(host: str) -> dict[str, str]:
    """The environment of a process of Spark's on a host: there is nothing of this project in it."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",  # however often executors die
    }


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
    """Wait until a process has logged something. Raises SparkError."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        text = log.read_text(errors="replace")
        match = re.search(pattern, text)
        if match:
            return match
        if process.poll() is not None or time.monotonic() > deadline:
            raise SparkError(text)
        time.sleep(0.1)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a job with all that it has started here."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

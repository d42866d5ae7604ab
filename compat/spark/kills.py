"""The processes of a run that are killed, and the schedule of the kills.

The rule: the seed decides which process is killed and when; what has ended is started again, as a supervisor would.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from barnabas_pipeline.errors import EXIT_INCOMPLETE
from compat.matrix.brokers import Barnabas
from compat.soak.transfers import Worker
from compat.spark import sender
from compat.spark.cluster import MAIN, SPECULATION, SparkCluster, kill_group
from tests.support.systems import children, processes

JOB_SECONDS_MAX = 3600
JVM_ENDS_SECONDS_MAX = 120
VICTIMS = {
    "executor": 5,
    "task": 3,
    "pause": 4,
    "driver": 3,
    "driver's Python": 1,
    "driver's JVM": 1,
    "worker": 1,
    "broker": 3,
    "sender": 3,
    "compaction": 1,
}
"""Victims, and how often each is chosen; `pause` stops a process that runs tasks, which are then run again elsewhere."""
HARMLESS = {"sender", "compaction"}
SET_BACK_SECONDS = 60
"""All others wait for a commit, or as long as this: else no task would ever end on a busy machine."""
PAUSE_SECONDS = (4.0, 12.0)
LOCAL = ["--master", "local[1, 4]", "--conf", "spark.driver.memory=512m"]


class BrokenError(Exception):
    """A process has ended unexpectedly; the message says which."""


class Senders:
    """Transactional producers that are started again whenever they end."""

    def __init__(self, bootstrap: str, directory: Path, count: int, seed: int) -> None:
        self._bootstrap = bootstrap
        command = [sys.executable, "-m", "compat.spark.sender", str(seed)]
        self._all = [Worker(f"s{n}", command, bootstrap, directory) for n in range(count)]

    @property
    def journals(self) -> list[tuple[Path, str]]:
        """The journal of each name."""
        return [(sender.acknowledged, sender.name) for sender in self._all]

    @property
    def ended(self) -> int:
        """Number of times that one has ended by itself."""
        return sum(sender.failures for sender in self._all)

    def keep_alive(self) -> None:
        """Start the senders that are not running."""
        for process in self._all:
            process.keep_alive()

    def kill(self, chosen: random.Random) -> None:
        """Kill one."""
        chosen.choice(self._all).kill()

    def stop(self) -> None:
        """Kill all of them."""
        for process in self._all:
            process.kill()

    def settle(self) -> None:
        """End all open transactions: a new producer with the transactional id of a killed one aborts its transaction."""
        from confluent_kafka import Producer

        for process in self._all:
            settings = {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": process.name,
                "log_level": 0,
            }
            Producer(settings).init_transactions(sender.TIMEOUT_SECONDS)


class Run:
    """A broker, senders, a cluster of Spark's, and a load that never ends."""

    def __init__(self, directory: Path, seed: int, senders: int) -> None:
        self.directory, self.lake = directory, directory / "lake"
        self.random = random.Random(seed)
        self.broker = Barnabas(directory)
        self.broker.start()
        self.cluster = SparkCluster(directory / "spark")
        self.senders = Senders(self.broker.bootstrap, directory, senders, seed)
        self.killed: Counter[str] = Counter()
        self.loads_ended = 0
        self._load: subprocess.Popen[str] | None = None
        self._compaction: subprocess.Popen[str] | None = None
        self._paused: list[int] = []
        self._entries_before, self._set_back_at = 0, time.monotonic()

    @property
    def _common(self) -> list[str]:
        return ["--topic", sender.TOPIC, "--lake", str(self.lake), "--json"]

    @property
    def _from(self) -> list[str]:
        return [*self._common, "--bootstrap", self.broker.bootstrap]

    def go(self, seconds: float, every: tuple[float, float]) -> None:
        """Kill for some time. Raises BrokenError."""
        sender.make_topic(self.broker.bootstrap)
        self.cluster.start()
        began = time.monotonic()
        with (self.directory / "kills.log").open("a", buffering=1) as log:
            while time.monotonic() < began + seconds:
                self.keep_alive()
                time.sleep(self.random.uniform(*every))
                victim = self.random.choices([*VICTIMS], [*VICTIMS.values()])[0]
                if victim not in HARMLESS and not self._has_gone_on():
                    continue
                log.write(f"{time.monotonic() - began:7.1f} s, {self._entries()} entries: {victim}\n")
                self.strike(victim)

    def keep_alive(self) -> None:
        """Start the processes that have ended. Raises BrokenError for a load that ended with an unexpected error."""
        self._wake()
        self.senders.keep_alive()
        if self._load is not None and self._load.poll() is not None:
            code = self._load.returncode
            if code != EXIT_INCOMPLETE:
                raise BrokenError(f"a load has ended with {code}; see {self.directory / 'load.log'}")
            self.loads_ended += 1
            self._load = None
        if self._load is None:
            command = ["load", *self._from, "--trigger", "500 milliseconds", "--split-bytes", "20000"]
            command += ["--worker-offsets-max", "0"]
            command += ["--keep-snapshots", "20"]
            self._load = self.cluster.submit(command, self.directory / "load.log", conf=SPECULATION)

    def _entries(self) -> int:
        return len([*self.lake.glob(f"{sender.TOPIC}/_ledger/*")])

    def _has_gone_on(self) -> bool:
        """Return whether a load has committed since its last kill, or has had enough time for it."""
        entries, now = self._entries(), time.monotonic()
        if entries == self._entries_before and now - self._set_back_at < SET_BACK_SECONDS:
            return False
        self._entries_before, self._set_back_at = entries, now
        return True

    def strike(self, victim: str) -> None:
        """Kill or pause one, if there is one."""
        match victim:
            case "executor" | "task" | "pause":
                pids = self.cluster.executors() if victim == "executor" else self.cluster.python_workers()
                if not pids:
                    return
                self._signal(self.random.choice(pids), victim)
            case "broker":
                self.broker.restart("kill")
            case "sender":
                self.senders.kill(self.random)
            case "worker":
                number = self.random.randrange(2)
                self.cluster.kill_worker(number)
                time.sleep(self.random.uniform(0, 5))
                self.cluster.start_worker(number)
            case "compaction":
                self._compact()
                return
            case "driver" | "driver's Python" | "driver's JVM":
                self._kill_driver(victim)
            case _:
                return
        self.killed[victim] += 1

    def _signal(self, pid: int, victim: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP if victim == "pause" else signal.SIGKILL)
        if victim == "pause":
            self._paused.append(pid)
            time.sleep(self.random.uniform(*PAUSE_SECONDS))

    def _wake(self) -> None:
        mine = self.cluster.python_workers() if self._paused else []
        for pid in self._paused:
            if pid in mine:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self._paused.clear()

    def _kill_driver(self, victim: str) -> None:
        """Kill a driver, or one of its two processes; the other one has to end by itself. Raises BrokenError."""
        load, self._load = self._load, None
        assert load is not None
        commands = {pid: command for pid, (_, _, command) in processes().items()}
        # No daemon for data sources.
        python = [pid for pid in children(load.pid) if MAIN.name in commands.get(pid, "")]
        if victim == "driver" or not python:
            kill_group(load)
            return
        os.kill(load.pid if victim == "driver's JVM" else python[0], signal.SIGKILL)
        try:
            load.communicate(timeout=JVM_ENDS_SECONDS_MAX)  # until nobody can print any more
        except subprocess.TimeoutExpired:
            kill_group(load)
            raise BrokenError(f"a driver goes on without its {victim.split()[1]}") from None

    def _compact(self) -> None:
        """Begin to compact beside the load, or kill the process that does so already."""
        running, self._compaction = self._compaction, None
        if running is not None and running.poll() is None:
            kill_group(running)
            self.killed["compaction"] += 1
        elif (self.lake / "catalog.db").exists():
            command = ["compact", *self._common, "--vacuum-hours", "0.02", *LOCAL]
            self._compaction = self._here(command)

    def _here(self, command: list[str]) -> subprocess.Popen[str]:
        """Start a job on this machine alone."""
        with (self.directory / "jobs.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "barnabas_pipeline.cli", *command],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip

    def settle(self) -> str:
        """Load the rest, and audit; returns what the audit prints. Raises BrokenError."""
        self._end_all()
        self.senders.settle()
        for command in (
            ["load", *self._from, *LOCAL],
            ["compact", *self._common, "--vacuum-hours", "0", *LOCAL],
            ["audit", *self._from, "--deep", "--strict", *LOCAL],
        ):
            done = self._here(command)
            out, _ = done.communicate(timeout=JOB_SECONDS_MAX)
            if done.returncode:
                raise BrokenError(
                    f"{command[0]} has ended with {done.returncode}; see {self.directory / 'jobs.log'}"
                )
        return out

    def _end_all(self) -> None:
        """End senders and jobs."""
        self._wake()
        self.senders.stop()
        for process in (self._load, self._compaction):
            if process is not None and process.poll() is None:
                kill_group(process)
        self._load = self._compaction = None

    def stop(self) -> None:
        """End all of it."""
        self._end_all()
        self.cluster.stop()
        self.broker.end()

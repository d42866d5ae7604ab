"""`barnabas cluster` as a user has it: three nodes, the leading one killed, all stopped and started again."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from tests.support.effort import EFFORT
from tests.support.stock_consumer import read_values

WAIT_S = 60
READY = "barnabas cluster is ready: bootstrap.servers="


class Running:
    """A cluster with what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def until(self, words: str) -> str:
        """Read what it says up to a line with these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError("".join(self.said))

    def pids(self) -> dict[str, int]:
        """Processes by the name of their node."""
        return {
            match[1]: int(match[2])
            for line in self.said
            if (match := re.match(r"(\w+ \d+) is ready: .* pid=(\d+)", line))
        }


PROGRAM = (sys.executable, "-m", "barnabas")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": import_path()}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, check=False, env=environment(), timeout=WAIT_S
    )


def active_controller(bootstrap: str) -> int:
    done = command("brokers", "quorum", "--bootstrap", bootstrap, "--json")
    assert done.returncode == 0, done.stderr
    leader: int = json.loads(done.stdout)["quorum"]["leader"]
    return leader


@contextmanager
def cluster(directory: Path, *options: str) -> Iterator[Running]:
    words = [*PROGRAM, "cluster", "--port", "0", "--dir", str(directory), *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        yield Running(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--zookeeper"]], ids=["quorum", "zookeeper"])
def test_cluster_survives_a_kill_and_a_restart_of_all(tmp_path: Path, options: list[str]) -> None:
    with cluster(tmp_path, *options) as running:
        ready = running.until(READY)
        bootstrap = ready.removeprefix(READY).split()[0]
        assert not any("not served" in line for line in running.said)
        for path in tmp_path.glob("**/meta.properties"):  # Kafka 3.9 opens no other in a cluster on ZooKeeper
            assert f"version={0 if options else 1}" in path.read_text().splitlines()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(WAIT_S)
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "retry.backoff.ms": 50, "log_level": 0}
        producer = Producer(settings)
        acknowledged: list[bytes] = []

        def produce(values: list[bytes]) -> None:
            for number, value in enumerate(values):
                producer.produce(
                    "t", value, partition=number % 3,
                    on_delivery=lambda error, message: acknowledged.append(message.value()) if not error else None,
                )  # fmt: skip
            assert producer.flush(WAIT_S) == 0

        produce([b"before %d" % n for n in range(30)])
        leader = 2 if options else active_controller(bootstrap)
        os.kill(running.pids()[f"broker {leader}"], signal.SIGKILL)
        assert f"broker {leader} has ended (killed by SIGKILL), 2 of 3 are left" in running.until("has ended")
        produce([b"after %d" % n for n in range(30)])
        assert len(acknowledged) == 60
        again = shlex.split(running.until("barnabas serve"))
        with subprocess.Popen(again, stdout=subprocess.PIPE, text=True, env=environment()) as restarted:
            assert restarted.stdout is not None
            line = restarted.stdout.readline()
            restarted.terminate()
            assert "bootstrap.servers=" in line
            assert restarted.wait(WAIT_S) == 0
    if EFFORT == 1:
        return  # the second start takes as long as the first
    with cluster(tmp_path) as running:  # the way in which it was made
        second = running.until(READY)
        assert second.removeprefix(READY).split()[0] == bootstrap
        if options:
            assert "is on ZooKeeper since its first start" in running.said[0]
        else:
            assert second == ready
        assert read_values(bootstrap, 60) == set(acknowledged)


@pytest.mark.slow
def test_controllers_beside_brokers_are_replaced_too(tmp_path: Path) -> None:
    with cluster(tmp_path, "--brokers", "1", "--controllers", "3") as running:
        bootstrap = running.until(READY).removeprefix(READY).split()[0]
        leader = active_controller(bootstrap)
        os.kill(running.pids()[f"controller {leader}"], signal.SIGKILL)
        assert f"controller {leader} has ended (killed by SIGKILL), 2 of 3 are left" in running.until(
            "has ended"
        )
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(30):
            producer.produce("t", b"%d" % number)
        assert producer.flush(WAIT_S) == 0
        assert len(read_values(bootstrap, 30)) == 30


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    place = ["--port", "0", "--dir", str(tmp_path / "d")]
    for options, words in (
        (["--zookeeper", "--controllers", "3"], "--controllers"),
        (["--controllers", "0"], "from 1 to 100"),
        (["--set", "process.roles=broker"], "each broker has its own"),
    ):
        done = command("cluster", *place, *options)
        assert done.returncode == 2
        assert words in done.stderr
    assert not (tmp_path / "d").exists()

"""`barnabas serve --workers 2` as a user has it: each killed, all stopped and started again; logins; what is refused."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path
from tests.support.stock_consumer import read_values
from tests.support.systems import processes

WAIT_S = 60
READY = "barnabas is ready: bootstrap.servers="
COUNT = 60
NO_LOGIN: Mapping[str, str] = MappingProxyType({})


class Running:
    """The processes, and what they say."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        self.bootstrap = line.removeprefix(READY).split()[0]

    def until(self, words: str) -> str:
        """Read what it says up to a line with these words."""
        assert self.process.stderr is not None
        output = ""
        for line in self.process.stderr:
            output += line
            if words in line:
                return line
        raise AssertionError(output)


def command(directory: Path, *more: str) -> list[str]:
    listen = () if "--listen" in more else ("--listen", "127.0.0.1:0")
    return [sys.executable, "-m", "barnabas", "serve", *listen, "--data", str(directory), *more]


@contextmanager
def workers(directory: Path, count: int, *options: str) -> Iterator[Running]:
    process = subprocess.Popen(
        command(directory, "--workers", str(count), "--log-level", "error", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line.startswith(READY), line + process.stderr.read()
        yield Running(process, line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0, process.stderr.read()
    finally:
        process.terminate()  # not SIGKILL, of which its brokers are not told everywhere
        process.wait(WAIT_S)
        process.stdout.close()
        process.stderr.close()


def produce(bootstrap: str, values: list[str], login: Mapping[str, str] = NO_LOGIN) -> set[bytes]:
    acknowledged: set[bytes] = set()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **login})
    for number, value in enumerate(values):
        producer.produce(
            "t", value, partition=number % 4,
            on_delivery=lambda error, message: None if error else acknowledged.add(message.value()),
        )  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    return acknowledged


def pid_of(parent: int, directory: Path, number: int) -> int:
    """The process id of a worker."""
    (result,) = (
        pid
        for pid, (started_by, _, command) in processes().items()
        if started_by == parent and f"{directory}/worker-{number}.properties" in command
    )
    return result


@pytest.mark.slow
@pytest.mark.parametrize("keeper", ["quorum", "zookeeper"])
def test_workers_share_partitions_and_restart_when_killed(tmp_path: Path, keeper: str) -> None:
    if keeper == "zookeeper":
        (tmp_path / "metadata").mkdir()  # as of workers from before they were a quorum
    with workers(tmp_path, 2) as running:
        first = running.bootstrap.split(",")[0]
        admin = AdminClient({"bootstrap.servers": first})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(WAIT_S)
        topics = {}
        while "t" not in topics:  # each worker follows the controller
            topics = admin.list_topics(timeout=WAIT_S).topics
        assert sorted(partition.leader for partition in topics["t"].partitions.values()) == [1, 1, 2, 2]
        sent = produce(first, [f"before {n}" for n in range(COUNT)])
        for number in (2, 1):  # the first one is the controller, too
            os.kill(pid_of(running.process.pid, tmp_path, number), signal.SIGKILL)
            assert re.search(f"worker {number} has ended .killed by SIGKILL.", running.until("has ended"))
            running.until(f"worker {number} is ready again")
            sent |= produce(running.bootstrap, [f"after {number} {n}" for n in range(COUNT)])
        admin = AdminClient({"bootstrap.servers": running.bootstrap})  # one that has met no killed worker
        admin.create_topics([NewTopic("later", 2, 1)])["later"].result(WAIT_S)
        assert len(sent) == 3 * COUNT
    assert (tmp_path / "cluster.properties").exists() is (keeper == "quorum")
    with workers(tmp_path, 2) as running:
        assert read_values(running.bootstrap, 3 * COUNT) == sent


SECURED = """\
listener.security.protocol.map=USERS:SASL_PLAINTEXT
inter.broker.listener.name=USERS
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.users.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="brokers" password="b" user_brokers="b" user_ann="a" user_root="r";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:brokers;User:root
"""


@pytest.mark.slow
def test_secured_workers_let_only_known_users_in(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SECURED)
    options = ("--config", str(file), "--listen", "USERS://127.0.0.1:0")
    plain = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    root = {**plain, "sasl.username": "root", "sasl.password": "r"}
    ann = {**plain, "sasl.username": "ann", "sasl.password": "a"}
    with workers(tmp_path / "data", 2, *options) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **root})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(WAIT_S)
        assert len(produce(running.bootstrap, [f"{n}" for n in range(COUNT)], root)) == COUNT
        assert len(read_values(running.bootstrap, COUNT, **root)) == COUNT
        assert produce(running.bootstrap, ["refused"], ann) == set()
        text = (tmp_path / "data" / "cluster.properties").read_text()
        (controller,) = re.findall("voters=1@(.*)", text)
        stranger = subprocess.run(
            [sys.executable, "-m", "barnabas", "metadata", "show", "brokers", "--bootstrap-controller", controller],
            capture_output=True, text=True, timeout=WAIT_S, check=False,
            env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip
        assert stranger.returncode == 1, stranger.stdout
        assert "closed the connection" in stranger.stderr


def test_a_directory_stays_what_it_is(tmp_path: Path) -> None:
    """Workers do not begin beside the data of one broker, and one broker, or fewer workers, not beside that of workers."""

    def refused(directory: Path, *options: str) -> str:
        done = subprocess.run(
            command(directory, *options), capture_output=True, text=True, timeout=WAIT_S, check=False,
            env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip
        assert done.returncode == 2
        return done.stderr

    alone, several = tmp_path / "alone", tmp_path / "several"
    alone.mkdir()
    (alone / "meta.properties").write_text("version=1\n")
    assert "holds the data of one broker" in refused(alone, "--workers", "2")
    for number in (1, 2, 3):
        (several / f"worker-{number}").mkdir(parents=True)
    assert "holds the data of 3 workers: start with --workers 3, or with more" in refused(several)
    assert "holds the data of 3 workers" in refused(several, "--workers", "2")
    assert "a cluster of their own" in refused(
        tmp_path / "new", "--workers", "2", "--zookeeper", "localhost:1"
    )
    assert "a number from 1 to 64" in refused(tmp_path / "new", "--workers", "0")


@pytest.mark.slow
def test_workers_with_ephemeral_keep_everything_in_memory() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", "--listen=127.0.0.1:0", "--ephemeral", "--workers=3"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.count("127.0.0.1:") == 3
        directory = Path(line.partition(" data=")[2].strip())
        assert (directory / "worker-3").is_dir()
        assert (directory / "worker-1.properties").stat().st_mode & 0o77 == 0
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert not directory.exists()

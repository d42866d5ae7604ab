"""`barnabas serve` as a person or a script runs it: what it prints, which signals end it, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.environment.ephemeral import PREFIX
from barnabas.testing.running import import_path

pytestmark = pytest.mark.e2e

SECONDS_MAX = 30


class Started:
    """A process of `barnabas serve`, and its ready line."""

    def __init__(self, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "barnabas", "serve", "--listen", listen, *arguments]
        environment = {**os.environ, "PYTHONPATH": import_path()}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().rstrip("\n")

    @property
    def data(self) -> Path:
        """The directory of the data, by the ready line."""
        return Path(self.ready.partition(" data=")[2])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal it; (exit code, what it wrote to standard error)."""
        self.process.send_signal(number)
        _, output = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, output


@pytest.fixture
def started() -> Iterator[list[Started]]:
    """The processes of a test, killed at its end if they still run."""
    processes: list[Started] = []
    yield processes
    for broker in processes:
        if broker.process.poll() is None:
            broker.process.kill()
            broker.process.communicate()


IN_MEMORY_BELOW = """
import sys
from barnabas import cli
from barnabas.environment import ephemeral
ephemeral.MEMORY = sys.argv.pop(1)
sys.exit(cli.main())
"""
"""The command, but for the directory in memory that all processes of a machine share."""


def run(
    *arguments: str, stdout: str | None = None, memory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with its output into a file if one is named, and ephemeral data below `memory`."""
    start = ["-m", "barnabas"] if memory is None else ["-c", IN_MEMORY_BELOW, str(memory)]
    command = [sys.executable, *start, *arguments]
    with open(stdout or os.devnull, "w") as output:
        return subprocess.run(
            command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=SECONDS_MAX, check=False,
            env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip


def test_ready_line_names_address_data_and_kind_of_code(tmp_path, started):
    broker = Started("--data", str(tmp_path / "with space"))
    started.append(broker)
    assert broker.ready.startswith("barnabas is ready: bootstrap.servers=127.0.0.1:")
    assert broker.data == tmp_path / "with space"
    assert " code=compiled " in broker.ready or " code=interpreted " in broker.ready
    assert broker.end() == (0, "")


def test_wildcard_listener_without_login_is_warned_of(tmp_path, started):
    broker = Started("--data", str(tmp_path), listen="0.0.0.0:0")
    started.append(broker)
    assert "bootstrap.servers=localhost:" in broker.ready
    code, output = broker.end()
    assert code == 0
    assert "there is no authentication" in output
    assert "0.0.0.0:" in output


def test_wildcard_listener_without_authorizer_is_warned_of(tmp_path, started):
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    settings = [
        "--set", "sasl.enabled.mechanisms=PLAIN", "--set", f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas}",
    ]  # fmt: skip
    authorizer = ["--set", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"]
    for more, warned in ([], True), (authorizer, False):
        broker = Started("--data", str(tmp_path), *settings, *more, listen="SASL_PLAINTEXT://0.0.0.0:0")
        started.append(broker)
        code, output = broker.end()
        assert code == 0
        assert ("there is no authorizer: whoever logs in can" in output) is warned
        assert "authentication" not in output


def test_localhost_is_one_bootstrap_address(tmp_path, started):
    broker = Started("--data", str(tmp_path), listen="localhost:0")
    started.append(broker)
    assert "authentication" not in broker.end()[1]
    host = broker.ready.partition("bootstrap.servers=")[2].split()[0].rpartition(":")[0]
    assert host in ("localhost", "127.0.0.1", "[::1]")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ephemeral_data_is_gone_after_a_signal(number, started):
    broker = Started("--ephemeral")
    started.append(broker)
    assert broker.data.parent.name.startswith(PREFIX)
    assert broker.data.is_dir()
    code, output = broker.end(number)
    assert (code, output) == (0, "")
    assert not broker.data.parent.exists()


def test_ephemeral_data_of_a_killed_broker_goes_at_next_start(started):
    in_use = Started("--ephemeral")
    killed = Started("--ephemeral")
    started += [in_use, killed]
    killed.end(signal.SIGKILL)
    assert killed.data.is_dir()
    third = Started("--ephemeral")
    started.append(third)
    assert not killed.data.parent.exists()
    assert in_use.data.is_dir()
    assert in_use.end()[0] == third.end()[0] == 0


@pytest.mark.parametrize("arguments", [("--set", "num.partitions=none"), ("--no-such-option",)])
def test_a_mistyped_option_makes_no_ephemeral_data(tmp_path, arguments):
    assert run("serve", "--ephemeral", *arguments, memory=tmp_path).returncode == 2
    assert os.listdir(tmp_path) == []


def test_a_start_that_fails_leaves_no_ephemeral_data(tmp_path, started):
    broker = Started("--ephemeral")
    started.append(broker)
    port = broker.ready.partition("bootstrap.servers=")[2].split()[0]
    done = run("serve", "--ephemeral", "--listen", port, memory=tmp_path)
    assert done.returncode == 1
    assert "is in use" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("serve", "--help"), ("log", "stats")])
def test_output_that_cannot_be_written_is_one_line(tmp_path, arguments):
    if arguments[0] == "log":
        (tmp_path / "topic-0").mkdir()
        arguments = (*arguments, str(tmp_path))
    done = run(*arguments, stdout="/dev/full")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.rstrip().endswith("No space left on device"), done.stderr


def test_kafkas_file_for_a_single_node_serves_with_one_warning(tmp_path, started):
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        "advertised.listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093\n"
        "inter.broker.listener.name=PLAINTEXT\noffsets.topic.replication.factor=1\n"
        f"log.dirs={tmp_path}/logs\n"
    )
    command = [sys.executable, "-m", "barnabas", "serve", "--config", str(file)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
    )  # fmt: skip
    broker = Started.__new__(Started)
    broker.process = process
    started.append(broker)
    assert process.stdout is not None
    broker.ready = process.stdout.readline().rstrip("\n")
    bootstrap = broker.ready.partition("bootstrap.servers=")[2].split()[0]
    cluster = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10)
    assert [(broker.host, broker.port) for broker in cluster.brokers.values()] == [
        ("localhost", int(bootstrap.rpartition(":")[2]))  # port 0 is the port that is bound
    ]
    code, output = broker.end()
    assert code == 0
    assert output.splitlines() == [
        f"barnabas: these settings have no effect here: process.roles ({file}:1), "
        f"controller.quorum.voters ({file}:3), inter.broker.listener.name ({file}:7)"
    ]


def test_a_broker_that_waits_for_zookeeper_stops_at_once(tmp_path, started):
    with socket.socket() as silent:  # accepts connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [
            sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path),
            "--zookeeper", address, "--broker-id", "1",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": import_path()}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            silent.settimeout(SECONDS_MAX)
            silent.accept()[0].close()  # it has come as far as asking
            process.send_signal(signal.SIGTERM)
            _, output = process.communicate(timeout=10)  # of the 18 s that it would wait
    assert process.returncode == 0
    assert "stopping on SIGTERM, before the broker was ready" in output

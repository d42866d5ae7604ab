"""Brokers under test: each is started for its turn, and stopped after it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from barnabas import __version__
from barnabas.testing.running import import_path
from compat.kafka import RealKafka, free_port
from compat.kafka.releases import release
from compat.kit.ending import end_servers_at_sigterm
from compat.kit.sides import PASSWORD, Side, barnabas
from compat.peers.programs import (
    TANSU_VERSION,
    UnavailableError,
    kfake_program,
    kfake_version,
    tansu_command,
    tansu_program,
)
from compat.security.sides import ADMIN, barnabas_alone, kafka_alone

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools" / "conform"
START_S = 60
CLUSTER_STOP_S = 60


class Broker(NamedTuple):
    """A broker that runs."""

    address: str
    what: str
    """The kind of the broker, with its version."""
    properties: tuple[str, ...] = ()
    """Settings of clients, `KEY=VALUE`, with which it is asked."""


@contextmanager
def kafka(version: str, mode: str) -> Iterator[Broker]:
    """Apache Kafka."""
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        real = RealKafka(version, data=directory, mode=mode)
        with real:
            where = "on ZooKeeper" if mode == "zookeeper" else "on KRaft"
            yield Broker(real.bootstrap, f"Apache Kafka {real.release.version} {where}")


@contextmanager
def ours() -> Iterator[Broker]:
    """Barnabas, with its defaults."""
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        port = free_port()
        properties = Path(directory) / "server.properties"
        properties.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={directory}/data\n")
        with barnabas(properties):
            yield Broker(f"127.0.0.1:{port}", f"Barnabas {__version__}")


READY = "barnabas cluster is ready: bootstrap.servers="


@contextmanager
def our_cluster(brokers: int, *options: str) -> Iterator[Broker]:
    """`barnabas cluster`: combined brokers and controllers, or brokers on its own ZooKeeper."""
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        command = [sys.executable, "-m", "barnabas", "cluster", "--brokers", str(brokers), "--port", "0"]
        environment = {**os.environ, "PYTHONPATH": import_path()}
        with subprocess.Popen(
            [*command, "--dir", directory, *options], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            outputs = []
            try:
                for line in process.stdout:
                    if line.startswith(READY):
                        address = line.removeprefix(READY).split()[0].split(",")[0]
                        break
                    outputs.append(line)
                else:
                    raise UnavailableError(f"the cluster does not start:\n{''.join(outputs)}")
                # Later output would fill the pipe.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                where = "on ZooKeeper" if "--zookeeper" in options else "in a quorum"
                yield Broker(address, f"Barnabas {__version__}, {brokers} brokers {where}")
            finally:
                process.terminate()
                process.wait(CLUSTER_STOP_S)


MECHANISMS = {
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.users.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
"""With SCRAM, walks over ACLs make users of their own."""


@contextmanager
def secured(side: AbstractContextManager[Side], what: str) -> Iterator[Broker]:
    """A broker with an authorizer, tested by a super user after a login."""
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": PASSWORD,
    }
    with side as started:
        properties = tuple(f"{key}={value}" for key, value in login.items())
        yield Broker(f"127.0.0.1:{started.sasl_port}", what, properties)


@contextmanager
def mock() -> Iterator[Broker]:
    """librdkafka's mock cluster."""
    with _speaking([sys.executable, "-m", "compat.conform.mock"]) as line:
        address, _, version = line.partition(" ")
        yield Broker(address, f"librdkafka {version} mock cluster")


@contextmanager
def kfake() -> Iterator[Broker]:
    """franz-go's fake cluster."""
    with _speaking([str(kfake_program())]) as line:
        yield Broker(line, f"franz-go kfake of {kfake_version()}")


@contextmanager
def tansu() -> Iterator[Broker]:
    """Tansu, with records in memory."""
    port = free_port()
    command = tansu_command(tansu_program(), port)
    end_servers_at_sigterm()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_until_listening("Tansu", port, process)
            yield Broker(f"127.0.0.1:{port}", f"Tansu {TANSU_VERSION} in memory")
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_listening(name: str, port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that serves a port of 127.0.0.1. Raises UnavailableError where it ends, or takes too long."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise UnavailableError(f"{name} does not start; its exit code is {process.poll()}")


@contextmanager
def _speaking(command: list[str]) -> Iterator[str]:
    """A process that prints one line and ends with its standard input."""
    environment = {**os.environ, "PYTHONPATH": f"{import_path()}{os.pathsep}{ROOT}"}
    end_servers_at_sigterm()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            if not line:
                raise UnavailableError(f"{command[-1]} says nothing")
            yield line
        finally:
            process.stdin.close()
            process.wait(30)


SKIPPED: dict[str, tuple[str, ...]] = {
    "mock": (
        "*/*is null",
        "*/*longer than the frame",
        "*/*missing",
        "*/outside/*",
        "connections/*",
        "Produce/v*/no batch",
        "JoinGroup/*",
    ),
    "kfake": ("connections/an unknown API", "connections/one that ends beside another"),
}
"""Cases that are not run, as they end the process: frames that cannot be parsed and members that name other protocols
(assertions of the mock cluster), an unknown API key (a nil pointer in kfake)."""

SECURED = {
    "kafka-4-secured": f"Apache Kafka {release('4.x').version} with SASL and an authorizer",
    "barnabas-secured": f"Barnabas {__version__} with SASL and an authorizer",
}
BROKERS: dict[str, Callable[[], object]] = {
    "kafka-4": lambda: kafka("4.x", "kraft"),
    "kafka-3.9": lambda: kafka("3.9", "zookeeper"),
    "barnabas": ours,
    "barnabas-cluster": lambda: our_cluster(3),
    "barnabas-zookeeper": lambda: our_cluster(3, "--zookeeper"),
    "kafka-4-secured": lambda: secured(kafka_alone("4.x", more=MECHANISMS), SECURED["kafka-4-secured"]),
    "barnabas-secured": lambda: secured(barnabas_alone(more=MECHANISMS), SECURED["barnabas-secured"]),
    "mock": mock,
    "kfake": kfake,
    "tansu": tansu,
}

"""Brokers that are judged: each is started for its turn, and stopped after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas import __version__
from barnabas.testing.running import import_path
from compat.kafka import RealKafka, free_port
from compat.kit.sides import barnabas

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ROOT / ".tools" / "conform"
BUILD_TIMEOUT_S = 300

Broker = tuple[str, str]
"""Where it listens, and what it is, with its version."""


class UnavailableError(Exception):
    """A broker cannot be started here; the message says why."""


@contextmanager
def kafka(version: str, mode: str) -> Iterator[Broker]:
    """Apache Kafka."""
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        real = RealKafka(version, data=directory, mode=mode)
        with real:
            where = "on ZooKeeper" if mode == "zookeeper" else "on KRaft"
            yield real.bootstrap, f"Apache Kafka {real.release.version} {where}"


@contextmanager
def ours() -> Iterator[Broker]:
    """Barnabas, with its defaults."""
    with tempfile.TemporaryDirectory(prefix="conform-") as directory:
        port = free_port()
        properties = Path(directory) / "server.properties"
        properties.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={directory}/data\n")
        with barnabas(properties):
            yield f"127.0.0.1:{port}", f"Barnabas {__version__}"


@contextmanager
def mock() -> Iterator[Broker]:
    """librdkafka's mock cluster."""
    with _speaking([sys.executable, "-m", "compat.conform.mock"]) as line:
        address, _, version = line.partition(" ")
        yield address, f"librdkafka {version} mock cluster"


@contextmanager
def kfake() -> Iterator[Broker]:
    """franz-go's fake cluster."""
    program = TOOLS / "kfake"
    TOOLS.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            ["go", "build", "-o", str(program), "."],
            cwd=HERE / "kfake",
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT_S,
        )
    except OSError as error:
        raise UnavailableError(f"Go: {error}") from error
    if done.returncode:
        raise UnavailableError(f"kfake cannot be built:\n{done.stderr[-1000:]}")
    dated = re.search(r"kfake v\S+-(\d{8})\d{6}-", (HERE / "kfake" / "go.mod").read_text())
    with _speaking([str(program)]) as line:
        yield line, f"franz-go kfake of {dated[1] if dated else 'an unknown day'}"


@contextmanager
def _speaking(command: list[str]) -> Iterator[str]:
    """A process that prints one line and ends with its standard input."""
    environment = {**os.environ, "PYTHONPATH": f"{import_path()}{os.pathsep}{ROOT}"}
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
"""Cases that are not played, as they end the process: frames that cannot be parsed and members that name other protocols
(assertions of the mock cluster), an unknown API key (a nil pointer in kfake)."""

BROKERS: dict[str, Callable[[], object]] = {
    "kafka-4": lambda: kafka("4.x", "kraft"),
    "kafka-3.9": lambda: kafka("3.9", "zookeeper"),
    "barnabas": ours,
    "mock": mock,
    "kfake": kfake,
}

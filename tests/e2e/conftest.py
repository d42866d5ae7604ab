"""A real broker process, started as a user would start it, for the tests that need stock clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from tests.support.zookeeper_process import own_zookeeper

ROOT = Path(__file__).resolve().parents[2]
READY = "bootstrap.servers="
STOP_SECONDS_MAX = 20
PROGRAM = (sys.executable, "-m", "barnabas")


@dataclass
class BrokerProcess:
    """A started broker: where it listens, where its data is, and how to end it."""

    process: subprocess.Popen[str]
    bootstrap: str
    data: Path
    metrics_url: str = ""
    control_url: str = ""
    registry_url: str = ""

    def said(self) -> str:
        """All that it has written to its log."""
        return (self.data.parent / f"{self.data.name}.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the process, wait for its end, return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS_MAX)
        if self.process.stdout:
            self.process.stdout.close()
        return code


StartBroker = Callable[..., BrokerProcess]


def _start(
    data: Path,
    *settings: str,
    listen: str = "127.0.0.1:0",
    program: Sequence[str] = PROGRAM,
    options: Sequence[str] = (),
) -> BrokerProcess:
    command = [*program, "serve", "--listen", listen, *options]
    if not any(setting.startswith("log.dirs=") for setting in settings):
        command += ["--data", str(data)]
    for setting in settings:
        command += ["--set", setting]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    with (data.parent / f"{data.name}.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert READY in line, f"the broker did not start; see {log.name}:\n{Path(log.name).read_text()}"
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return BrokerProcess(
        process, words["bootstrap.servers"], data, words.get("metrics", ""), words.get("control", ""),
        words.get("registry", ""),
    )  # fmt: skip


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers that end with the test; `data=` reuses a directory, `program=` is another one to run them."""
    started: list[BrokerProcess] = []

    def start(
        *settings: str,
        data: Path | None = None,
        listen: str = "127.0.0.1:0",
        program: Sequence[str] = PROGRAM,
        options: Sequence[str] = (),
    ) -> BrokerProcess:
        broker = _start(data or tmp_path / "data", *settings, listen=listen, program=program, options=options)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for a module's tests, which keep apart by topic and group names."""
    process = _start(tmp_path_factory.mktemp("broker") / "data", "group.initial.rebalance.delay.ms=0")
    yield process
    assert process.stop() == 0


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    """Our own ZooKeeper server in a process; its address."""
    with own_zookeeper(tmp_path / "zk") as address:
        yield address

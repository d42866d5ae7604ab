"""Common parts of all peers."""

from __future__ import annotations

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.procfs import cpu_s
from bench.secured import Secured
from bench.tools import BenchError
from bench.wire import Connection

STOP_TIMEOUT_S = 60
READY_TIMEOUT_S = 90
READY_POLL_S = 0.001


@dataclass
class Running:
    """A broker process: where it is reached, and the time and CPU time from exec to its first answer."""

    peer: Peer
    process: subprocess.Popen[bytes]
    bootstrap: str
    data: Path
    ready_s: float = 0.0
    ready_cpu_s: float = 0.0
    secured: str = ""
    """Address for clients with TLS or a login; empty without one."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_ready(self, *, since: float) -> None:
        """Note the first response of a process started at `since` (monotonic)."""
        self.ready_s = time.monotonic() - since
        self.ready_cpu_s = cpu_s(self.pid)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        with Connection(self.bootstrap) as connection:
            connection.create_topic(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        with Connection(self.bootstrap) as connection:
            connection.delete_topic(topic)

    def stop(self) -> None:
        """End the process cleanly; a peer that does not end in time has failed."""
        if self.process.stdin:
            self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise BenchError(f"{self.peer.label} did not stop in {STOP_TIMEOUT_S} s") from None
        finally:
            if self.process.stdout:
                self.process.stdout.close()


class Peer(ABC):
    """A kind of broker. `label` names it in tables; `keeps_data` is false where records are in memory, if anywhere;
    `has_targets` is true for the broker that this project can change."""

    keeps_data = True
    serves_consumers = True
    """True if records can be consumed, and offsets committed."""
    serves_groups_of_one = True
    """True if a single member can form a classic group."""
    may_fail = False
    """True if a scenario that the broker fails continues without it, with the reason in the report."""
    has_targets = False
    secured: Secured | None = None
    """The second listener of started brokers, if any."""

    def __init__(self, label: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are the broker's own that are not its defaults, by name."""
        self.label = label
        self.settings = dict(settings or {})

    @abstractmethod
    def describe(self) -> str:
        """Version and settings, for the report."""

    def format(self, data: Path) -> None:
        """Prepare `data` for a first start, outside of the measurement."""
        data.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def start(self, data: Path) -> Running:
        """Start on a formatted directory; returns after the first answer."""


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports() -> int:
    """Return a TCP port that was free a moment ago, as was the next one."""
    while True:
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def spawn(peer: Peer, command: list[str], data: Path, port: int, environment: dict[str, str]) -> Running:
    """Start a broker that listens on `port`, its output in a file beside its data; wait for its answer."""
    log_path = data.with_name(f"{data.name}.out")
    with log_path.open("ab") as log:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    running = Running(peer, process, f"127.0.0.1:{port}", data)
    try:
        wait_until_ready(running)
    except BenchError as error:
        process.kill()
        process.wait()
        raise BenchError(f"{error}\n{log_path.read_text(errors='replace')[-3000:]}") from None
    running.is_ready(since=start)
    return running


def wait_until_ready(running: Running) -> None:
    """Poll until ApiVersions is answered. Raises BenchError when the process ends or time is up."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with Connection(running.bootstrap, 5) as connection:
                connection.hello()
                return
        except OSError:
            time.sleep(READY_POLL_S)
        if running.process.poll() is not None:
            raise BenchError(f"{running.peer.label} ended with code {running.process.returncode}")
    raise BenchError(f"{running.peer.label} was not ready in {READY_TIMEOUT_S} s")

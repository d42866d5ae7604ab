"""Barnabas and Apache Kafka side by side, with the same server.properties except for ports and directories.

The rule: all files of both are in one temporary directory; only processes started here are signalled.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.testing.running import import_path
from compat.kafka import RealKafka, free_port, release
from compat.kit.ending import end_servers_at_sigterm
from compat.kit.wire import Connection, WireError

ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 30
PASSWORD = "secret"
NEWEST = "4.4"
"""The release that Barnabas is as by default."""


class StartError(Exception):
    """Barnabas does not start; the message has its last words."""


@dataclass(frozen=True)
class Side:
    """One broker: its name, and how to reach it; users log in at `sasl_port`, all with the same password."""

    name: str
    port: int
    sasl_port: int = 0

    @property
    def ports(self) -> dict[int, str]:
        """The listening ports of this side, with their purposes."""
        return (
            {self.port: "its port", self.sasl_port: "its port of logins"}
            if self.sasl_port
            else {self.port: "its port"}
        )

    def connect(self, client_id: str = "kit", user: str = "") -> Connection:
        """A new connection, after a login with PLAIN if `user` is given. Raises WireError."""
        if not user:
            return Connection("127.0.0.1", self.port, client_id)
        connection = Connection("127.0.0.1", self.sasl_port, client_id)
        connection.ask("SaslHandshake", 1, {"Mechanism": "PLAIN"})
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = connection.ask("SaslAuthenticate", 2, {"AuthBytes": token})
        if answer["ErrorCode"]:
            raise WireError(f"{user} cannot log in: {answer}")
        return connection


@contextmanager
def both(
    settings: Mapping[str, str] | None = None, version: str = "4.x", *, classpath: str = ""
) -> Iterator[tuple[Side, Side]]:
    """(Apache Kafka, Barnabas), running; `classpath` has plugins of Kafka's. Raises KafkaError, StartError.

    Barnabas runs as the same release: another release would differ by Kafka's new features.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        kafka = RealKafka(version, data=directory / "kafka", settings=settings, classpath=classpath)
        stack.enter_context(kafka)
        properties = (directory / "kafka" / "server.properties").read_text()
        port = free_port()
        ours = directory / "server.properties"
        ours.write_text(
            re.sub(r"(?m)^zookeeper\.connect=.*\n", "", properties)
            .replace(kafka.bootstrap, f"127.0.0.1:{port}")
            .replace(str(kafka.log_dir), str(directory / "barnabas"))
        )
        name = release(version).name
        stack.enter_context(barnabas(ours, options=() if name == NEWEST else ("--as-version", name)))
        yield Side("Kafka", kafka.port), Side("Barnabas", port)


@contextmanager
def barnabas(
    properties: Path,
    module: Sequence[str] = ("barnabas", "serve", "--config"),
    options: Sequence[str] = (),
) -> Iterator[None]:
    """Barnabas with these settings, until the end; `module` starts it, with `options`. Raises StartError."""
    log = properties.with_suffix(".out")
    command = [sys.executable, "-m", *module, str(properties), *options]
    environment = {**os.environ, "PYTHONPATH": f"{import_path()}{os.pathsep}{ROOT}"}
    end_servers_at_sigterm()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, env=environment)
    assert process.stdout is not None
    try:
        if b"is ready" not in process.stdout.readline():
            raise StartError(f"Barnabas does not start:\n{log.read_text()[-2000:]}")
        yield
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        process.stdout.close()
        complaints = [
            line for line in log.read_text().splitlines() if "Traceback" in line or " ERROR " in line
        ]
        if complaints:
            print(f"Barnabas complained:\n{log.read_text()[-4000:]}")
        for line in log.read_text().splitlines():
            if "the event loop was held up" in line:
                print(f"Barnabas: {line}")

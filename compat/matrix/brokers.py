"""The brokers under test: Barnabas with the settings of a new user, and Apache Kafka for comparison.

The rule: a broker is a process with a directory of its own, on loopback, at an address that stays the same when it is
restarted; only a process started here is ever signalled.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from barnabas.testing.running import import_path
from compat.kafka import RealKafka
from compat.kafka.process import LIGHT_JVM
from compat.kit.ending import end_servers_at_sigterm

ROOT = Path(__file__).resolve().parents[2]
READY = "bootstrap.servers="
METRICS = " metrics=http://"
READY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
SIGNALS = {"term": signal.SIGTERM, "kill": signal.SIGKILL}
# The only settings: topics of clients that cannot create topics get the same partitions as those of others.
SETTINGS = {"num.partitions": "3"}
NOTHING_ELSE: Mapping[str, str] = {}


class BrokerError(Exception):
    """The broker does not start, has ended by itself, or does not end; the message has the reason."""


class Broker(Protocol):
    """A broker under test."""

    bootstrap: str

    def start(self) -> None:
        """Start and wait until it serves. Raises BrokerError or KafkaError."""

    def stop(self, how: str = "term") -> None:
        """End it by SIGTERM (`term`) or SIGKILL (`kill`). Raises BrokerError if it had ended, or ends uncleanly."""

    def complaints(self) -> list[str]:
        """Return the lines of its log about internal errors."""
        return []

    def restart(self, how: str) -> None:
        """Stop in one of the two ways, and start. Raises BrokerError or KafkaError."""
        self.stop(how)
        self.start()

    def environment(self) -> Mapping[str, str]:
        """Environment of clients besides the address."""
        return NOTHING_ELSE


class Barnabas(Broker):
    """`barnabas serve` from this checkout."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] = NOTHING_ELSE,
        *,
        before: Sequence[str] = (),
        in_child: Callable[[], None] | None = None,
    ) -> None:
        """`before` comes before the command, `in_child` is called before it.

        With `log.dirs` set, the data are there; with `listeners` set, it listens there.
        """
        self.directory = directory
        self.settings = {**SETTINGS, **settings}
        self._before = before
        self._in_child = in_child
        self.log = directory / "broker.log"
        self.bootstrap = "127.0.0.1:0"
        self.metrics: tuple[str, int] | None = None
        self.words: dict[str, str] = {}
        """The ready line's, by name."""
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "barnabas", "serve"]
        if "listeners" not in self.settings:
            command += ["--listen", self.bootstrap]
        if "log.dirs" not in self.settings:
            command += ["--data", str(self.directory / "data")]
        return command

    def start(self) -> None:
        command = [*self._before, *self._command()]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        environment = {**os.environ, "PYTHONPATH": import_path()}
        end_servers_at_sigterm()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                bufsize=0,  # a second line that has come with the first one would not be waited for
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                preexec_fn=self._in_child,
            )
        line = self._ready_line(self._process)
        if READY not in line:
            self._process.kill()
            self._process.wait()
            raise BrokerError(f"it does not start: {line}{self.log.read_text(errors='replace')[-1000:]}")
        self.words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        self.bootstrap = self.words["bootstrap.servers"]
        if METRICS in line:
            host, _, port = line.split(METRICS)[1].split("/")[0].partition(":")
            self.metrics = host, int(port)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def end(self) -> None:
        """Kill it, unless it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def _ready_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(READY_TIMEOUT_S):
                return f"no word in {READY_TIMEOUT_S} s\n"
        return process.stdout.readline().decode(errors="replace")

    def stop(self, how: str = "term") -> None:
        process, self._process = self._process, None
        if process is None:
            raise BrokerError(f"it did not come back after a restart; see {self.log}")
        ended = process.poll()
        if ended is not None:
            raise BrokerError(f"it has ended by itself with {ended}; see {self.log}")
        process.send_signal(SIGNALS[how])
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerError(f"it did not end in {STOP_TIMEOUT_S} s after SIGTERM") from None
        finally:
            if process.stdout:
                process.stdout.close()
        if code != (0 if how == "term" else -signal.SIGKILL):
            raise BrokerError(f"it ended with {code} after SIG{how.upper()}; see {self.log}")

    def _logs(self) -> list[Path]:
        return [self.log]

    def complaints(self) -> list[str]:
        lines = [line for log in self._logs() for line in log.read_text(errors="replace").splitlines()]
        return [line for line in lines if " ERROR " in line or " CRITICAL " in line or "Traceback" in line]


class BarnabasCluster(Barnabas):
    """`barnabas cluster` from this checkout, which turns on all features; stopped and killed as one."""

    def __init__(self, directory: Path, brokers: int, settings: Mapping[str, str] = NOTHING_ELSE) -> None:
        super().__init__(directory, settings)
        self._brokers = brokers
        self.pids: list[int] = []
        """The process ids of the brokers."""

    def _command(self) -> list[str]:
        place = str(self.directory / "cluster")
        return [
            sys.executable,
            "-m",
            "barnabas",
            "cluster",
            "--brokers",
            str(self._brokers),
            "--dir",
            place,
            "--port",
            "0",
        ]

    def _logs(self) -> list[Path]:
        return [self.log, *(self.directory / "cluster").glob("broker-*.log")]

    def _ready_line(self, process: subprocess.Popen[bytes]) -> str:
        self.pids = []
        line = super()._ready_line(process)
        while line and READY not in line:  # its parts come first, each with a line of its own
            self.pids += [int(word.removeprefix("pid=")) for word in line.split() if word.startswith("pid=")]
            line = super()._ready_line(process)
        return line

    def stop(self, how: str = "term") -> None:
        if (
            how == "kill" and not self.has_ended
        ):  # each of its own: without their controllers they would take long
            for pid in self.pids:
                os.kill(pid, signal.SIGKILL)
        super().stop(how)

    def pause(self, number: int, seconds: float) -> None:
        """Pause one of the brokers, as on a machine that swaps: it keeps its session, and answers late."""
        os.kill(self.pids[number], signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(self.pids[number], signal.SIGCONT)


class ApacheKafka(Broker):
    """The newest Kafka, or the version asked for, in one process."""

    def __init__(
        self,
        directory: Path,
        version: str,
        settings: Mapping[str, str] = NOTHING_ELSE,
        *,
        port: int = 0,
        jvm_options: Sequence[str] = (),
    ) -> None:
        """`port` is that of a listener without security, if `settings` name the listeners."""
        self._kafka = RealKafka(
            version,
            port,
            data=directory,
            settings={**SETTINGS, **settings},
            jvm_options=(*LIGHT_JVM, "-XX:-UsePerfData", *jvm_options),
        )
        self.bootstrap = ""

    def start(self) -> None:
        self._kafka.start()
        self.bootstrap = self._kafka.bootstrap

    def stop(self, how: str = "term") -> None:
        pid = self._kafka.pid
        if pid is None:
            raise BrokerError(f"it has ended by itself; see {self._kafka.directory}")
        if how == "kill":
            os.kill(pid, signal.SIGKILL)
        self._kafka.stop()

    def complaints(self) -> list[str]:
        return []  # Kafka's own log is not judged.


class Given(Broker):
    """A broker of another process: it is neither stopped nor judged by its log."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        host, _, port = self.bootstrap.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), READY_TIMEOUT_S).close()
        except OSError as error:
            raise BrokerError(f"nothing answers at {self.bootstrap}: {error}") from error

    def stop(self, how: str = "term") -> None:
        pass

    def complaints(self) -> list[str]:
        return []


class RestartService:
    """Lets clients restart the broker: as a context manager it gives the command for COMPAT_RESTART."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._path = directory / "restart"
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> str:
        self._socket.bind(str(self._path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()
        script = Path(__file__).with_name("restart.py")
        return shlex.join([sys.executable, str(script), str(self._path)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which close alone does not
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                how = connection.makefile().readline().strip()
                connection.sendall(self._answer(how).encode() + b"\n")

    def _answer(self, how: str) -> str:
        if how not in SIGNALS:
            return f"no such way to restart: {how!r}; there are {', '.join(SIGNALS)}"
        try:
            self._broker.restart(how)
        except Exception as error:  # whoever waits must hear of it, whatever it is
            return " ".join(f"{type(error).__name__}: {error}".split())
        return "ok"

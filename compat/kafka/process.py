"""Long-running Java processes: start in the background, find again by pid file, stop.

The rule: only a process with a pid from our pid file, that still runs that program, is ever signalled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from compat.kafka.releases import KafkaError, Release, fetch
from compat.kit.ending import end_servers_at_sigterm

STOP_TIMEOUT_S = 30
STOP_POLL_S = 0.05
# A broker for tests: quick to start, small, and of no use for measuring speed.
LIGHT_JVM = ("-Xms128m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def java_command(
    release: Release, main: str, *arguments: str, options: tuple[str, ...] = LIGHT_JVM, classpath: str = ""
) -> list[str]:
    """The command line that runs a class of a release, with classes of one's own in `classpath`."""
    jars = fetch(release)
    return [
        "java",
        *options,
        *release.logging_options(),
        "-cp",
        f"{jars}/*:{classpath}" if classpath else f"{jars}/*",
        main,
        *arguments,
    ]


class JavaProcess:
    """One JVM with its output and its pid in files, so that another process can stop it."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.output = directory / f"{name}.out"
        self.pid_file = directory / f"{name}.pid"
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        end_servers_at_sigterm()
        with self.output.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.pid_file.write_text(f"{self._popen.pid}\n")

    def pid(self) -> int | None:
        """The pid of the running process, or None."""
        if self._popen is not None:
            return self._popen.pid if self._popen.poll() is None else None
        try:
            pid = int(self.pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if command.split(b"\0")[0].endswith(b"java") else None

    def check_running(self) -> None:
        """Raise KafkaError, with the end of its output, when the process has ended."""
        if self.pid() is None:
            tail = self.output.read_text(errors="replace")[-2000:]
            raise KafkaError(f"{self.name} has ended by itself; the end of {self.output}:\n{tail}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help in time."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while self.pid() is not None and time.monotonic() < deadline:
                time.sleep(STOP_POLL_S)
            if self.pid() is not None:
                os.kill(pid, signal.SIGKILL)
                if self._popen is not None:
                    self._popen.wait()
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """SIGKILL at once."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            while self.pid() is not None:
                time.sleep(STOP_POLL_S)
        self.pid_file.unlink(missing_ok=True)

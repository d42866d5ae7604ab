"""One instance of a Kafka Streams application: a JVM that prints events, and answers questions.

The rule: only processes started here are ever signalled; the directory of the state outlives the process.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compat.kafka.process import LIGHT_JVM

ANSWER_TIMEOUT_S = 30
END_TIMEOUT_S = 60


class InstanceError(Exception):
    """An instance does not behave as expected; the message has the reason."""


@dataclass
class Instance:
    """An instance by its number; it can be started again in the same directory."""

    class_path: str
    program: str
    bootstrap: str
    application: str
    number: int
    directory: Path
    threads: int = 1
    settings: Sequence[str] = ()
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        """The file of its log."""
        return self.directory / f"{self.application}-{self.number}.log"

    def start(self) -> None:
        """Start it."""
        state = self.directory / f"{self.application}-{self.number}"
        command = [
            "java",
            *LIGHT_JVM,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            self.class_path,
        ]
        command += ["Programs", self.program, self.bootstrap, self.application, str(state)]
        command += [str(self.number), str(self.threads), *self.settings]
        self.lines = []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines += [line.rstrip("\n")]

    def ask(self, question: str) -> list[str]:
        """Ask the instance; returns the lines of its answer. Raises InstanceError."""
        assert self.process is not None, "it runs"
        assert self.process.stdin is not None
        begin = len(self.lines)
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            lines = self.lines[begin:]
            sorry = [line for line in lines if line.startswith("sorry ")]
            if sorry or "done" in lines:
                return sorry or [line for line in lines if line != "done" and not line.startswith("state ")]
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise InstanceError(f"instance {self.number} does not answer {question!r}; see {self.log}")
            time.sleep(0.05)

    def wait_said(self, prefix: str) -> str:
        """Wait for a new line of output with this prefix, and return it. Raises InstanceError."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while time.monotonic() < deadline:
            for line in list(self.lines):
                if line.startswith(prefix):
                    return line
            time.sleep(0.1)
        raise InstanceError(f"instance {self.number} never says {prefix!r} but {self.lines}; see {self.log}")

    def close(self) -> None:
        """Shut it down cleanly. Raises InstanceError."""
        process, self.process = self.process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise InstanceError(f"instance {self.number} does not end; see {self.log}") from None

    def kill(self) -> None:
        """Kill it by SIGKILL."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

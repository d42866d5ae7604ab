"""Processes with their output, for which tests can wait."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from barnabas.testing.running import import_path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": import_path(ROOT)}
WAIT_S = 60


class Process:
    """A running command, and its output."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        log.touch()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT
        )
        self._copying = threading.Thread(target=self._copy, daemon=True)
        self._copying.start()

    def _copy(self) -> None:
        """Copy the output to the file, so that its size does not count for the limits of the process."""
        with self.log.open("ab", buffering=0) as log:
            assert self.process.stdout is not None
            while part := os.read(self.process.stdout.fileno(), 1 << 16):
                log.write(part)

    def said(self) -> str:
        if self.process.poll() is not None:
            self._copying.join(WAIT_S)
        return self.log.read_text(errors="replace")

    def until(self, pattern: str) -> str:
        """Wait until the output matches a pattern; returns its group."""
        ends = time.monotonic() + WAIT_S
        while time.monotonic() < ends:
            result = re.search(pattern, self.said())
            if result is not None:
                return result[1]
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)
        raise AssertionError(self.said())

    def code(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """End the process, and close its files."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.terminate()
        self.code()
        self.said()
        self.process.stdout.close()

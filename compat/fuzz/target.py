"""A target receives hostile input, and reports problems with its handling.

The rule: all random values come from the passed generator, so that a seed repeats a round; findings are sentences, each
with the bytes that show it.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Finding:
    """A problem: its description, and the input that caused it."""

    text: str
    data: bytes = b""


@dataclass
class Round:
    """The result of one round of a target."""

    inputs: int = 0
    findings: list[Finding] = field(default_factory=list)

    def found(self, text: str, data: bytes = b"") -> None:
        """Record a finding; only the first ones are kept."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(text, data))


FINDINGS_MAX = 10
RunRound = Callable[[random.Random, int], Round]
"""Runs a round of about so many inputs."""


@dataclass(frozen=True)
class Target:
    """A row of the table. `open` creates the runner of rounds; its `close` ends it, and returns the last findings."""

    name: str
    takes: str
    open: Callable[[], tuple[RunRound, Callable[[], list[Finding]]]]
    is_live: bool = False
    """True if it needs a broker process."""


def nothing() -> list[Finding]:
    """Close nothing."""
    return []


def rss_bytes(pid: str = "self") -> int:
    """Resident memory of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:  # there is no /proc
        number = str(os.getpid()) if pid == "self" else pid
        done = subprocess.run(["ps", "-o", "rss=", "-p", number], capture_output=True, text=True, check=True)
        return int(done.stdout) * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


class Growth:
    """A check that a process does not keep more memory the longer it runs.

    Judged by what it holds after each round: the least of the last rounds against the most of the first ones, which warm
    caches up.
    """

    WARM_ROUNDS = 3
    BYTES_MAX = 24 << 20

    def __init__(self, measure: Callable[[], int] = rss_bytes) -> None:
        self._measure = measure
        self._seen: list[int] = []

    def look(self) -> None:
        """Measure, after a round."""
        gc.collect()
        self._seen.append(self._measure())

    def findings(self) -> list[Finding]:
        """Return a finding if memory grew; none if there were too few rounds."""
        if len(self._seen) < 2 * self.WARM_ROUNDS:
            return []
        before, after = max(self._seen[: self.WARM_ROUNDS]), min(self._seen[-self.WARM_ROUNDS :])
        if after - before <= self.BYTES_MAX:
            return []
        return [Finding(f"memory grew from {before >> 20} to {after >> 20} MB")]

    def __str__(self) -> str:
        return f"{self._seen[0] >> 20}-{self._seen[-1] >> 20} MB" if self._seen else ""

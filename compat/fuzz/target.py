"""A target takes hostile input, and says what was wrong with the way it was taken.

The rule: everything random is drawn from the generator that is given, so that a seed repeats a round; what a round finds
is a list of sentences, each with the bytes that show it.
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
    """Something that should not be: what it is, and the input that led to it."""

    text: str
    data: bytes = b""


@dataclass
class Round:
    """The result of one round of a target."""

    inputs: int = 0
    findings: list[Finding] = field(default_factory=list)

    def found(self, text: str, data: bytes = b"") -> None:
        """Note a finding; of very many the first are enough."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(text, data))


FINDINGS_MAX = 10
RunRound = Callable[[random.Random, int], Round]
"""Runs a round of about so many inputs."""


@dataclass(frozen=True)
class Target:
    """A row of the table. `open` makes what runs rounds; `close` ends it, and returns what is found then."""

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
        """Return whether it grew, if there were rounds enough to tell."""
        if len(self._seen) < 2 * self.WARM_ROUNDS:
            return []
        before, after = max(self._seen[: self.WARM_ROUNDS]), min(self._seen[-self.WARM_ROUNDS :])
        if after - before <= self.BYTES_MAX:
            return []
        return [Finding(f"memory grew from {before >> 20} to {after >> 20} MB")]

    def __str__(self) -> str:
        return f"{self._seen[0] >> 20}-{self._seen[-1] >> 20} MB" if self._seen else ""

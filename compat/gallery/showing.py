"""Running a bug's program against a broker that commits its faults, and reading its verdict.

The rule: a verdict counts only where a fault has struck, and where the program says so: `SHOWN what` or `NOT SHOWN what`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat.gallery import installing
from compat.gallery.catalogue import Bug
from compat.matrix.brokers import Barnabas

PROGRAM_TIMEOUT_S = 150
SHOWN, NOT_SHOWN = "shown", "not shown"
_WORDS = {"SHOWN": SHOWN, "NOT SHOWN": NOT_SHOWN}
QUICK_GROUPS = {"group.initial.rebalance.delay.ms": "0"}


class ShowError(Exception):
    """The program has no verdict; the message has the reason."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run."""

    version: str
    verdict: str
    """SHOWN or NOT_SHOWN."""
    text: str
    """The program's words for what it saw."""
    hits: int
    """Number of times that faults struck."""
    seconds: float


def show(bug: Bug, version: str) -> Outcome:
    """Run a bug's program with a version of its client. Raises ShowError, InstallError, BrokerError."""
    command, environment = installing.command(bug, version)
    with tempfile.TemporaryDirectory(prefix="gallery-") as name:
        settings = {
            "control.listener": "127.0.0.1:0", "faults.file": str(bug.faults), "num.partitions": "1",
            **QUICK_GROUPS, **bug.settings,
        }  # fmt: skip
        broker = Barnabas(Path(name), settings)
        broker.start()
        try:
            control = broker.words["control"]
            began_s = time.monotonic()
            text, code = _run([*command, broker.bootstrap], {**environment, "GALLERY_CONTROL": control})
            seconds = time.monotonic() - began_s
            hits = sum(rule["hits"] for rule in ask(f"{control}/v1/faults")["faults"])
        finally:
            broker.stop()
    verdict, words = _verdict(bug, text, code)
    if not hits:
        raise ShowError(
            f"{bug.name} with {bug.client} {version}: no fault has struck, so that nothing is shown: {words}"
        )
    return Outcome(version, verdict, words, hits, seconds)


def ask(url: str, body: Any = None) -> Any:
    """Ask the control API. Raises OSError."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def _run(command: list[str], environment: dict[str, str]) -> tuple[str, int]:
    """Run a program; returns what it printed, and its exit code (-N after signal N).

    Raises ShowError when it does not end.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        end = output.decode(errors="replace")[-1500:]
        raise ShowError(
            f"the program did not end in {PROGRAM_TIMEOUT_S} s; it said at the end: {end}"
        ) from None
    return output.decode(errors="replace"), process.returncode


def _verdict(bug: Bug, output: str, code: int) -> tuple[str, str]:
    """Return the verdict and the observation. Raises ShowError if there is none."""
    if code < 0 and bug.ends_by_signal:
        return SHOWN, f"the client's process was ended by {signal.Signals(-code).name}"
    for line in reversed(output.splitlines()):
        for word, verdict in _WORDS.items():
            if line.startswith(f"{word} "):
                return verdict, line.removeprefix(word).strip()
    if bug.ends_by_signal and code and "panic:" in output:  # what Go calls the end of a process
        return SHOWN, next(line for line in output.splitlines() if line.startswith("panic:"))
    raise ShowError(f"the program ended with {code} and no verdict:\n{output[-2000:]}")

"""Running one client's program and reading its verdicts.

The rule: each requested case has a verdict, whatever the program does; a missing result is a failure.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CLIENTS = Path(__file__).resolve().parents[1] / "clients"
RUN_TIMEOUT_S = 2400  # with setting up, which may compile a client
LINE = re.compile(r"(PASS|FAIL|SKIP) (\S+)(?: (.*?))?(?: ?\((\d+\.\d) s\))?$")


@dataclass(frozen=True)
class Verdict:
    """PASS, FAIL or SKIP of one case, its detail, and its duration (s)."""

    status: str
    detail: str = ""
    seconds: float | None = None


Verdicts = dict[str, Verdict]


def names() -> list[str]:
    """Return the names of all clients."""
    return sorted(path.parent.name for path in CLIENTS.glob("*/run"))


def title(client: str) -> str:
    """Return the client's name and version, from the first line of its findings."""
    findings = CLIENTS / client / "FINDINGS.md"
    if not findings.exists():
        return client
    return findings.read_text(encoding="utf-8").splitlines()[0].partition(": ")[2] or client


def program(client: str) -> Path:
    """The program that runs a client's cases."""
    return CLIENTS / client / "run"


def run(
    program: Path, bootstrap: str, cases: Iterable[str], environment: Mapping[str, str], errors: Path
) -> Verdicts:
    """Run these cases of a program; what it writes to standard error is appended to `errors`."""
    missing = list(cases)
    if not missing:
        return {}
    with errors.open("ab") as log:
        process = subprocess.Popen(
            [str(program), bootstrap, *missing],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        timer = threading.Timer(RUN_TIMEOUT_S, _end, [process])
        timer.start()
        output = process.communicate()[0].decode(errors="replace")
        timer.cancel()
        _end(process)  # a case that failed may have left programs behind
    return _verdicts(missing, output, process.returncode, errors)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and all that it has started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _verdicts(missing: list[str], output: str, code: int, errors: Path) -> Verdicts:
    results: Verdicts = {}
    for line in output.splitlines():
        match = LINE.match(line)
        if match:
            status, case, detail, seconds = match.groups()
            results[case] = Verdict(status, detail or "", float(seconds) if seconds else None)
    setup = results.pop("setup", None)
    silent = setup or Verdict("FAIL", f"no verdict: the program ended with {code}; see {errors}")
    verdicts = {case: results.get(case, silent) for case in missing}
    failed = any(verdict.status == "FAIL" for verdict in verdicts.values())
    if bool(code) != failed and not setup:
        verdicts["exit-code"] = Verdict("FAIL", f"the program ended with {code}, its verdicts say otherwise")
    return verdicts

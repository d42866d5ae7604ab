"""`python -m tools.beside PID`: compile the sources beside a broker, at the lowest priority, and end with it.

The rule: only one compilation runs at a time, and it never ends the broker: it prints its progress in a few lines, and a
failure in one. Compiled files are kept, so the next compilation resumes an interrupted one.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tools.incremental import ALL_PROGRESS
from tools.install_wheel import ROOT

LOG = ".venv/setup.log"
QUARTERS = (25, 50, 75)
FILES = re.compile(r"compiling: (\d+) of (\d+) files")


def say(text: str) -> None:
    """Print a line amid the broker's output."""
    print(f"barnabas compiles beside: {text}", file=sys.stderr, flush=True)


def make(root: Path, target: str) -> subprocess.Popen[str]:
    """Start making a target, in a separate process group."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.Popen(
        ["make", "--no-print-directory", target],
        cwd=root,
        env={**kept, "PYTHONPATH": "", ALL_PROGRESS: "yes"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
    )  # fmt: skip


def end_with(broker: int, process: subprocess.Popen[str]) -> None:
    """End the process group when the broker (a process descriptor) ends."""

    def watch() -> None:
        select.select([broker], [], [])
        os.killpg(process.pid, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def follow(process: subprocess.Popen[str], kept: Path) -> str:
    """Report progress until the process ends, and keep its output; returns the last line with an error."""
    quarters, last = list(QUARTERS), ""
    assert process.stdout is not None
    with kept.open("a") as log:
        for line in process.stdout:
            log.write(line)
            log.flush()
            if match := FILES.search(line):
                percent = 100 * int(match[1]) // int(match[2])
                passed = [quarter for quarter in quarters if percent >= quarter]
                if passed:
                    say(f"{passed[-1]} %")
                    quarters = quarters[len(passed) :]
            elif "error" in line.lower() and not line.startswith("make"):
                last = line.strip()
    process.wait()
    return last


def is_running(broker: int) -> bool:
    """Return whether the broker is still there."""
    return not select.select([broker], [], [], 0)[0]


def compile_beside(process_id: int, root: Path) -> None:
    """Set up the environment, compile, and report the outcome."""
    with (root / ".venv/.beside").open("a") as lock:
        try:
            broker = os.pidfd_open(process_id)
        except ProcessLookupError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another start does so already")
            return
        say("this start runs the sources, the next one will run compiled")
        log = root / LOG
        log.write_text("")
        process = make(root, ".venv/.ready-compile")  # not broken off: pip would leave half of a package
        error = follow(process, log)
        if process.returncode == 0 and is_running(broker):
            process = make(root, "setup")
            end_with(broker, process)
            error = follow(process, log)
        if not is_running(broker):
            return
        if process.returncode:
            say(f"failed, it goes on interpreted ({error or 'no error is named'}; see {LOG})")
        else:
            say("done, the next start runs compiled")


if __name__ == "__main__":
    os.nice(19)
    compile_beside(int(sys.argv[1]), ROOT)

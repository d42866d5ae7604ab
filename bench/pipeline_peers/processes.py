"""Jobs as trees of processes: their CPU time, their memory, and killing them.

The rule: this process adopts orphans of a job, so that all processes are counted and none outlives the bench.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.procfs import children, cpu_s, family

PR_SET_CHILD_SUBREAPER = 36
ORPHAN_SECONDS_MAX = 20
SAMPLE_SECONDS = 0.25


def adopt_orphans() -> None:
    """Become the parent of descendants that outlive their own parents."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class Job:
    """A running program and its descendants; its output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        """Start it."""
        self.log = log
        self._others = children(os.getpid())
        self._cpu_before = _cpu_of_ended()
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env={**os.environ, **environment}, start_new_session=True
            )
        self.pid = self._process.pid
        atexit.register(self.kill)

    @property
    def is_running(self) -> bool:
        """Return whether its first process has not ended."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise RuntimeError with the end of its output if it has failed."""
        if self._process.poll():
            raise RuntimeError(f"exit code {self._process.returncode}: {self.tail()}")

    def cpu_s(self) -> float:
        """Return the CPU seconds of its processes, including ended ones that were waited for."""
        return cpu_s(self.pid, with_ended=True)

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-3000:]

    def wait(self, seconds_max: float) -> float:
        """Wait for its end; returns the CPU seconds of all its processes. Raises RuntimeError if it fails."""
        self._process.wait(seconds_max)
        self.check()
        return self._reaped()

    def kill(self) -> float:
        """End all its processes by SIGKILL; returns their CPU seconds."""
        for pid in family(self.pid) if self.is_running else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return self._reaped()

    def _reaped(self) -> float:
        """Wait for orphans of the job, and kill those that do not end; returns the CPU seconds of all."""
        atexit.unregister(self.kill)
        deadline = time.monotonic() + ORPHAN_SECONDS_MAX
        while orphans := [pid for pid in children(os.getpid()) if pid not in self._others]:
            for pid in orphans:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
        return _cpu_of_ended() - self._cpu_before


class Memory(threading.Thread):
    """Samples the memory of a job's processes: proportional set sizes, so that shared pages count once."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._stopping = threading.Event()
        self.bytes_max = 0

    def run(self) -> None:
        """Sample until `end`."""
        while not self._stopping.wait(SAMPLE_SECONDS):
            with suppress(OSError):
                self.bytes_max = max(self.bytes_max, sum(map(_pss_bytes, family(self._pid))))

    def end(self) -> int:
        """Stop; returns the largest sum in bytes."""
        self._stopping.set()
        self.join()
        return self.bytes_max


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _cpu_of_ended() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

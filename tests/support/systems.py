"""Views of other processes, and of the open descriptors of this one, on Linux and on macOS."""

from __future__ import annotations

import os
import resource
import select
import subprocess
from pathlib import Path

import pytest

IS_BSD = hasattr(select, "kqueue")
linux_only = pytest.mark.skipif(
    IS_BSD, reason="holds a promise that is made on Linux only: docs/design/macos.md"
)


def open_descriptors() -> list[str]:
    """Return the open descriptors of this process, including one for the listing."""
    return os.listdir("/dev/fd")


def in_proc(name: str) -> Path:
    """Return a path below /proc, for views of other processes; skips the test if there is no /proc."""
    if not os.path.exists("/proc/self"):
        pytest.skip("looks into a process through /proc, which Linux has")
    return Path("/proc") / name


def limit(process: int, kind: int, limits: tuple[int, int | None]) -> tuple[int, int]:
    """Set a resource limit (soft, hard) of another process; returns the previous one. Skips the test where it cannot.

    None keeps the hard limit.
    """
    if not hasattr(resource, "prlimit"):
        pytest.skip("limits another process, as Linux alone allows")
    soft, hard = resource.prlimit(process, kind)
    resource.prlimit(process, kind, (limits[0], hard if limits[1] is None else limits[1]))
    return soft, hard


def processes() -> dict[int, tuple[int, str, str]]:
    """Return the parent, the state and the command of each process, by process id, from `ps`."""
    done = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,command="], stdout=subprocess.PIPE, text=True, check=True
    )
    by_pid = {}
    for line in done.stdout.splitlines():
        pid, parent, state, *command = line.split(maxsplit=3)
        by_pid[int(pid)] = int(parent), state, "".join(command)
    return by_pid


def children(*pids: int) -> list[int]:
    """Return the children of these processes, except zombies."""
    return [pid for pid, (parent, state, _) in processes().items() if parent in pids and "Z" not in state]


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; true for a zombie."""
    return pid not in (running := processes()) or "Z" in running[pid][1]

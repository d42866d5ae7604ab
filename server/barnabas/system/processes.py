"""Processes: the end of another one, the end of the parent, and visible facts about listening processes."""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, Final

_os: Any = os
_select: Any = select

_PR_SET_PDEATHSIG = 1
_PARENT_SECONDS = 0.1
"""So often a process looks for its parent, where the kernel does not tell."""


class _ProcessQueue:
    """A kqueue that can be read once a process has ended."""

    def __init__(self, process: int) -> None:
        """Raises ProcessLookupError if it has ended."""
        self._kqueue = _select.kqueue()
        event = _select.kevent(
            process,
            filter=_select.KQ_FILTER_PROC,
            flags=_select.KQ_EV_ADD | _select.KQ_EV_ONESHOT,
            fflags=_select.KQ_NOTE_EXIT,
        )
        try:
            self._kqueue.control([event], 0)
        except OSError:
            self._kqueue.close()
            raise

    def fileno(self) -> int:
        return int(self._kqueue.fileno())

    def close(self) -> None:
        self._kqueue.close()


class _ProcessDescriptor:
    """Linux's descriptor of a process, which can be read once it has ended."""

    def __init__(self, process: int) -> None:
        self._descriptor = int(_os.pidfd_open(process))

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


watch_process = _ProcessDescriptor if hasattr(os, "pidfd_open") else _ProcessQueue
"""Return what can be read, by its `fileno`, once a process has ended; to be closed. Raises OSError, of it
ProcessLookupError for a process that has ended, which BSD says also of one that was not waited for yet."""


def _signal_by_kernel(number: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _signal_by_thread(number: int) -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_SECONDS)
        os.kill(os.getpid(), number)

    Thread(target=watch, name="parent", daemon=True).start()


HAS_PARENT_SIGNAL: Final = hasattr(ctypes.CDLL(None), "prctl")
"""True if the kernel signals a process when its parent ends, also after `exec`."""

signal_when_parent_ends: Final[Callable[[int], None]] = (
    _signal_by_kernel if HAS_PARENT_SIGNAL else _signal_by_thread
)
"""Request a signal to this process when its parent ends; on Linux when the thread that has started it does."""


SHOWS_PROCESSES: Final = os.path.exists("/proc/net/tcp")
"""True where the files that other processes have open can be seen."""


def is_running(process: int) -> bool:
    """Return whether a process with this id runs, if that can be determined."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is another user's, or the number is none
        return True
    return True


def listening_process(port: int) -> int | None:
    """Return the process that listens on a port, None if it cannot be seen."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            files = os.listdir(f"/proc/{process}/fd")
            if any(os.readlink(f"/proc/{process}/fd/{file}") in inodes for file in files):
                return int(process)
        except OSError:
            continue
    return None


def open_files(process: int) -> tuple[int, int]:
    """Return how many files a process has open, and how many it may have, -1 for any number. Raises OSError."""
    limit = -1
    for line in Path(f"/proc/{process}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            limit = int(soft) if soft.isdecimal() else -1
    return len(os.listdir(f"/proc/{process}/fd")), limit

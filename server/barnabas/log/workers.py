"""Threads and time for the synchronous code of the log, outside the thread that owns the logs.

The rule: nothing else in `log` starts a thread, sleeps or measures time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Executor


class Workers(Protocol):
    """Part of the environment, real or simulated."""

    def executor(self, threads: int) -> Executor:
        """Return an executor with this many threads; its `with` block waits for all submitted work."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""


class OsWorkers:
    """Workers of the operating system."""

    def executor(self, threads: int) -> Executor:
        """Return a pool of threads."""
        from concurrent.futures import ThreadPoolExecutor  # not needed by every start

        return ThreadPoolExecutor(threads, thread_name_prefix="log")

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def monotonic(self) -> float:
        """Return the system's monotonic clock."""
        return time.monotonic()

"""Threads and time for synchronous code, which the log is: for what it does beside the thread that owns the logs.

The rule: nothing in `log` starts a thread, sleeps or measures time by itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Executor


class Workers(Protocol):
    """Part of the environment, real or simulated."""

    def executor(self, threads: int) -> Executor:
        """Return an executor with so many threads; its `with` block waits for all that was begun."""

    def sleep(self, seconds: float) -> None:
        """Hold up the calling thread."""

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back."""


class OsWorkers:
    """Those of the operating system."""

    def executor(self, threads: int) -> Executor:
        """Return a pool of threads."""
        from concurrent.futures import ThreadPoolExecutor  # not on the way of every start

        return ThreadPoolExecutor(threads, thread_name_prefix="log")

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def monotonic(self) -> float:
        """Return the system's monotonic clock."""
        return time.monotonic()

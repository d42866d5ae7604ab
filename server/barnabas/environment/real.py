"""The environment that the operating system gives."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TypeVar

import trio

from barnabas.environment import Environment
from barnabas.log.disk import Disk, OsDisk
from barnabas.log.workers import OsWorkers
from barnabas.network.sockets import SocketNetwork

T = TypeVar("T")


class OsEntropy:
    """The operating system's random numbers."""

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""
        return secrets.token_bytes(size)

    def below(self, limit: int, /) -> int:
        """Return a random number from 0 to `limit` - 1."""
        return secrets.randbelow(limit)


class OsThreads:
    """Trio's worker threads."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        """Run `work` in a thread and return what it returns."""
        return await trio.to_thread.run_sync(work, limiter=limiter)

    def check_cancelled(self) -> None:
        """Call in such a thread: raise trio.Cancelled if whoever waits for it was cancelled."""
        trio.from_thread.check_cancelled()


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def real_environment(disk: Disk | None = None, clock_ms: Callable[[], int] = wall_clock_ms) -> Environment:
    """Return the operating system's, with another disk or wall clock if one is given."""
    return Environment(
        wall_clock_ms=clock_ms,
        monotonic=time.monotonic,
        entropy=OsEntropy(),
        threads=OsThreads(),
        workers=OsWorkers(),
        disk=disk or OsDisk(),
        network=SocketNetwork(),
    )

"""The environment that the operating system gives."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from barnabas.environment import Environment
from barnabas.environment.clocks import wall_clock_ms
from barnabas.log.disk import Disk, OsDisk
from barnabas.log.workers import OsWorkers
from barnabas.network.sockets import SocketNetwork

T = TypeVar("T")
_random = random.SystemRandom()  # `secrets` would bring `hmac`, and with it OpenSSL


class OsEntropy:
    """The operating system's random numbers."""

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""
        return os.urandom(size)

    def below(self, limit: int, /) -> int:
        """Return a random number from 0 to `limit` - 1."""
        return _random.randrange(limit)


class _Job(Generic[T]):
    """Work for a thread, and its result until the caller has it.

    Trio leaves reference cycles behind that contain the values it carries. A result of 100 MB, or the objects in the frames
    of an exception's traceback, would stay in memory until the next garbage collection; so neither passes through Trio.
    """

    __slots__ = ("_error", "_result", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._result: T | None = None
        self._error: BaseException | None = None

    def do(self) -> None:
        """Do the work, in the thread."""
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = work()
        except BaseException as error:
            self._error = error

    def take(self) -> T:
        """Return the result, or raise the error of the work; once."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        result, self._result = self._result, None
        return result  # type: ignore[return-value]


class OsThreads:
    """Trio's worker threads."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        """Run `work` in a thread and return its result."""
        job = _Job(work)
        await trio.to_thread.run_sync(job.do, limiter=limiter)
        return job.take()

    def check_cancelled(self) -> None:
        """Call in such a thread: raises trio.Cancelled if the waiting task was cancelled."""
        trio.from_thread.check_cancelled()


def real_environment(disk: Disk | None = None, clock_ms: Callable[[], int] = wall_clock_ms) -> Environment:
    """Return the operating system's environment, with another disk or wall clock if set."""
    return Environment(
        wall_clock_ms=clock_ms,
        monotonic=time.monotonic,
        entropy=OsEntropy(),
        threads=OsThreads(),
        workers=OsWorkers(),
        disk=disk or OsDisk(),
        network=SocketNetwork(),
    )

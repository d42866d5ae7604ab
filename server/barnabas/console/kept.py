"""Answers that take long to compute, cached for a while.

The rule: an answer is computed on request, at most once a second, and less often the longer it takes. Other requests
meanwhile wait for a moment, and then get the older answer. That is not returned once a later computation has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

import trio

from barnabas.client import ClientError

T = TypeVar("T")

FRESH_SECONDS = 1.0
MOMENT_SECONDS = 0.05
"""Time that `get` waits for a newer value before it returns the older one."""
STALE_SECONDS = 60.0
"""Age above which a value is not returned while it is read again, with twice the time for which it is fresh."""
REST_FACTOR = 20
"""Age at which a value is read again, as a multiple of the time that reading takes: for 10,000 topics some seconds."""


class Kept(Generic[T]):
    """A cached value, and the time at which it was read."""

    def __init__(self, read: Callable[[], Awaitable[T]], nursery: trio.Nursery) -> None:
        """`read` may raise ClientError."""
        self._read_it = read
        self._nursery = nursery
        self._value: T | None = None
        self._read_at = 0.0
        self._fresh_s = FRESH_SECONDS
        self._times_forgotten = 0
        self._lock = trio.Lock()
        self._refreshed: trio.Event | None = None
        """Set once the refresh in progress has ended; None without a refresh."""
        self._has_failed = False

    async def get(self) -> T:
        """Return the value. Raises ClientError."""
        if self._value is not None and self._fresh_s < self._age_s() <= self._stale_s():
            await self._wait_for_refresh()
        if self._value is None or self._has_failed or self._age_s() > self._stale_s():
            async with self._lock:
                if self._has_failed or self._age_s() > self._stale_s():
                    await self._read()
                while self._value is None:
                    await self._read()
        value = self._value
        assert value is not None
        return value

    def note(self, value: T) -> None:
        """Store a value that was just computed by other means."""
        self._value, self._read_at, self._has_failed = value, trio.current_time(), False

    def forget(self) -> None:
        """Discard the value; the next `get` reads it again."""
        self._value = None
        self._times_forgotten += 1

    def _age_s(self) -> float:
        return trio.current_time() - self._read_at

    def _stale_s(self) -> float:
        return STALE_SECONDS + 2 * self._fresh_s

    async def _wait_for_refresh(self) -> None:
        if self._refreshed is None:
            self._refreshed = trio.Event()
            self._nursery.start_soon(self._refresh, self._refreshed)
        with trio.move_on_after(MOMENT_SECONDS):
            await self._refreshed.wait()

    async def _refresh(self, ended: trio.Event) -> None:
        try:
            async with self._lock:
                with suppress(ClientError):  # the next `get` reads again, and raises
                    await self._read()
        finally:
            self._refreshed = None
            ended.set()

    async def _read(self) -> None:
        began, times_forgotten = trio.current_time(), self._times_forgotten
        try:
            value = await self._read_it()
        except ClientError:
            self._has_failed = True
            raise
        self._has_failed = False
        if times_forgotten == self._times_forgotten:  # otherwise the value may precede a change
            self._value = value
        self._read_at = began
        self._fresh_s = max(FRESH_SECONDS, REST_FACTOR * (trio.current_time() - began))

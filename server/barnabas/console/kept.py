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
"""A look waits so long for a newer value before it shows the older one."""
STALE_SECONDS = 60.0
"""One that is older is not shown while it is read again."""
REST_FACTOR = 20
"""Age at which it is read again, as a multiple of the time that this takes: of 10,000 topics some seconds."""


class Kept(Generic[T]):
    """A value, and when it was read."""

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
        """Set once the refresh that is going on has ended; None where none is."""
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
        """Have it read again before it is next shown."""
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
                with suppress(ClientError):  # the next look reads it again and is told
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
        if times_forgotten == self._times_forgotten:  # otherwise it may be of before a change
            self._value = value
        self._read_at = began
        self._fresh_s = max(FRESH_SECONDS, REST_FACTOR * (trio.current_time() - began))

"""Answers that take long to read, cached for a while.

The rule: it is read on request, at most every few seconds, while the older one is shown; the longer it takes to
read, the longer it is kept. An older value is not shown once reading it again has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

import trio

from barnabas.client import ClientError

T = TypeVar("T")

FRESH_SECONDS = 5.0
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
        self._is_refreshing = False
        self._has_failed = False

    async def get(self) -> T:
        """Return the value. Raises ClientError."""
        age = trio.current_time() - self._read_at
        stale_s = STALE_SECONDS + 2 * self._fresh_s
        if self._value is None or age > stale_s or self._has_failed:
            async with self._lock:
                if trio.current_time() - self._read_at > stale_s or self._has_failed:
                    await self._read()
                while self._value is None:
                    await self._read()
        elif age > self._fresh_s and not self._is_refreshing:
            self._is_refreshing = True
            self._nursery.start_soon(self._refresh)
        value = self._value
        assert value is not None
        return value

    def note(self, value: T) -> None:
        """Take a value that was read just now for something else."""
        self._value, self._read_at, self._has_failed = value, trio.current_time(), False

    def forget(self) -> None:
        """Have it read again before it is next shown."""
        self._value = None
        self._times_forgotten += 1

    async def _refresh(self) -> None:
        try:
            async with self._lock:
                with suppress(ClientError):  # the next look reads it again and is told
                    await self._read()
        finally:
            self._is_refreshing = False

    async def _read(self) -> None:
        began, times_forgotten = trio.current_time(), self._times_forgotten
        self._has_failed = True
        value = await self._read_it()
        self._has_failed = False
        if times_forgotten == self._times_forgotten:  # otherwise it may be of before a change
            self._value = value
        self._read_at = began
        self._fresh_s = max(FRESH_SECONDS, REST_FACTOR * (trio.current_time() - began))

"""Waiters for an offset of a replica. The rule: the code that moves the offset wakes them; no code polls."""

from __future__ import annotations

import trio

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


class _Waiter:
    """A waiter for an offset; `error` is set where it will never be reached."""

    __slots__ = ("error", "event", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.event = trio.Event()
        self.error: ErrorCode | None = None


class OffsetWaiters:
    """Waiters for one kind of offset of a replica: its high watermark, flushed offset, or low watermark."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[_Waiter] = []

    @property
    def is_empty(self) -> bool:
        """True if there are no waiters."""
        return not self._waiters

    async def wait(self, offset: int) -> None:
        """Wait until `offset` is reached. Raises RequestError with the code of `fail`."""
        waiter = _Waiter(offset)
        self._waiters.append(waiter)
        try:
            await waiter.event.wait()
        finally:
            self._waiters.remove(waiter)
        if waiter.error is not None:
            raise RequestError(waiter.error)

    def reached(self, offset: int) -> None:
        """Wake the waiters for this offset or one before it."""
        for waiter in self._waiters:
            if waiter.offset <= offset:
                waiter.event.set()

    def fail(self, why: ErrorCode) -> None:
        """Fail all remaining waiters with an error: the offset will not be reached here."""
        for waiter in self._waiters:
            if not waiter.event.is_set():
                waiter.error = why
                waiter.event.set()

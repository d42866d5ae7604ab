"""Memory of request bodies, of all visitors of one address together.

The rule: a small body always gets memory; larger ones share a pool, and if it is used up a request waits for a while and
is then refused. So the memory of an address is bounded, and a visitor that fills the pool delays no small request.
"""

from __future__ import annotations

import trio

SMALL_BYTES_MAX = 64 * 1024
"""Size of a body for which nothing is taken from the pool."""
POOL_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of larger bodies that one address holds at a time."""
WAIT_SECONDS_MAX = 5.0
"""Time for which a request waits for bytes of the pool."""


class PoolExhaustedError(Exception):
    """The pool had no place for a body in time."""


class BodyPool:
    """Memory for the larger bodies of one address."""

    def __init__(self, bytes_max: int = POOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes_taken = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def bytes_taken(self) -> int:
        """Number of reserved bytes."""
        return self._bytes_taken

    async def take(self, count: int) -> None:
        """Reserve bytes; waits while too few are free. Raises PoolExhaustedError."""
        with trio.move_on_after(WAIT_SECONDS_MAX):
            while self._bytes_taken + count > self._bytes_max:
                await self._waiting.park()
            self._bytes_taken += count
            return
        raise PoolExhaustedError

    def release(self, count: int) -> None:
        """Give bytes back."""
        self._bytes_taken -= count
        self._waiting.unpark_all()

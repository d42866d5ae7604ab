"""Memory that requests and responses may hold, all connections together, and who waits when it is used up.

The rule: whoever is about to hold much reserves it first, and waits in line while there is not enough. What waits holds
nothing in the same pool, so no two can wait for each other; and a request that is larger than the whole pool is let in
when it is alone. Small amounts have a pool of their own: those who hold much never keep out those who need little.

For handlers: `await context.reserve(size)` before records are converted or decompressed or a long answer is built,
`context.try_reserve(size)` for each further part that the answer may also do without, `context.unreserve(size)` for
what has been dropped. What is still reserved is released when the response has been sent.
"""

from __future__ import annotations

from collections import deque

import trio

MIB = 1024 * 1024

SMALL_BYTES_MAX = 64 * 1024
"""Up to this size a reservation is taken from the pool for small ones."""

RESPONSE_BYTES_MAX = 64 * MIB
SMALL_SHARE = 4
"""The pool for small reservations has a quarter of the size of that for large ones."""


class MemoryPool:
    """A number of bytes to share, given out in the order of asking.

    `held` is what is reserved now; it is above `bytes_max` only by one reservation that was alone, or by `charge`.
    """

    __slots__ = ("_waiting", "bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def waiting(self) -> int:
        """How many tasks wait for memory."""
        return len(self._waiting)

    def try_acquire(self, size: int) -> bool:
        """Reserve `size` bytes if they are free and nobody waits for them."""
        if self._waiting or not self._fits(size):
            return False
        self.held += size
        return True

    async def acquire(self, size: int) -> None:
        """Reserve `size` bytes, after those who asked earlier. No checkpoint if they are free."""
        if self.try_acquire(size):
            return
        waiter = (size, trio.Event())
        self._waiting.append(waiter)
        try:
            await waiter[1].wait()
        except BaseException:
            if waiter[1].is_set():
                self.held -= size
            else:
                self._waiting.remove(waiter)
            self._let_in()
            raise

    def charge(self, size: int) -> None:
        """Count `size` bytes that are held already, whether or not there is room for them."""
        self.held += size

    def release(self, size: int) -> None:
        """Give back what was reserved or charged."""
        self.held -= size
        if self._waiting:
            self._let_in()

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self.bytes_max

    def _let_in(self) -> None:
        waiting = self._waiting
        while waiting and self._fits(waiting[0][0]):
            size, event = waiting.popleft()
            self.held += size
            event.set()


class Memory:
    """The pools of a broker: for large and for small responses."""

    def __init__(self, response_bytes_max: int = RESPONSE_BYTES_MAX) -> None:
        self.large_responses = MemoryPool(response_bytes_max)
        self.small_responses = MemoryPool(max(response_bytes_max // SMALL_SHARE, 2 * SMALL_BYTES_MAX))

    def for_response(self, size: int) -> MemoryPool:
        """The pool that `size` bytes of a response are reserved in."""
        return self.small_responses if size <= SMALL_BYTES_MAX else self.large_responses


class Reservation:
    """What one request has reserved for its response, in one pool.

    The first part may have to wait. Further parts never wait, since whoever waits must hold nothing: `add` counts them
    at once, `try_add` only if there is room.
    """

    __slots__ = ("_memory", "_pool", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pool = memory.large_responses
        self.size = 0

    async def add(self, size: int) -> None:
        """Reserve `size` bytes."""
        if self.size:
            self._pool.charge(size)
        else:
            pool = self._memory.for_response(size)
            await pool.acquire(size)
            self._pool = pool
        self.size += size

    def try_add(self, size: int) -> bool:
        """Reserve `size` bytes if they are free."""
        pool = self._pool if self.size else self._memory.for_response(size)
        if not pool.try_acquire(size):
            return False
        self._pool = pool
        self.size += size
        return True

    def reduce(self, size: int) -> None:
        """Give back `size` bytes, at most what is reserved."""
        size = min(size, self.size)
        if size:
            self.size -= size
            self._pool.release(size)

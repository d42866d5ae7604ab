"""Memory that requests and responses of all connections together may hold, and the order of waiting when it is used up.

Requests are counted by the bytes that have arrived (`IncomingMemory`), responses by the reservations of their handlers
(`MemoryPool`) and by the bytes that clients leave unread (`UnsentMemory`).

The rule: a task that is about to hold much memory reserves it first, and queues while there is not enough. A waiting task
holds nothing in the same pool, so no two can wait for each other; and a request that is larger than the whole pool is
admitted when it is alone. Small amounts have a pool of their own: large reservations never delay small ones.

For handlers: `await context.reserve(size)` before records are converted or decompressed or a long response is built,
`context.unreserve(size)` for dropped data. Remaining reservations are released when the response has been sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

MIB = 1024 * 1024

SMALL_BYTES_MAX: Final = 64 * 1024
"""Up to this size a reservation is taken from the pool for small ones."""

REQUEST_BYTES_MAX = 64 * MIB
"""Bytes of requests larger than SMALL_BYTES_MAX, unless queued.max.request.bytes says otherwise."""

RESPONSE_BYTES_MAX = 64 * MIB
SMALL_SHARE: Final = 4
"""The pool for small ones has a quarter of the size of that for large ones, in addition."""

RECEIVE_STALLED_SECONDS: Final = 2.0
SEND_STALLED_SECONDS: Final = 10.0
"""Longest times for which a peer may send or take nothing while others wait for the memory that it holds."""

SHED_INTERVAL_SECONDS: Final = 1.0

GIVE_BACK_BYTES = 16 * MIB
GIVE_BACK_AFTER_LOOKS: Final = 3
"""After this many checks with much less memory held than before, the process returns free memory to the system."""


class MemoryPool:
    """A number of bytes to share, reserved in the order of the requests for it.

    `held` is the reserved number; it is above `bytes_max` only through one reservation that was alone, or through `charge`.
    `held_most` is the maximum since it was last read and reset.
    """

    __slots__ = ("_waiting", "bytes_max", "held", "held_most")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = self.held_most = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for memory."""
        return len(self._waiting)

    def try_acquire(self, size: int) -> bool:
        """Reserve `size` bytes if they are free and no task waits for them."""
        if self._waiting or not self._fits(size):
            return False
        self.charge(size)
        return True

    async def acquire(self, size: int) -> None:
        """Reserve `size` bytes, after earlier requests for memory. No checkpoint if they are free."""
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
        self.held_most = max(self.held_most, self.held)

    def release(self, size: int) -> None:
        """Release reserved or charged bytes."""
        self.held -= size
        if self._waiting:
            self._let_in()

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self.bytes_max

    def _let_in(self) -> None:
        waiting = self._waiting
        while waiting and self._fits(waiting[0][0]):
            size, event = waiting.popleft()
            self.charge(size)
            event.set()


class Held:
    """Bytes that a connection holds of an incoming request, or of an outgoing response.

    `moved_s` is the time of the last received or sent byte; `close` ends the connection.
    """

    __slots__ = ("close", "moved_s", "size")

    def __init__(self, close: Callable[[str], None]) -> None:
        self.close = close
        self.moved_s = 0.0
        self.size = 0


class IncomingMemory:
    """Bytes of requests: those that are still arriving, and those that are being answered.

    A request that needs more than is free waits, and its socket is not read meanwhile. The request that began to arrive
    before all others never waits, so one of them always proceeds; if its sender stops, `shed` closes it.
    """

    __slots__ = ("_arriving", "_clock", "_waiting", "bytes_max", "held", "held_most")

    def __init__(self, bytes_max: int, clock: Callable[[], float] = trio.current_time) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.held_most = 0
        """The most that requests which came in parts have held, since it was last read and reset."""
        self._arriving: dict[Held, None] = {}
        self._waiting: dict[Held, tuple[int, trio.Event]] = {}
        self._clock = clock

    @property
    def waiting(self) -> int:
        """Number of arriving requests that wait for memory."""
        return len(self._waiting)

    @property
    def is_short(self) -> bool:
        """True while requests must wait."""
        return self.held >= self.bytes_max

    def begin(self, held: Held, size: int) -> None:
        """Count a request that has begun to arrive, with its first `size` bytes."""
        self._arriving[held] = None
        held.size = size
        held.moved_s = self._clock()
        self.held += size

    async def grow(self, held: Held, size: int) -> None:
        """Reserve `size` more bytes of an arriving request. No checkpoint if they are free."""
        if (not self._waiting and self._fits(size)) or self._is_first(held):
            self._grant(held, size)
            return
        event = trio.Event()
        self._waiting[held] = (size, event)
        try:
            await event.wait()
        finally:
            self._waiting.pop(held, None)

    def shrink(self, held: Held, size: int) -> None:
        """Release reserved bytes that did not arrive."""
        held.size -= size
        self.held -= size
        held.moved_s = self._clock()
        self._let_in()

    def arrived(self, held: Held) -> None:
        """Note that a request has arrived completely; its bytes stay reserved until `end`."""
        self._arriving.pop(held, None)
        self._let_in()

    def end(self, held: Held) -> None:
        """The request was answered, or is lost."""
        self._arriving.pop(held, None)
        self.held -= held.size
        held.size = 0
        self._let_in()

    def charge(self, size: int) -> None:
        """Count a request that arrived in one piece."""
        self.held += size

    def discharge(self, size: int) -> None:
        """Such a request was answered."""
        self.held -= size
        if self._waiting:
            self._let_in()

    def shed(self) -> None:
        """Close connections with requests that have stopped arriving, if others wait for the memory that they hold."""
        if not self._waiting:
            return
        limit = self._clock() - RECEIVE_STALLED_SECONDS
        for held in [
            arrival for arrival in self._arriving if arrival not in self._waiting and arrival.moved_s <= limit
        ]:
            held.close(f"its request stopped after {held.size} bytes, for which others wait")

    def _fits(self, size: int) -> bool:
        return not self.held or self.held + size <= self.bytes_max

    def _is_first(self, held: Held) -> bool:
        return next(iter(self._arriving), held) is held

    def _grant(self, held: Held, size: int) -> None:
        held.size += size
        held.moved_s = self._clock()
        self.held += size
        self.held_most = max(self.held_most, self.held)

    def _let_in(self) -> None:
        if not self._waiting:
            return
        first = next(iter(self._arriving), None)
        if first is not None and first in self._waiting:
            self._wake(first)
        while self._waiting:
            held, (size, _) = next(iter(self._waiting.items()))
            if not self._fits(size):
                break
            self._wake(held)

    def _wake(self, held: Held) -> None:
        size, event = self._waiting.pop(held)
        self._grant(held, size)
        event.set()


class UnsentMemory:
    """Responses that clients do not read: bytes in memory that the sockets do not accept.

    They are counted when a socket is full. Above `bytes_max`, and while others wait for memory that such responses hold,
    connections without progress for SEND_STALLED_SECONDS are closed; above twice as much, the slowest ones immediately.
    """

    __slots__ = ("_clock", "_stuck", "_wanted", "bytes_max", "held", "held_most")

    def __init__(
        self,
        bytes_max: int,
        is_wanted: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.bytes_max = bytes_max
        self.held = self.held_most = 0
        self._stuck: dict[Held, None] = {}  # in the order of their last progress
        self._wanted = is_wanted
        self._clock = clock

    @property
    def has_stuck(self) -> bool:
        """Return whether any response waits for its client to read it."""
        return bool(self._stuck)

    def begin(self, held: Held, size: int) -> None:
        """Count a response of `size` bytes in memory, beyond its reservation, that waits for its reader."""
        held.size = size
        held.moved_s = self._clock()
        self._stuck[held] = None
        self.held += size
        self.held_most = max(self.held_most, self.held)
        if self.held > self.bytes_max:
            self.shed()

    def moved(self, held: Held) -> None:
        """Note that the client has read a part of a response."""
        if held in self._stuck:
            del self._stuck[held]
            self._stuck[held] = None
        held.moved_s = self._clock()

    def end(self, held: Held) -> None:
        """All was sent, or the connection is lost."""
        if held in self._stuck:
            del self._stuck[held]
            self.held -= held.size
            held.size = 0

    def shed(self) -> None:
        """Close the slowest readers, if there is too little memory."""
        limit = self._clock() - SEND_STALLED_SECONDS
        freed = 0
        is_short = self._wanted()
        closing = []
        for held in self._stuck:
            remaining = self.held - freed
            stalled = held.moved_s <= limit
            if not (remaining > 2 * self.bytes_max or (stalled and (is_short or remaining > self.bytes_max))):
                break
            freed += held.size
            closing.append(held)
        for held in closing:
            size = held.size
            self.end(held)
            held.close(f"its reader has left {size} bytes of a response unread, and memory is short")


class Memory:
    """The memory of a broker for requests and responses; limits in bytes."""

    def __init__(
        self,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        *,
        clock: Callable[[], float] = trio.current_time,
        give_back: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`give_back` has the process return free memory to the operating system."""
        self._give_back = give_back
        self._held_most = 0  # since memory was last given back
        self._looks_below = 0  # how often in a row much less was held
        self.large_requests = IncomingMemory(request_bytes_max, clock)
        self.small_requests = IncomingMemory(
            max(request_bytes_max // SMALL_SHARE, 2 * SMALL_BYTES_MAX), clock
        )
        self.large_responses = MemoryPool(response_bytes_max)
        self.small_responses = MemoryPool(max(response_bytes_max // SMALL_SHARE, 2 * SMALL_BYTES_MAX))
        self.unsent = UnsentMemory(response_bytes_max // 2, self._is_waited_for, clock)

    @property
    def requests_are_short(self) -> bool:
        """True while some requests must wait until others have been answered."""
        return self.small_requests.is_short or self.large_requests.is_short

    def for_request(self, size: int) -> IncomingMemory:
        """Return where a request of `size` bytes is counted."""
        return self.small_requests if size <= SMALL_BYTES_MAX else self.large_requests

    def _is_waited_for(self) -> bool:
        return bool(self.large_responses.waiting or self.small_responses.waiting)

    @property
    def held(self) -> int:
        """Bytes that are held now, of all kinds."""
        requests = self.large_requests.held + self.small_requests.held
        return requests + self.large_responses.held + self.small_responses.held + self.unsent.held

    async def run(self) -> None:
        """Close the connections that block memory for others, and release their memory, until cancelled."""
        while True:
            await trio.sleep(SHED_INTERVAL_SECONDS)
            self.large_requests.shed()
            self.small_requests.shed()
            self.unsent.shed()
            if self._give_back is not None and self._is_much_free():
                await self._give_back()

    def _is_much_free(self) -> bool:
        """Check the held memory; return whether memory that was held before should be returned to the system."""
        held = self.held
        pools = (
            self.small_requests,
            self.large_requests,
            self.small_responses,
            self.large_responses,
            self.unsent,
        )
        self._held_most = max(self._held_most, held, *(pool.held_most for pool in pools))
        for pool in pools:
            pool.held_most = pool.held
        self._looks_below = self._looks_below + 1 if self._held_most - held >= GIVE_BACK_BYTES else 0
        if self._looks_below < GIVE_BACK_AFTER_LOOKS:
            return False
        self._held_most, self._looks_below = held, 0
        return True

    def for_response(self, size: int) -> MemoryPool:
        """Return the pool that `size` bytes of a response are reserved in."""
        return self.small_responses if size <= SMALL_BYTES_MAX else self.large_responses


class Reservation:
    """Bytes that one request has reserved for its response, in one pool.

    The first part may have to wait. Further parts never wait, since a waiting request must hold nothing: they are
    counted immediately.
    """

    __slots__ = ("_memory", "_pool", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pool = memory.large_responses
        self.size = 0

    async def add(self, size: int) -> None:
        """Reserve `size` bytes."""
        if not self.add_nowait(size):
            pool = self._memory.for_response(size)
            await pool.acquire(size)
            self._pool = pool
            self.size += size

    def add_nowait(self, size: int) -> bool:
        """Reserve `size` bytes if that takes no waiting; return whether they are reserved."""
        if self.size:
            self._pool.charge(size)
        else:
            pool = self._memory.for_response(size)
            if not pool.try_acquire(size):
                return False
            self._pool = pool
        self.size += size
        return True

    def reduce(self, size: int) -> None:
        """Release `size` bytes, at most all reserved ones."""
        size = min(size, self.size)
        if size:
            self.size -= size
            self._pool.release(size)

    def reduce_to(self, size: int) -> None:
        """Release the reserved bytes beyond `size`."""
        self.reduce(max(self.size - size, 0))

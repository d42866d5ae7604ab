"""Receive buffers: one scratch buffer for all connections, and a small pool for large frames.

The rule: an idle connection holds no buffer at all, and memory is only taken for bytes that have arrived. A
frame that merely *claims* to be large costs nothing until its bytes come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.requests.memory import Held, IncomingMemory

KIB = 1024
MIB = 1024 * KIB

SCRATCH_BYTES = 64 * KIB
"""One read of a small request. Larger frames get a buffer of their own."""

GROWTH_BYTES_MAX = MIB
"""A buffer grows by as much as it holds already, but by no more than this at once, and a read takes no more: 8 MB were a
step of 6 ms, most of it for pages that are new to the process."""

POOLED_BUFFER_BYTES_MAX = 16 * MIB
POOL_BYTES_MAX = 32 * MIB


class BufferPool:
    """Large receive buffers, reused: allocating and zeroing a megabyte costs more than reading it.

    Lifecycle: `take` for a frame, `give` once its response has been sent. A buffer must not be given back while
    a view of it is still in use.
    """

    __slots__ = ("_buffers", "_bytes", "scratch")

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._buffers: list[bytearray] = []
        self._bytes = 0

    def take(self, size: int) -> bytearray | None:
        """A buffer for a frame of `size` bytes that was given back before, at most twice as large, or None."""
        buffers = self._buffers
        for index in range(len(buffers) - 1, -1, -1):
            if size <= len(buffers[index]) <= 2 * size:
                buffer = buffers.pop(index)
                self._bytes -= len(buffer)
                return buffer
        return None

    @staticmethod
    def growth(used: int, size: int) -> int:
        """By how many bytes a full buffer of `used` bytes grows for a frame of `size` bytes.

        It at most doubles, so that a sender makes us hold no more than twice what it really sent.
        """
        return min(size - used, max(used, SCRATCH_BYTES), GROWTH_BYTES_MAX)

    def give(self, buffer: bytearray) -> None:
        """Keep the buffer for a later frame, unless the pool is full or the buffer is unusually large."""
        size = len(buffer)
        if size <= POOLED_BUFFER_BYTES_MAX and self._bytes + size <= POOL_BYTES_MAX:
            self._buffers.append(buffer)
            self._bytes += size


async def grown(
    pool: BufferPool, full: bytearray | memoryview, size: int, memory: IncomingMemory, held: Held
) -> bytearray:
    """Return a full buffer with more room for a frame of `size` bytes, or another one with its content."""
    used = len(full)
    pooled = pool.take(size)
    room = (size if pooled is None else len(pooled)) - used
    if pooled is None:
        room = pool.growth(used, size)
    try:
        await memory.grow(held, room)
    except BaseException:
        if pooled is not None:
            pool.give(pooled)
        raise
    if pooled is None:
        buffer = full if isinstance(full, bytearray) else bytearray(full)
        buffer.extend(bytes(room))
        return buffer
    pooled[:used] = full
    return pooled

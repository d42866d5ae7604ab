"""Receive buffers: one scratch buffer for all connections, and a small pool for large frames.

The rule: an idle connection holds no buffer at all, and memory is only taken for bytes that have arrived. A
frame that merely *claims* to be large costs nothing until its bytes come.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

SCRATCH_BYTES = 64 * KIB
"""One read of a small request. Larger frames get a buffer of their own."""

GROWTH_BYTES_MIN = 256 * KIB
POOLED_BUFFER_BYTES_MAX = 16 * MIB
POOL_BYTES_MAX = 64 * MIB


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

    def take(self, size: int) -> bytearray:
        """A buffer to start receiving a frame of `size` bytes into; it may be smaller or larger than that."""
        buffers = self._buffers
        for index in range(len(buffers) - 1, -1, -1):
            if len(buffers[index]) >= size:
                buffer = buffers.pop(index)
                self._bytes -= len(buffer)
                return buffer
        return bytearray(min(_round_up(size), GROWTH_BYTES_MIN))

    @staticmethod
    def grown(buffer: bytearray, used: int, size: int) -> bytearray:
        """A buffer with room for more of a frame of `size` bytes, holding the first `used` bytes of `buffer`.

        It at most doubles, so that a sender makes us hold no more than twice what it really sent.
        """
        capacity = min(_round_up(size), max(len(buffer) * 2, GROWTH_BYTES_MIN))
        larger = bytearray(capacity)
        larger[:used] = memoryview(buffer)[:used]
        return larger

    def give(self, buffer: bytearray) -> None:
        """Keep the buffer for a later frame, unless the pool is full or the buffer is unusually large."""
        size = len(buffer)
        if size <= POOLED_BUFFER_BYTES_MAX and self._bytes + size <= POOL_BYTES_MAX:
            self._buffers.append(buffer)
            self._bytes += size


def _round_up(size: int) -> int:
    """The next power of two, so that pooled buffers fit frames of similar sizes."""
    return 1 << max(size - 1, 1).bit_length()

"""Splits the bytes of a connection into frames. Pure: the reader of the socket passes the bytes in.

The rule: an idle connection has no buffer, and memory is allocated only for bytes that have arrived. A frame that
merely *claims* to be large costs nothing until its bytes arrive.

`Frames` holds the bytes of one read: `feed`, then `next` until it is None. An incomplete frame is returned as a
`PartialFrame`, which has the memory that its next read needs and the buffer for that read.
"""

from __future__ import annotations

from typing import Final

from barnabas.wire.framing import API_KEY_BYTES, SIZE_BYTES, check_frame_size, check_message_size

KIB: Final = 1024
MIB: Final = 1024 * KIB

SCRATCH_BYTES: Final = 64 * KIB
"""One read of a small request. Larger frames get a buffer of their own."""
GROWTH_BYTES_MAX: Final = MIB
"""A buffer grows by as much as it holds already, but by no more than this, and a read takes no more: 8 MB were a
step of 6 ms, most of it for pages that are new to the process."""
POOLED_BUFFER_BYTES_MAX: Final = 16 * MIB
POOL_BYTES_MAX: Final = 32 * MIB


class BufferPool:
    """Receive buffers: one `scratch` for all connections, and large ones that are reused.

    To allocate and zero a megabyte costs more than to read it. Lifecycle: `take` for a frame, `give` once its response
    has been sent. A buffer must not be given back while a view of it is still in use.
    """

    __slots__ = ("_buffers", "_bytes", "scratch")

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._buffers: list[bytearray] = []
        self._bytes = 0

    def take(self, size: int) -> bytearray | None:
        """Return a buffer for a frame of `size` bytes that was given back before, at most twice as large, or None."""
        buffers = self._buffers
        for index in range(len(buffers) - 1, -1, -1):
            if size <= len(buffers[index]) <= 2 * size:
                buffer = buffers.pop(index)
                self._bytes -= len(buffer)
                return buffer
        return None

    def give(self, buffer: bytearray) -> None:
        """Keep the buffer for a later frame, unless the pool is full or the buffer is unusually large."""
        size = len(buffer)
        if SCRATCH_BYTES < size <= POOLED_BUFFER_BYTES_MAX and self._bytes + size <= POOL_BYTES_MAX:
            self._buffers.append(buffer)
            self._bytes += size


class PartialFrame:
    """A frame that has arrived in part.

    Lifecycle, until `missing` is 0: `needed` is the memory for the next read, and `target` its buffer; `received` counts
    the bytes that were read, and returns the unused memory.
    """

    __slots__ = ("_buffer", "_is_checked", "_pool", "_pooled", "_scratch_bytes", "size", "used")

    def __init__(self, start: memoryview, size: int, pool: BufferPool) -> None:
        """`start` are its first bytes, without the size field. Raises DecodeError."""
        self.size = size
        self.used = len(start)
        self._buffer = bytearray(start)
        self._pool = pool
        self._pooled: bytearray | None = None
        self._scratch_bytes = 0  # of the read in hand, if that goes by way of the scratch buffer
        self._is_checked = False
        self._check()

    @property
    def missing(self) -> int:
        """Bytes that have not arrived yet."""
        return self.size - self.used

    @property
    def needed(self) -> int:
        """Bytes of memory for the next read, beyond the bytes held: at most as many."""
        if self._is_little:
            return min(self.missing, SCRATCH_BYTES)
        if self.used < len(self._buffer):
            return 0
        if self._pooled is None:
            self._pooled = self._pool.take(self.size)
        if self._pooled is not None:
            return len(self._pooled) - self.used
        return self._growth

    def target(self) -> memoryview:
        """Return where the next read puts its bytes: released by `received`."""
        if self._is_little:
            self._scratch_bytes = min(self.missing, SCRATCH_BYTES)
            return self._pool.scratch[: self._scratch_bytes]
        if self.used == len(self._buffer):
            grown, self._pooled = self._pooled, None
            if grown is None:
                self._buffer.extend(bytes(self._growth))
            else:
                grown[: self.used] = self._buffer
                self._buffer = grown
        end = min(self.size, self.used + GROWTH_BYTES_MAX)
        return memoryview(self._buffer)[self.used : end]

    def received(self, count: int) -> int:
        """Add `count` bytes that were read; returns how many of the `needed` ones were not used. Raises DecodeError."""
        unused = 0
        if self._scratch_bytes:
            self._buffer += self._pool.scratch[:count]
            unused = self._scratch_bytes - count
            self._scratch_bytes = 0
        self.used += count
        self._check()
        return unused

    def frame(self) -> memoryview:
        """Return the whole frame, which may be written to."""
        assert not self.missing, "all of it has come"
        return memoryview(self._buffer)[: self.size]

    def give_back(self, *, is_answered: bool) -> None:
        """Return the buffer for other frames, once this frame is answered; unused memory in any case."""
        if self._pooled is not None:
            self._pool.give(self._pooled)
            self._pooled = None
        if is_answered:
            self._pool.give(self._buffer)

    @property
    def _is_little(self) -> bool:
        """True while the frame is read by way of the scratch buffer, since it has few bytes."""
        return self.used < SCRATCH_BYTES // 2

    @property
    def _growth(self) -> int:
        return min(self.missing, max(self.used, SCRATCH_BYTES), GROWTH_BYTES_MAX)

    def _check(self) -> None:
        if not self._is_checked and self.used >= API_KEY_BYTES:
            check_message_size(self._buffer, self.size)
            self._is_checked = True


class Frames:
    """Unprocessed bytes of a connection: frames of a client that pipelines, and a part of the next."""

    __slots__ = ("_data", "_position")

    def __init__(self) -> None:
        self._data = b""
        self._position = 0

    @property
    def has_size(self) -> bool:
        """Return whether the size field of the next frame has arrived."""
        return len(self._data) - self._position >= SIZE_BYTES

    @property
    def is_empty(self) -> bool:
        """True if no bytes are left."""
        return self._position == len(self._data)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        rest = self._data[self._position :]
        self._data = rest + data if rest else data
        self._position = 0

    def next(self, bytes_max: int) -> memoryview | None:
        """Return the next frame, which may be written to; None where it is not whole. Raises DecodeError for its size."""
        data, position = self._data, self._position
        if len(data) - position < SIZE_BYTES:
            return None
        size = check_frame_size(data, position, bytes_max)
        start = position + SIZE_BYTES
        end = start + size
        if end > len(data):
            return None
        if end == len(data):
            self._data, self._position = b"", 0
        else:
            self._position = end
        # A copy that may be written to: a leader sets the offsets of a batch in place.
        return memoryview(bytearray(data[start:end]))

    def only(self, bytes_max: int) -> memoryview | None:
        """Return the next frame if there are no other bytes, and its size is valid; otherwise None, and it stays."""
        data, start = self._data, self._position + SIZE_BYTES
        size = len(data) - start
        if size < 0 or size > bytes_max:
            return None
        if data[start - 4] << 24 | data[start - 3] << 16 | data[start - 2] << 8 | data[start - 1] != size:
            return None
        self._data, self._position = b"", 0
        return memoryview(bytearray(data[start:]))

    def partial(self, pool: BufferPool, bytes_max: int) -> PartialFrame:
        """Return the next, incomplete frame, of which at least the size field has arrived, and drop all bytes here.

        Raises DecodeError.
        """
        size = check_frame_size(self._data, self._position, bytes_max)
        start = memoryview(self._data)[self._position + SIZE_BYTES :]
        self._data, self._position = b"", 0
        return PartialFrame(start, size, pool)

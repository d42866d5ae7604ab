"""Compression and decompression piece by piece.

The rule: no piece but the first is larger than PIECE_BYTES, so a thread that creates a hundred of them holds the
interpreter briefly for each, never for a copy of the whole. The memory is returned to the system piece by piece, too: to
unmap the pages of 127 MB at once takes 10 to 20 ms, during which no other thread gets the interpreter.

A decompressor is a generator that yields after every MB. A thread that never pauses starves the event loop: the library
releases the interpreter for each piece, but for less time than another thread needs to wake up. The other thread misses its
turn, and waits for a whole switch interval again: up to 75 ms beside pieces of 150 us (Zstandard of zeros).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from io import BytesIO
from typing import NamedTuple, TypeAlias

from barnabas.records.errors import DecompressedTooLargeError

PIECE_BYTES = 256 << 10
FIRST_PIECE_BYTES = 1 << 20
"""Most batches are no larger, and are not copied once more: a MB of LZ4 takes 220 us in one piece, 310 in four."""
TURN_BYTES = 1 << 20
"""Bytes after which decompression yields; a piece is no larger."""
LARGE_BYTES = 8 << 20
"""From this size on the whole is given back piece by piece."""


Parts: TypeAlias = Generator[None, None, bytes]
"""A decompression: it yields where others may run, and returns the whole."""


class Compressor(NamedTuple):
    """A compressed stream under construction: `start`, then the result of `add` for each piece, then that of `finish`."""

    start: bytes
    add: Callable[[bytes | bytearray | memoryview], bytes]
    finish: Callable[[], bytes]


class Pieces:
    """Output that grows piece by piece, up to `bytes_max`; `add` raises DecompressedTooLargeError beyond it."""

    __slots__ = ("_codec_name", "_first", "_left", "_max", "_stream", "_turn_ends")

    def __init__(self, codec_name: str, bytes_max: int) -> None:
        self._codec_name = codec_name
        self._max = self._left = bytes_max
        self._turn_ends = bytes_max - TURN_BYTES  # at this many remaining bytes
        self._first: bytes | None = None
        self._stream: BytesIO | None = None

    def __del__(self) -> None:
        self._drop()

    def _drop(self) -> None:
        """Free the memory, unless the whole stream was returned."""
        stream, self._stream = self._stream, None
        if stream is not None:
            _give_back(stream)

    @property
    def next_size(self) -> int:
        """Largest size of the next piece in bytes; it may exceed the limit by one byte, to detect too large an output."""
        is_first = self._first is None and self._stream is None
        return min(self._left + 1, FIRST_PIECE_BYTES if is_first else PIECE_BYTES)

    def add(self, piece: bytes) -> bool:
        """Append a piece; returns whether it is time to let other tasks run."""
        self._left -= len(piece)
        if self._left < 0:
            self._drop()  # here, which is in a thread if it is much
            raise DecompressedTooLargeError(self._codec_name, self._max)
        if self._stream is not None:
            self._stream.write(piece)
        elif self._first is None:
            self._first = piece
        else:
            self._stream = BytesIO()
            self._stream.write(self._first)
            self._stream.write(piece)
        if self._left >= self._turn_ends:
            return False
        self._turn_ends = self._left - TURN_BYTES
        return True

    def join(self) -> bytes:
        """Return the whole, without copying it, thanks to BytesIO."""
        stream, self._stream = self._stream, None
        if stream is not None:
            return stream.getvalue()
        return self._first or b""


def whole(parts: Parts) -> bytes:
    """Decompress all at once. Raises as the codec does."""
    try:
        while True:
            next(parts)
    except StopIteration as end:
        body: bytes = end.value
        return body


class Large:
    """Reference to a large result, released after its last use."""

    __slots__ = ("_body",)

    def __init__(self, body: bytes) -> None:
        self._body = body

    def give_back(self) -> None:
        """Give the memory back piece by piece, best in a thread; not while there are other references to it."""
        body, self._body = self._body, b""
        if sys.getrefcount(body) > 2:  # this variable's, and that of the call
            return
        stream = BytesIO(body)
        del body
        _give_back(stream)


def _give_back(stream: BytesIO) -> None:
    """Free the content of a stream without other references, from its end on.

    `getvalue` cuts the memory off where `truncate` has set the end.
    """
    size = stream.seek(0, 2)
    while size > LARGE_BYTES:
        size -= PIECE_BYTES
        stream.truncate(size)
        stream.getvalue()

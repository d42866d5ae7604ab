"""What is compressed or decompressed piece by piece.

The rule: no piece is larger than PIECE_BYTES, so that a thread that makes a hundred of them holds the interpreter for
a moment each, never for a copy of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple

from barnabas.records.errors import DecompressedTooLargeError

PIECE_BYTES = 1 << 20


class Compressor(NamedTuple):
    """A compressed stream in the making: `start`, then what `add` returns for each piece, then what `finish` does."""

    start: bytes
    add: Callable[[bytes | bytearray | memoryview], bytes]
    finish: Callable[[], bytes]


class Pieces:
    """Output that grows piece by piece, up to `bytes_max`; `add` raises DecompressedTooLargeError beyond it."""

    __slots__ = ("_codec_name", "_first", "_left", "_max", "_stream")

    def __init__(self, codec_name: str, bytes_max: int) -> None:
        self._codec_name = codec_name
        self._max = self._left = bytes_max
        self._first: bytes | None = None
        self._stream: BytesIO | None = None

    @property
    def next_size(self) -> int:
        """How many bytes the next piece may have: one more than allowed, so that too many are noticed."""
        return min(self._left + 1, PIECE_BYTES)

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        self._left -= len(piece)
        if self._left < 0:
            raise DecompressedTooLargeError(self._codec_name, self._max)
        if self._stream is not None:
            self._stream.write(piece)
        elif self._first is None:
            self._first = piece
        else:
            self._stream = BytesIO()
            self._stream.write(self._first)
            self._stream.write(piece)

    def join(self) -> bytes:
        """Return the whole; without copying it, which is what BytesIO is good for."""
        if self._stream is not None:
            return self._stream.getvalue()
        return self._first or b""

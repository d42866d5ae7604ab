"""Splitting of a byte stream into JSON values, for streamed produce requests. Pure.

The rule: each byte is scanned once, however the stream is split, and the size of a value is bounded. White space separates
values; an array around all of them, with commas, is accepted, too.
"""

from __future__ import annotations

from collections.abc import Iterator

_SPACE = b" \t\r\n"
_QUOTE = 0x22
_OPEN, _CLOSE = b"{[", b"}]"
_LOOK_BYTES = 4096
"""Bytes of a string scanned for its end in one step, so that many escapes cost no more than their bytes."""


class ObjectError(ValueError):
    """The stream is not a sequence of JSON objects, or an object is too large."""


class Objects:
    """Lifecycle: `feed` for each piece, `finish` at the end."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._part = bytearray()
        self._depth = 0
        self._is_text = False
        self._is_escaped = False
        self._has_begun = False
        self._is_array = False
        self._is_over = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the objects that end in a piece. Raises ObjectError."""
        start = 0
        place, end = 0, len(piece)
        while place < end:
            if self._is_text:
                place = self._skip_text(piece, place)
                continue
            byte = piece[place]
            if not self._depth:
                if byte not in _SPACE:
                    self._begin(byte)
                start = place if self._depth else place + 1
            elif byte == _QUOTE:
                self._is_text = True
            elif byte in _OPEN:
                self._depth += 1
            elif byte in _CLOSE:
                self._depth -= 1
                if not self._depth:
                    self._part += piece[start : place + 1]
                    self._check_size()
                    yield bytes(self._part)
                    self._part.clear()
            place += 1
        if self._depth:
            self._part += piece[start:]
            self._check_size()

    def finish(self) -> None:
        """Raise ObjectError where the stream has ended within an object, or an array."""
        if self._depth or (self._is_array and not self._is_over):
            raise ObjectError("the body ends within an object")

    def _begin(self, byte: int) -> None:
        """Process the first byte of a value, or of the space between values."""
        if self._is_over:
            raise ObjectError("there is more after the array")
        if byte == 0x7B:
            self._depth = 1
        elif byte == 0x5B and not self._has_begun:
            self._is_array = True
        elif byte == 0x2C and self._is_array:
            pass
        elif byte == 0x5D and self._is_array:
            self._is_over = True
        else:
            raise ObjectError("the body is a sequence of JSON objects")
        self._has_begun = True

    def _skip_text(self, piece: bytes, place: int) -> int:
        """Return the place after the part of a text that a piece has."""
        if self._is_escaped:
            self._is_escaped = False
            return place + 1
        end = place + _LOOK_BYTES
        quote, escape = piece.find(b'"', place, end), piece.find(b"\\", place, end)
        if escape >= 0 and not 0 <= quote < escape:
            self._is_escaped = True
            return escape + 1
        if quote >= 0:
            self._is_text = False
            return quote + 1
        return min(end, len(piece))

    def _check_size(self) -> None:
        if len(self._part) > self._bytes_max:
            raise ObjectError(f"a record has at most {self._bytes_max} bytes of JSON")

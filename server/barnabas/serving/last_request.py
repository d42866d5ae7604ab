"""A heartbeat that a connection repeats is decoded once, and its response encoded once.

The rule: a request skips decoding only if it is equal byte by byte, but for its correlation id, and a response skips
encoding only if it equals the one before it. All other stages run for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.wire.headers import RequestHeader

BYTES_MAX: Final = 512
"""Bytes of a request, and of its response, that are kept for each connection: longer ones are not repeated."""
AFTER_CORRELATION_ID: Final = 8
"""Place in an encoded response, after its size and correlation id."""

_VERSION_END: Final = 4
_CORRELATION_ID_END: Final = 8


class LastRequest:
    """A decoded request, and the latest encoded response to it.

    `message` and `response` are never changed: `response` is None until one is kept. `body` are the bytes of the response
    after its correlation id, `codes` its error codes where they are counted.
    """

    __slots__ = ("_rest", "_size", "_start", "body", "codes", "header", "message", "response")

    def __init__(self, frame: memoryview, header: RequestHeader, message: Any) -> None:
        data = bytes(frame)
        self._size = len(data)
        self._start = data[:_VERSION_END]
        self._rest = data[_CORRELATION_ID_END:]
        self.header = header
        self.message = message
        self.response: Any = None
        self.body = b""
        self.codes: Mapping[int, int] = {}

    def is_repeated_by(self, frame: memoryview) -> bool:
        """Return whether a frame repeats the request; if so, `header` gets its correlation id."""
        if len(frame) != self._size:
            return False
        data = bytes(frame)
        if not (data.endswith(self._rest) and data.startswith(self._start)):
            return False
        self.header.correlation_id = int.from_bytes(
            data[_VERSION_END:_CORRELATION_ID_END], "big", signed=True
        )
        return True

    def keep(self, response: Any, body: bytes, codes: Mapping[int, int]) -> None:
        """Keep a response with its bytes after the correlation id, unless these are many."""
        if len(body) <= BYTES_MAX:
            self.response, self.body, self.codes = response, body, codes
        else:
            self.response = None

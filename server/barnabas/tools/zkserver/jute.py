"""The primitives of ZooKeeper's serialization ("jute"): big-endian numbers, length-prefixed buffers and strings. Pure.

A length of -1 is null, which is read as empty, except for the data of znodes: Apache Kafka distinguishes the two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from barnabas.tools.zkserver.errors import Code, RefusedError

T = TypeVar("T")

NULL = -1
"""The length of a buffer that is null."""

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


def truncated() -> RefusedError:
    """Return the error for truncated bytes."""
    return RefusedError(Code.MARSHALLING_ERROR, "the request ends before its last field")


class Reader:
    """Reads values in sequence. Every method raises RefusedError with MARSHALLING_ERROR at the end of the bytes."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def rest(self) -> int:
        """Number of bytes that have not been read."""
        return len(self._data) - self._position

    def _take(self, size: int) -> bytes:
        begin, end = self._position, self._position + size
        if size < 0 or end > len(self._data):
            raise truncated()
        self._position = end
        return self._data[begin:end]

    def int32(self) -> int:
        """Read 4 bytes, signed."""
        number: int = _INT.unpack(self._take(4))[0]
        return number

    def int64(self) -> int:
        """Read 8 bytes, signed."""
        number: int = _LONG.unpack(self._take(8))[0]
        return number

    def boolean(self) -> bool:
        """Read 1 byte."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes:
        """Read bytes with their length."""
        size = self.int32()
        return b"" if size == NULL else self._take(size)

    def data(self) -> bytes | None:
        """Read bytes with their length, None for null."""
        size = self.int32()
        return None if size == NULL else self._take(size)

    def string(self) -> str:
        """Read UTF-8 with its length in bytes."""
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as error:
            raise RefusedError(Code.MARSHALLING_ERROR, "a string is no UTF-8") from error

    def vector(self, read: Callable[[], T]) -> list[T]:
        """Read a number of values with their count."""
        count = self.int32()
        if count > self.rest:  # each takes at least a byte
            raise truncated()
        return [read() for _ in range(count)]


def encode_int(number: int) -> bytes:
    """Encode 4 bytes, signed."""
    return _INT.pack(number)


def encode_long(number: int) -> bytes:
    """Encode 8 bytes, signed."""
    return _LONG.pack(number)


def encode_bool(value: bool) -> bytes:
    """Encode 1 byte."""
    return b"\1" if value else b"\0"


def encode_buffer(data: bytes) -> bytes:
    """Encode bytes with their length."""
    return _INT.pack(len(data)) + data


def encode_data(data: bytes | None) -> bytes:
    """Encode bytes with their length, or null."""
    return _INT.pack(NULL) if data is None else encode_buffer(data)


def encode_string(text: str) -> bytes:
    """Encode UTF-8 with its length in bytes."""
    return encode_buffer(text.encode())


def encode_vector(values: Sequence[T], encode: Callable[[T], bytes]) -> bytes:
    """Encode values with their count."""
    return _INT.pack(len(values)) + join(encode(value) for value in values)


def join(parts: Iterable[bytes]) -> bytes:
    """Join encoded values."""
    return b"".join(parts)

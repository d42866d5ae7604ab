"""Framing of requests and responses on a connection: the size as an int32, then as many bytes.

The rule: a size is checked before memory is allocated for the frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.wire.errors import DecodeError
from barnabas.wire.primitives import Buffer

SIZE_BYTES: Final = 4
API_KEY_BYTES: Final = 2

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""The largest request that is accepted by default (socket.request.max.bytes)."""

MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest request without records, more than any that could succeed: 100 MiB of names take gigabytes once decoded."""

PRODUCE: Final = 0

_SIZE = Struct(">i")
_API_KEY = Struct(">h")


def check_frame_size(buf: Buffer, pos: int = 0, bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Return the size of the frame with its size field at `pos`; the size does not include the field.

    The caller guarantees that the four bytes of the field are in `buf`. Raises DecodeError if the size is negative or above
    `bytes_max`; the error names the protocol if the bytes look like another one (TLS, HTTP).
    """
    size: int = _SIZE.unpack_from(buf, pos)[0]
    if 0 <= size <= bytes_max:
        return size
    raise DecodeError(_explain(bytes(buf[pos : pos + SIZE_BYTES]), size, bytes_max), "frame size", pos)


def api_key_of(frame: bytes | bytearray | memoryview) -> int:
    """Return the API key at the start of a frame; -1 if the frame is too short for one."""
    if len(frame) < API_KEY_BYTES:
        return -1
    key: int = frame[0] << 8 | frame[1]
    return key if key < 1 << 15 else key - (1 << 16)


def check_message_size(frame: Buffer, size: int) -> None:
    """Check a frame of `size` bytes by its API key; `frame` contains at least the key.

    Raises DecodeError if the frame is larger than MESSAGE_BYTES_MAX and carries no records.
    """
    if size > MESSAGE_BYTES_MAX and (key := _API_KEY.unpack_from(frame)[0]) != PRODUCE:
        raise DecodeError(
            f"is {size} for API key {key}; only Produce may take more than {MESSAGE_BYTES_MAX}",
            "frame size",
            0,
        )


def _explain(start: bytes, size: int, bytes_max: int) -> str:
    if start[:2] == b"\x16\x03":
        return "looks like the start of a TLS handshake on a plaintext listener"
    if start in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI"):
        return "looks like an HTTP request"
    return f"is {size}, outside of 0 to {bytes_max}"

"""Reads responses from a stream: many small ones with one read, a large one directly into its buffer.

The rule: each response has a separate buffer, so that decoded values may be views of it.
"""

from __future__ import annotations

import trio

from barnabas.client.base_connection import RESPONSE_BYTES_MAX, SET_ASIDE_BYTES
from barnabas.network.dialing import CLOSED_BY_BROKER
from barnabas.wire.framing import SIZE_BYTES, check_frame_size

READ_BYTES = 64 << 10


class FrameReader:
    """The frames of a stream, one after the other; used by one task."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._ahead = b""
        self._at = 0
        # Trio's streams return new bytes for each read; below one of TCP is a socket that can fill a buffer.
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None

    async def next(self) -> memoryview:
        """Return the next frame without its size. Raises DecodeError, OSError, and the errors of the stream."""
        while len(self._ahead) - self._at < SIZE_BYTES:
            self._ahead = self._ahead[self._at :] + await self._receive(READ_BYTES)
            self._at = 0
        size = check_frame_size(self._ahead, self._at, RESPONSE_BYTES_MAX)
        start = self._at + SIZE_BYTES
        part = self._ahead[start : start + size]
        self._at = start + len(part)
        return memoryview(part if len(part) == size else await self._rest(part, size))

    async def _rest(self, part: bytes, size: int) -> bytearray:
        """Receive the rest of a frame that begins with `part`."""
        frame = bytearray(min(size, SET_ASIDE_BYTES))
        frame[: len(part)] = part
        at = len(part)
        while True:
            with memoryview(frame) as view:
                while at < len(view):
                    at += await self._fill(view[at:])
            if at == size:
                return frame
            frame += bytes(min(size - at, at))

    async def _fill(self, view: memoryview) -> int:
        """Receive into the start of `view`; returns the number of bytes."""
        if self._socket is not None:
            count = await self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError(CLOSED_BY_BROKER)
            return count
        data = await self._receive(min(len(view), 1 << 20))
        view[: len(data)] = data
        return len(data)

    async def _receive(self, bytes_max: int) -> bytes:
        data = await self._stream.receive_some(bytes_max)
        if not data:
            raise ConnectionResetError(CLOSED_BY_BROKER)
        return bytes(data)

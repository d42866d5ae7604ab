"""A client that sends and receives frames as bytes, and detects whether the broker has closed the connection."""

from __future__ import annotations

import socket
import struct
from typing import Any

from barnabas.wire import registry
from barnabas.wire.headers import decode_response, encode_request

TIMEOUT_SECONDS = 20


class RawClient:
    """One connection. Lifecycle: a context manager."""

    def __init__(self, bootstrap: str, sock: socket.socket | None = None) -> None:
        """Connect, or take a connected socket."""
        host, _, port = bootstrap.rpartition(":")
        self.socket = sock or socket.create_connection((host, int(port)), TIMEOUT_SECONDS)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_frame(self, content: bytes) -> None:
        """Send bytes, preceded by their size."""
        self.socket.sendall(struct.pack(">i", len(content)) + content)

    def frame(self) -> bytes | None:
        """Return the next frame without its size; None if the broker has closed the connection."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data

    def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request; None if the broker closes the connection instead."""
        key = registry.key_of(type(request).__name__.removesuffix("Request"))
        self.socket.sendall(
            b"".join(bytes(chunk) for chunk in encode_request(key, version, 1, "raw", request))
        )
        answer = self.frame()
        return None if answer is None else decode_response(memoryview(answer), key, version)[1]

    def is_closed(self) -> bool:
        """Wait until the broker has closed the connection; false if it sends something instead."""
        return self.frame() is None

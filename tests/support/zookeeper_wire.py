"""A low-level client of ZooKeeper's wire protocol: raw requests, raw responses."""

from __future__ import annotations

import socket
import struct
from typing import Any

from barnabas.tools.zkserver.acl import OPEN
from barnabas.tools.zkserver.jute import (
    Reader,
    encode_bool,
    encode_buffer,
    encode_int,
    encode_long,
    encode_string,
    encode_vector,
)
from barnabas.tools.zkserver.requests import Op, encode_acl

PING_XID = -2


def create(path: str, data: bytes = b"", flags: int = 0, acl: Any = OPEN) -> bytes:
    """The body of Create, Create2 and CreateContainer."""
    return encode_string(path) + encode_buffer(data) + encode_vector(acl, encode_acl) + encode_int(flags)


def path_and_version(path: str, version: int = -1) -> bytes:
    """The body of Delete and Check."""
    return encode_string(path) + encode_int(version)


def set_data(path: str, data: bytes, version: int = -1) -> bytes:
    """The body of SetData."""
    return encode_string(path) + encode_buffer(data) + encode_int(version)


def read(path: str, watch: bool = False) -> bytes:
    """The body of Exists, GetData and GetChildren."""
    return encode_string(path) + encode_bool(watch)


def multi(*parts: tuple[int, bytes]) -> bytes:
    """The body of Multi and MultiRead."""
    return (
        b"".join(encode_int(op) + encode_bool(False) + encode_int(-1) + body for op, body in parts)
        + encode_int(-1)
        + encode_bool(True)
        + encode_int(-1)
    )


class WireClient:
    """A connection with its session. `ask` returns (error code, body) of a response; notifications are stored."""

    def __init__(
        self,
        address: str,
        session: tuple[int, bytes] = (0, bytes(16)),
        seen: int = 0,
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._xid = 0
        self.zxid = 0
        self.notifications: list[tuple[int, str]] = []
        try:
            self._begin(session, seen, timeout_ms)
        except ConnectionError:
            self.close()
            raise

    def _begin(self, session: tuple[int, bytes], seen: int, timeout_ms: int) -> None:
        session_id, password = session
        self._send(
            encode_int(0) + encode_long(seen) + encode_int(timeout_ms) + encode_long(session_id)
            + encode_buffer(password) + encode_bool(False)
        )  # fmt: skip
        reader = Reader(self._receive())
        reader.int32()
        self.timeout_ms = reader.int32()
        self.session = reader.int64(), reader.buffer()

    def _send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server has closed the connection")
            data += part
        return data

    def ask(self, op: Op, body: bytes = b"") -> tuple[int, bytes]:
        """Send one request; returns (error code, body) of its response."""
        self._xid += 1
        xid = PING_XID if op == Op.PING else self._xid
        self._send(encode_int(xid) + encode_int(op) + body)
        while True:
            frame = self._receive()
            reader = Reader(frame)
            answered, zxid, code = reader.int32(), reader.int64(), reader.int32()
            if answered == -1:
                event, _, path = reader.int32(), reader.int32(), reader.string()
                self.notifications.append((event, path))
                continue
            assert answered == xid
            self.zxid = zxid
            return code, frame[16:]

    def told(self) -> list[tuple[int, str]]:
        """Return the notifications of watches so far, after a round trip that follows them."""
        self.ask(Op.PING)
        told, self.notifications = self.notifications, []
        return told

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self) -> None:
        """End the session."""
        self.ask(Op.CLOSE_SESSION)
        self.close()

    def close(self) -> None:
        """Close the connection, but not the session."""
        self._socket.close()

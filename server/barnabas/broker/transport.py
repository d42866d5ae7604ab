"""Bytes in and out of one accepted socket, without a stream abstraction in between.

The rule: a call that would block waits through Trio; a call that need not block does not. Files are sent by the
kernel (`sendfile`); only the framing around them passes through Python.
"""

from __future__ import annotations

import os
import socket

import trio

from barnabas.wire.regions import Chunk, FileRegion

_JOIN_BYTES_MAX = 256 * 1024
"""Chunks are joined for one `send` up to this size; larger ones are sent as they are, without a copy."""

_READ_BYTES_MAX = 16 * 1024
"""Regions up to this size are read and joined too: two system calls less are worth more than a copy."""


class PlainTransport:
    """An accepted, non-blocking TCP socket. Owned by one connection task, which closes it."""

    __slots__ = ("_eager", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        # Whether the last read found data waiting: a pipelining client's next request is usually there already,
        # a one-at-a-time client's never is, and guessing wrong costs a system call.
        self._eager = True

    async def receive_into(self, view: memoryview) -> int:
        """Read at least one byte into `view`; 0 means that the peer has closed.

        Nothing is awaited between the read and the return, so `view` may be shared with other connections.
        """
        if self._eager:
            await trio.lowlevel.checkpoint()
            try:
                return self._socket.recv_into(view)
            except BlockingIOError:
                self._eager = False
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                count = self._socket.recv_into(view)
            except BlockingIOError:
                continue
            self._eager = count == len(view)
            return count

    async def send(self, chunks: list[Chunk]) -> None:
        """Send all chunks in order; raises OSError when the peer is gone."""
        pending: list[bytes | bytearray | memoryview] = []
        pending_bytes = 0
        for chunk in chunks:
            if isinstance(chunk, FileRegion):
                if chunk.size > _READ_BYTES_MAX:
                    if pending:
                        await self._send_bytes(pending, more=True)
                        pending, pending_bytes = [], 0
                    await self._send_region(chunk)
                    continue
                chunk = _read(chunk)
            size = len(chunk)
            if pending_bytes + size > _JOIN_BYTES_MAX and pending:
                await self._send_bytes(pending, more=True)
                pending, pending_bytes = [], 0
            pending.append(chunk)
            pending_bytes += size
        if pending:
            await self._send_bytes(pending, more=False)

    async def _send_bytes(self, pieces: list[bytes | bytearray | memoryview], *, more: bool) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        flags = socket.MSG_MORE if more else 0
        try:
            sent = self._socket.send(data, flags)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        with memoryview(data) as view:
            while sent < len(view):
                await trio.lowlevel.wait_writable(self._socket)
                try:
                    sent += self._socket.send(view[sent:], flags)
                except BlockingIOError:
                    continue

    async def _send_region(self, region: FileRegion) -> None:
        position, remaining = region.position, region.size
        target = self._socket.fileno()
        while remaining:
            try:
                count = os.sendfile(target, region.fd, position, remaining)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
                continue
            if count == 0:
                raise _ended_early(position, remaining)
            position += count
            remaining -= count

    def close(self) -> None:
        """Close the socket; waiting tasks are woken with ClosedResourceError."""
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


def _read(region: FileRegion) -> bytes:
    data = os.pread(region.fd, region.size, region.position)
    if len(data) < region.size:
        raise _ended_early(region.position + len(data), region.size - len(data))
    return data


def _ended_early(position: int, missing: int) -> OSError:
    """The file is shorter than planned: the framing has promised more, so this connection is lost."""
    return OSError(f"segment ended {missing} bytes early at position {position}")

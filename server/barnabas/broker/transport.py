"""Bytes in and out of one accepted socket, without a stream abstraction in between.

The rule: a call that would block waits through Trio; a call that need not block does not. Files are sent by the
kernel (`sendfile`); only the framing around them passes through Python.
"""

from __future__ import annotations

import os
import socket
from typing import Protocol

import trio

from barnabas.wire.regions import Chunk, FileRegion

_JOIN_BYTES_MAX = 256 * 1024
"""Chunks are joined for one `send` up to this size; larger ones are sent as they are, without a copy."""

_READ_BYTES_MAX = 16 * 1024
"""Regions up to this size are read and joined too: two system calls less are worth more than a copy."""


class Reader(Protocol):
    """Who is told how the other end reads."""

    def fell_behind(self, size: int) -> None:
        """Call when the socket is full and up to `size` bytes of a response stay in memory."""

    def took_some(self) -> None:
        """Call when the socket has taken more."""

    def caught_up(self) -> None:
        """Call when the socket has taken all of it."""


class PlainTransport:
    """An accepted, non-blocking TCP socket. Owned by one connection task, which closes it."""

    __slots__ = ("_behind", "_eager", "_reader", "_socket")

    def __init__(self, sock: socket.socket, reader: Reader | None = None) -> None:
        self._socket = sock
        self._reader = reader
        self._behind = False  # whether the socket did not take a response at once
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

    async def wait_readable(self) -> None:
        """Wait until there is something to read, or the peer has closed."""
        await trio.lowlevel.wait_readable(self._socket)

    def receive_now(self, view: memoryview) -> int | None:
        """Read what is there into `view`: 0 means that the peer has closed, None that there is nothing yet."""
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            return None

    async def send(self, chunks: list[Chunk]) -> None:
        """Send all chunks in order; raises OSError when the peer is gone."""
        pending: list[bytes | bytearray | memoryview] = []
        pending_bytes = 0
        for chunk in chunks:
            if isinstance(chunk, FileRegion):
                if chunk.size > _READ_BYTES_MAX:
                    if pending:
                        await self._send_bytes(pending, chunks, more=True)
                        pending, pending_bytes = [], 0
                    await self._send_region(chunk, chunks)
                    continue
                chunk = _read(chunk)
            size = len(chunk)
            if pending_bytes + size > _JOIN_BYTES_MAX and pending:
                await self._send_bytes(pending, chunks, more=True)
                pending, pending_bytes = [], 0
            pending.append(chunk)
            pending_bytes += size
        if pending:
            await self._send_bytes(pending, chunks, more=False)
        if self._behind:
            self._behind = False
            if self._reader is not None:
                self._reader.caught_up()

    async def _send_bytes(
        self, pieces: list[bytes | bytearray | memoryview], chunks: list[Chunk], *, more: bool
    ) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        flags = socket.MSG_MORE if more else 0
        try:
            sent = self._socket.send(data, flags)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        self._fell_behind(chunks, len(data))
        with memoryview(data) as view:
            while sent < len(view):
                await trio.lowlevel.wait_writable(self._socket)
                try:
                    sent += self._socket.send(view[sent:], flags)
                except BlockingIOError:
                    continue
                self._took_some()

    def _fell_behind(self, chunks: list[Chunk], size: int) -> None:
        """Tell the reader how much of a response stays in memory: at least the `size` bytes in hand."""
        if not self._behind and self._reader is not None:
            in_memory = sum(len(chunk) for chunk in chunks if not isinstance(chunk, FileRegion))
            self._reader.fell_behind(max(in_memory, size))
        self._behind = True

    def _took_some(self) -> None:
        if self._behind and self._reader is not None:
            self._reader.took_some()

    async def _send_region(self, region: FileRegion, chunks: list[Chunk]) -> None:
        position, remaining = region.position, region.size
        target = self._socket.fileno()
        while remaining:
            try:
                count = os.sendfile(target, region.fd, position, remaining)
            except BlockingIOError:
                self._fell_behind(chunks, 0)
                await trio.lowlevel.wait_writable(self._socket)
                continue
            if count == 0:
                raise _ended_early(position, remaining)
            position += count
            remaining -= count
            self._took_some()

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

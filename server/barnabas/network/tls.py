"""Connections with TLS: an accepted socket behind Python's ssl, as `network.transport.Transport`.

The rule: tasks wait for the socket, never for OpenSSL; records of at most 16 KiB are encrypted and sent piece by piece,
so that a connection holds no more than one of them in addition to its response. Handshakes run in threads: a signature
takes milliseconds.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from barnabas.network.sockets import PlainTransport
from barnabas.wire.regions import Chunk, FileRegion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.network.tls_context import ServerTls

RECORD_BYTES_MAX: Final = 17 * 1024  # with its header and padding
PIECE_BYTES: Final = 64 * 1024
"""Bytes that are given to OpenSSL at a time: four records."""
SENT_BEFORE_A_TURN: Final = 256 * 1024
"""Bytes after which other tasks have their turn: encrypting them takes about 0.2 ms."""
RECEIVED_PER_TURN: Final = 128 * 1024


class TlsTransport(PlainTransport):
    """A connection with TLS. Lifecycle: created from an accepted one, `handshake`, then as any other."""

    __slots__ = ("_suites", "_tls")

    def __init__(self, accepted: PlainTransport, tls: ServerTls) -> None:
        """Take over the socket of `accepted`, which must not be used any longer. Raises OSError."""
        sock, wait_sets, ready = accepted.handed_over()
        self._tls = tls.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        super().__init__(self._tls, accepted.local_address, accepted.peer_address, wait_sets)
        self._ready = ready  # which knows the descriptor already
        self._suites = tls.suites

    async def handshake(self, in_thread: Callable[[Callable[[], None]], Awaitable[None]]) -> bytes | None:
        """Agree with the client on keys, and return its certificate (DER), None without one.

        `in_thread` runs a function in a thread. Raises ssl.SSLError, OSError.
        """
        while True:
            await trio.lowlevel.wait_readable(self._tls)
            must_write = False
            try:
                await in_thread(self._tls.do_handshake)
                break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLWantWriteError:
                must_write = True
            if must_write:
                await trio.lowlevel.wait_writable(self._tls)
        cipher = self._tls.cipher()
        if cipher is not None and cipher[1] == "TLSv1.3" and cipher[0] not in self._suites:
            raise ssl.SSLError(f"the client prefers {cipher[0]}, which is not in ssl.cipher.suites")
        return self._tls.getpeercert(binary_form=True)

    async def wait_readable(
        self, *, soon: bool = True, is_crowded: bool = False, arrived: Callable[[], bool] | None = None
    ) -> None:
        """Wait until data may be readable, or the peer has closed."""
        if self._tls.pending():
            await trio.lowlevel.checkpoint()
        else:
            await super().wait_readable(soon=soon, is_crowded=is_crowded, arrived=arrived)

    def expect(self, size: int) -> None:
        """Announce that at least `size` more bytes are expected, up to a record of which OpenSSL may have already."""
        super().expect(size - RECORD_BYTES_MAX)

    def is_only_readable(self, seconds: float) -> bool:
        """Return whether this connection, and no other, is readable; polls for up to `seconds`."""
        return not self._tls.pending() and super().is_only_readable(seconds)

    def receive_now(self, view: memoryview) -> int | None:
        """Read and decrypt available data into `view`: 0 means that the peer has closed, None that no data is available."""
        room, count = min(len(view), RECEIVED_PER_TURN), 0
        while count < room:
            try:
                part = self._tls.recv_into(view[count:room])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return count or None
            except ssl.SSLError:
                if count:
                    return count  # the data before are complete; the error is raised again
                raise
            if not part:
                return count
            count += part
        return count

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypt and send all of it if it is small and the socket accepts it, else nothing. Raises OSError."""
        if len(data) > PIECE_BYTES:
            return 0
        try:
            return self._tls.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0  # OpenSSL has taken it, and requires the same data again

    async def send(self, chunks: list[Chunk]) -> None:
        """Encrypt and send all chunks in order; raises OSError when the peer has disconnected."""
        pending: list[bytes | bytearray | memoryview] = []
        pending_bytes = sent = 0
        for chunk in chunks:
            for piece in _pieces(chunk):
                if pending_bytes + len(piece) > PIECE_BYTES and pending:
                    await self._send_piece(pending, chunks)
                    sent += pending_bytes
                    pending, pending_bytes = [], 0
                    if sent >= SENT_BEFORE_A_TURN:
                        sent = 0
                        await trio.lowlevel.checkpoint()
                pending.append(piece)
                pending_bytes += len(piece)
        if pending:
            await self._send_piece(pending, chunks)
        self._caught_up()

    async def _send_piece(self, pieces: list[bytes | bytearray | memoryview], chunks: list[Chunk]) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not len(data):
            return
        while True:
            must_read = False
            try:
                # OpenSSL remembers how far it has come: after WANT_WRITE it gets the same data again.
                self._tls.send(data)
                break
            except ssl.SSLWantWriteError:
                self._fell_behind(chunks, len(data))
            except ssl.SSLWantReadError:
                must_read = True
            if must_read:
                await trio.lowlevel.wait_readable(self._tls)
            else:
                await trio.lowlevel.wait_writable(self._tls)
        self._took_some()

    def close(self) -> None:
        """Say goodbye to the peer if it listens, and close the socket."""
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        super().close()


def _pieces(chunk: Chunk) -> list[bytes | bytearray | memoryview] | _RegionPieces:
    """Yield a chunk in pieces; those of a file are read on demand."""
    if isinstance(chunk, FileRegion):
        return _RegionPieces(chunk)
    if len(chunk) <= PIECE_BYTES:
        return [chunk]
    view = memoryview(chunk)
    return [view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES)]


class _RegionPieces:
    """The content of a region of a file, read piece by piece."""

    __slots__ = ("_left", "_position", "_region")

    def __init__(self, region: FileRegion) -> None:
        self._region = region
        self._position = region.position
        self._left = region.size

    def __iter__(self) -> _RegionPieces:
        return self

    def __next__(self) -> bytes:
        if not self._left:
            raise StopIteration
        data = os.pread(self._region.fd, min(self._left, PIECE_BYTES), self._position)
        if not data:
            raise OSError(f"segment ended {self._left} bytes early at position {self._position}")
        self._position += len(data)
        self._left -= len(data)
        return data

"""The operating system's network: sockets that are bound, accepted and dialled, without a stream in between.

The rule: a call that would block waits through Trio; a call that need not block does not. Files are sent by the
kernel (`sendfile`); only the framing around them passes through Python.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from barnabas.network.dialing import dial
from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.transport import EVERYWHERE, Address, UnknownHostError
from barnabas.network.wait_set import WaitSets
from barnabas.system.files import MORE_FOLLOWS, send_file
from barnabas.wire.regions import Chunk, FileRegion

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.transport import Reader

BACKLOG: Final = 1024
TOGETHER_BYTES: Final = 64 * 1024
"""Bytes of a much larger request that one wait covers; the end of the connection is noticed immediately."""
_JOIN_BYTES_MAX: Final = 256 * 1024
"""Chunks are joined for one `send` up to this size; larger ones are sent directly, without a copy."""

_IN_MEMORY_BYTES_MAX: Final = 64 * 1024
"""A small answer is joined up to this size, to be sent without waiting for its turn."""

_READ_BYTES_MAX: Final = 16 * 1024
"""Regions up to this size are read and joined too: two system calls less are worth more than a copy."""


class PlainTransport:
    """An accepted, non-blocking TCP socket, as `network.transport.Transport`."""

    __slots__ = (
        "_awaited",
        "_behind",
        "_reader",
        "_ready",
        "_socket",
        "_wait_sets",
        "local_address",
        "peer_address",
    )

    def __init__(
        self,
        sock: socket.socket,
        local: Address = ("", 0),
        peer: Address = ("", 0),
        wait_sets: WaitSets | None = None,
        ready: ReadySockets | None = None,
    ) -> None:
        """Without `wait_sets` the number of connections that return from waiting in one turn is not limited.

        Without `ready` sockets `is_only_readable` is always false.
        """
        self.local_address = local
        self.peer_address = peer
        self._socket = sock
        self._reader: Reader | None = None
        self._awaited = 1  # minimum of received bytes that wakes a waiting task
        self._behind = False  # whether the socket did not take a response at once
        self._wait_sets = wait_sets
        self._ready = ready
        if ready is not None:
            ready.add(sock.fileno())

    def handed_over(self) -> tuple[socket.socket, WaitSets | None, ReadySockets | None]:
        """Return the socket and where it is waited for, to another transport, which closes it from then on."""
        return self._socket, self._wait_sets, self._ready

    def report_to(self, reader: Reader) -> None:
        """Tell `reader` how the peer reads."""
        self._reader = reader

    async def wait_readable(
        self, *, soon: bool = True, is_crowded: bool = False, arrived: Callable[[], bool] | None = None
    ) -> None:
        """Wait until data may be readable, or the peer has closed."""
        if (is_crowded or not soon) and self._wait_sets is not None:
            wait_set = self._wait_sets.active if soon else self._wait_sets.inactive
            await wait_set.wait_readable(self._socket.fileno(), arrived)
        else:
            with suppress(trio.ClosedResourceError):  # it was closed, or only woken
                await trio.lowlevel.wait_readable(self._socket)
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError

    def is_only_readable(self, seconds: float) -> bool:
        """Return whether this connection, and no other, is readable; polls for up to `seconds`."""
        return self._ready is not None and self._ready.is_only_one(self._socket.fileno(), seconds)

    def expect(self, size: int) -> None:
        """Announce that at least `size` more bytes are expected.

        A peer that sends a large request in small pieces, as TLS does with its records, would wake its task for each.
        """
        awaited = TOGETHER_BYTES if size >= 2 * TOGETHER_BYTES else 1
        if awaited != self._awaited:
            self._awaited = awaited
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)

    def wake(self) -> None:
        """Make a task that waits for data return from its wait."""
        trio.lowlevel.notify_closing(self._socket)  # `wait_readable` sees that it is not closed
        if self._wait_sets is not None:
            self._wait_sets.wake(self._socket.fileno())

    def receive_now(self, view: memoryview) -> int | None:
        """Read available data into `view`: 0 means that the peer has closed, None that no data is available."""
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            return None

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send as much as the socket accepts; returns the number of bytes. Raises OSError if the peer has disconnected."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def send(self, chunks: list[Chunk]) -> None:
        """Send all chunks in order; raises OSError when the peer has disconnected."""
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
        self._caught_up()

    def _caught_up(self) -> None:
        if self._behind:
            self._behind = False
            if self._reader is not None:
                self._reader.caught_up()

    async def _send_bytes(
        self, pieces: list[bytes | bytearray | memoryview], chunks: list[Chunk], *, more: bool
    ) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        flags = MORE_FOLLOWS if more else 0
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
        """Report to the reader how much of a response stays in memory: at least `size` bytes."""
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
            count = -1
            try:
                count = send_file(target, region.fd, position, remaining)
            except BlockingIOError:
                self._fell_behind(chunks, 0)
            if count < 0:
                await trio.lowlevel.wait_writable(self._socket)
                continue
            if count == 0:
                raise _ended_early(position, remaining)
            position += count
            remaining -= count
            self._took_some()

    def reset(self) -> None:
        """Make the close of this transport an error (RST) for the peer."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        """Close the socket; waiting tasks are woken with ClosedResourceError."""
        trio.lowlevel.notify_closing(self._socket)
        if self._wait_sets is not None:
            self._wait_sets.forget(self._socket.fileno())
        self._socket.close()
        self._reader = None  # so that both go at once, and not when all objects are collected


def in_memory(chunks: list[Chunk]) -> bytes | bytearray | memoryview | None:
    """Return chunks as one, with the regions among them read; None if these are too large. Raises OSError."""
    first, size = chunks[0], 0
    if len(chunks) == 1 and not isinstance(first, FileRegion):
        return first
    for chunk in chunks:
        size += len(chunk)
        if isinstance(chunk, FileRegion) and chunk.size > _READ_BYTES_MAX:
            return None
    if size > _IN_MEMORY_BYTES_MAX:
        return None
    return joined(chunks)


def joined(chunks: list[Chunk]) -> bytes:
    """Return chunks of any size as one, with the regions among them read. Raises OSError."""
    return b"".join([_read(chunk) if isinstance(chunk, FileRegion) else chunk for chunk in chunks])


def _read(region: FileRegion) -> bytes:
    data = os.pread(region.fd, region.size, region.position)
    if len(data) < region.size:
        raise _ended_early(region.position + len(data), region.size - len(data))
    return data


def _ended_early(position: int, missing: int) -> OSError:
    """The file is shorter than planned: the framing has promised more, so this connection is lost."""
    return OSError(f"segment ended {missing} bytes early at position {position}")


class SocketAcceptor:
    """One bound socket, as `network.transport.Acceptor`."""

    def __init__(self, sock: socket.socket, wait_sets: WaitSets, ready: ReadySockets) -> None:
        self._socket = sock
        self._wait_sets = wait_sets
        self._ready = ready

    @property
    def address(self) -> Address:
        """The address that is really bound."""
        return _address(self._socket.getsockname())

    def listen(self) -> None:
        """Start to accept connections. Raises OSError."""
        self._socket.listen(BACKLOG)

    async def wait_acceptable(self) -> None:
        """Wait until there may be a connection to accept."""
        await trio.lowlevel.wait_readable(self._socket)

    def accept_now(self) -> PlainTransport | None:
        """Return the next connection; None if none is waiting. Raises OSError."""
        try:
            accepted, peer = self._socket.accept()
        except BlockingIOError:
            return None
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return PlainTransport(
                accepted, _address(accepted.getsockname()), _address(peer), self._wait_sets, self._ready
            )
        except BaseException:
            accepted.close()
            raise

    def close(self) -> None:
        """Stop listening."""
        with suppress(RuntimeError):  # outside an event loop no task waits
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


class SocketNetwork:
    """The network of this machine, as `network.transport.Network`."""

    def __init__(self) -> None:
        self._wait_sets = WaitSets()
        self._ready = ReadySockets()

    def host_name(self) -> str:
        """Return the name by which other machines know this one."""
        return socket.getfqdn()

    def bind(self, host: str, port: int) -> list[SocketAcceptor]:
        """Bind all addresses of a host. Raises OSError, with UnknownHostError for an unknown host."""
        return [SocketAcceptor(sock, self._wait_sets, self._ready) for sock in bind_sockets(host, port)]

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """Open a TCP connection. Raises OSError."""
        return await dial(host, port)


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind all addresses of a host, for `listen`. Raises OSError, with UnknownHostError for an unknown host.

    Until they listen, clients are refused; a port on which another program listens is an error immediately.
    """
    if not host or host in EVERYWHERE:
        return [_bound_everywhere(host, port)]
    # For text, the tables for international names would be imported.
    name = host.encode() if host.isascii() else host
    try:
        infos = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise UnknownHostError(error.errno, error.strerror) from error
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(infos):
        if sockets and port == 0:
            # All addresses of one name share the port that the first was given.
            address = (address[0], sockets[0].getsockname()[1], *address[2:])
        try:
            sockets.append(_bound(family, address))
        except OSError as error:
            failure = error
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                break
    if failure is not None and (
        not sockets or failure.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    ):
        for sock in sockets:
            sock.close()
        raise failure
    return sockets


def _bound_everywhere(host: str, port: int) -> socket.socket:
    """Return one socket for all interfaces, IPv4 and IPv6 where the machine has both."""
    if host != "0.0.0.0" and socket.has_dualstack_ipv6():
        return _bound(socket.AF_INET6, ("", port), also_ipv4=True)
    return _bound(socket.AF_INET, ("", port))


def _bound(family: int, address: tuple[Any, ...], *, also_ipv4: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if address[1]:
            # connections of an earlier broker that are not quite closed do not matter; a port chosen by the system must
            # be exclusive
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not also_ipv4)
        sock.bind(address)
        # Linux requires it of both sockets: so a restarted broker can bind the port that the system chose
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _address(name: tuple[Any, ...] | None) -> Address:
    if not name:  # macOS has none for a connection closed by the peer before it was accepted
        raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))
    return name[0], name[1]

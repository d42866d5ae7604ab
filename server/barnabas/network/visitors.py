"""Connections of the few HTTP clients of a broker: a scraper of metrics, a test with the control API.

The rule: a visitor, however slow, delays only itself. Their number is limited; at the limit, the longest idle connection is
closed for a new one.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.errors import lacks_files
from barnabas.network.bodies import BodyPool
from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.transport import EVERYWHERE, host_and_port, is_loopback, url_address

if TYPE_CHECKING:
    from socket import socket
    from ssl import SSLContext

log = logging.getLogger(__name__)

BACKOFF_SECONDS = 0.1
"""Seconds without accepting after a failure for lack of descriptors."""
HANDSHAKE_SECONDS_MAX = 10.0
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class AddressError(Exception):
    """An address cannot be served; the text is for the operator."""


def bind(host: str, port: int, what: str, *, unguarded: str = "") -> list[socket]:
    """Bind an address for `what`, port 0 for a free one.

    `unguarded` is the error if other machines can reach the address, with {} for the address; empty if they may. Raises
    AddressError.
    """
    where = url_address(host, port)
    with _explained(what, where):
        sockets = bind_sockets(host, port)
    if unguarded and not all(is_loopback(sock.getsockname()[0]) for sock in sockets):
        for sock in sockets:
            sock.close()
        raise AddressError(unguarded.format(where))
    return sockets


def listen(sockets: Iterable[socket], what: str) -> None:
    """Make bound sockets accept connections for `what`.

    Raises AddressError: another program may have bound the same port, which only the second `listen` detects.
    """
    for sock in sockets:
        with _explained(what, url_address(*sock.getsockname()[:2])):
            sock.listen(BACKLOG)


@contextmanager
def _explained(what: str, where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AddressError(f"cannot serve {what} on {where}: {error.strerror or error}") from error


def url_of(sockets: Sequence[socket], scheme: str = "http") -> str:
    """Return the URL of a server, once its sockets are bound."""
    host, port = sockets[0].getsockname()[:2]
    return f"{scheme}://{url_address('localhost' if host in EVERYWHERE else host, port)}"


class Address(NamedTuple):
    """Address of a server to be; with `tls`, TLS is spoken."""

    host: str
    port: int
    tls: SSLContext | None = None


def read_address(text: str, what: str, *, certificate: str = "", key: str = "") -> Address:
    """Read `HOST:PORT` of `what`, and the PEM files of its certificate and key, if they are set. Raises AddressError."""
    where = host_and_port(text.strip())
    if where is None:
        raise AddressError(f"the address of {what}, {text!r}, is not of the form HOST:PORT")
    return Address(*where, _server_context(certificate, key, what) if certificate else None)


def _server_context(certificate: str, key: str, what: str) -> SSLContext:
    import ssl  # not by a broker that serves without TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key or None, "")
    except OSError as error:
        raise AddressError(f"the certificate of {what}, {certificate!r}: {error}") from None
    return context


class Site:
    """Bound address of a server, and its visitors. Lifecycle: bound by its creation, `serve` in a task."""

    def __init__(self, address: Address, what: str, *, unguarded: str = "") -> None:
        """Bind the address, as `bind` does. Raises AddressError."""
        self._what = what
        self._tls = address.tls
        self.sockets = bind(address.host, address.port, what, unguarded=unguarded)
        # needed also while the server ends, when its sockets are closed
        scheme = "https" if self.has_tls else "http"
        host, self.port = self.sockets[0].getsockname()[:2]
        self.url = url_of(self.sockets, scheme)
        self.local_url = f"{scheme}://{url_address(EVERYWHERE.get(host, host), self.port)}"
        """URL of the server for this process: at an address that it has bound, so that it can be no other server's."""
        self.hosts = {sock.getsockname()[0] for sock in self.sockets}
        """Addresses that are bound."""

    @property
    def has_tls(self) -> bool:
        """True where TLS is spoken."""
        return self._tls is not None

    @property
    def is_local(self) -> bool:
        """True where this machine alone can connect."""
        return all(map(is_loopback, self.hosts))

    async def serve(
        self,
        count_max: int,
        answer: Callable[[Visitor], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept visitors until cancelled; closes the sockets then. Raises AddressError."""
        listen(self.sockets, self._what)
        task_status.started()
        await Visitors(self._what, count_max, answer, self._tls).serve(self.sockets)

    def close(self) -> None:
        """Close the sockets of a site that does not serve."""
        for sock in self.sockets:
            sock.close()


class Visitor:
    """A connection. `moved_s` is the time at which a byte was last received or sent; `is_waiting`: a response is being
    built.

    `address` is that of the peer's machine, as text; empty for a peer that has already disconnected.

    `bodies` is the memory that the bodies of its requests share with those of all visitors of the address.
    """

    __slots__ = ("address", "bodies", "is_waiting", "moved_s", "scope", "stream")

    def __init__(self, stream: trio.abc.Stream, bodies: BodyPool | None = None) -> None:
        self.stream = stream
        self.address = _address_of(stream)
        self.bodies = BodyPool() if bodies is None else bodies
        self.scope = trio.CancelScope()
        self.is_waiting = False
        self.moved_s = trio.current_time()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the visitor as waiting for an answer, for the length of a block: it is not idle."""
        self.is_waiting = True
        try:
            yield
        finally:
            self.is_waiting = False
            self.moved_s = trio.current_time()


class Visitors:
    """All connections of one address. Lifecycle: `serve` in a task, until cancelled."""

    def __init__(
        self,
        what: str,
        count_max: int,
        answer: Callable[[Visitor], Awaitable[None]],
        tls: SSLContext | None = None,
    ) -> None:
        """`what` is the purpose of connections, for log lines; `answer` serves one connection until it ends."""
        self._what = what
        self._tls = tls
        self._count_max = count_max
        self._answer = answer
        self._present: set[Visitor] = set()
        self._bodies = BodyPool()

    async def serve(self, sockets: Sequence[socket]) -> None:
        """Accept visitors, and close the sockets at the end."""
        async with trio.open_nursery() as nursery:
            for sock in sockets:
                nursery.start_soon(self._accept, trio.socket.from_stdlib_socket(sock), nursery)

    async def _accept(self, sock: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        has_failed = False
        with sock:
            while True:
                try:
                    accepted, _ = await sock.accept()
                except OSError as error:
                    if error.errno not in _NO_DESCRIPTOR:
                        log.debug(
                            "a connection for %s went away before it was accepted: %s", self._what, error
                        )
                        continue
                    if not has_failed:
                        log.error("cannot accept connections for %s: %s; retrying", self._what, error)
                    has_failed = True
                    await trio.sleep(BACKOFF_SECONDS)
                    continue
                if has_failed:
                    has_failed = False
                    log.warning("connections for %s are accepted again", self._what)
                nursery.start_soon(self._serve, trio.SocketStream(accepted))

    async def _serve(self, stream: trio.SocketStream) -> None:
        if not self._has_place():
            stream.socket.close()
            return
        visitor = Visitor(stream, self._bodies)
        self._present.add(visitor)
        try:
            with visitor.scope, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async with stream:
                    if self._tls is not None:
                        await _secure(visitor, self._tls)
                    await self._answer(visitor)
        except Exception as error:
            is_defect = not lacks_files(error)  # modules that responses need may have to be imported first
            log.error("a request for %s failed: %s", self._what, error, exc_info=is_defect)
        finally:
            self._present.discard(visitor)

    def _has_place(self) -> bool:
        """Return whether a new connection is allowed; closes the longest idle one if necessary."""
        if len(self._present) < self._count_max:
            return True
        idle = [visitor for visitor in self._present if not visitor.is_waiting]
        if not idle:
            log.warning("refusing a connection for %s: %d requests are waiting", self._what, self._count_max)
            return False
        longest = min(idle, key=lambda visitor: visitor.moved_s)
        log.debug("%d connections for %s: closing the one that is idle for longest", len(idle), self._what)
        self._present.discard(longest)
        longest.scope.cancel()
        return True


def _address_of(stream: trio.abc.Stream) -> str:
    try:
        name = stream.socket.getpeername() if isinstance(stream, trio.SocketStream) else ""
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


async def _secure(visitor: Visitor, context: SSLContext) -> None:
    """Begin TLS with a visitor. Raises BrokenResourceError if its handshake is too slow."""
    stream = trio.SSLStream(visitor.stream, context, server_side=True, https_compatible=True)
    with trio.move_on_after(HANDSHAKE_SECONDS_MAX) as limit:
        await stream.do_handshake()
    if limit.cancelled_caught:
        raise trio.BrokenResourceError("no TLS handshake in time")
    visitor.stream = stream

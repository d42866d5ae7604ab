"""Listeners in place of brokers, and the connections through them between clients and brokers.

The rule: bytes are forwarded as they arrive, each direction at the speed of its reader; a connection's failure ends only
that connection, and is reported.
"""

from __future__ import annotations

import errno
import logging
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from barnabas.network.dialing import dial
from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.transport import EVERYWHERE
from barnabas.tools.tap import addresses
from barnabas.tools.tap.cutting import Budget, Data
from barnabas.tools.tap.exchange import Connection, Exchange, Observer, TopicNames
from barnabas.tools.tap.session import Keeper, Session
from barnabas.tools.tap.splicing import Pipes, SinkError

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from barnabas.client.settings import Endpoint

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
HANDSHAKE_SECONDS = 30.0
CLOSE_SECONDS = 1.0
READ_BYTES_MIN = 32 * 1024
READ_BYTES_MAX = 1024 * 1024
JOINED_BYTES_MAX = 256 * 1024
SPLICED_BYTES_MIN = 64 * 1024
"""Fewer bytes are read and sent: that costs fewer calls."""
LISTENERS_MAX = 1000
MEMORY_BYTES = 256 << 20
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Settings of a proxy: the addresses where it listens, and the ways to reach brokers."""

    brokers: tuple[Endpoint, ...]
    """Bootstrap brokers, with a listener each, in this order."""
    host: str = "localhost"
    port: int = 0
    """The first listener's port; the following listeners take the next free ports. 0: any free port."""
    advertised_host: str = ""
    """The host in responses to clients; empty: the host that they have connected to."""
    client_tls: ssl.SSLContext | None = None
    """With which clients are accepted."""
    broker_tls: ssl.SSLContext | None = None
    """With which brokers are reached."""
    memory_bytes: int = MEMORY_BYTES
    """Bytes that large frames may take together."""


class Proxy:
    """A tap on a cluster: `run` serves until it is cancelled."""

    def __init__(
        self,
        settings: ProxySettings,
        observer: Observer,
        *,
        keeper: Callable[[Connection, Address, Address], Keeper] | None = None,
        reads_records: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keeper` returns the keeper of the frames of a connection between these addresses.

        Without it, and without `reads_records`, the record batches of large Fetch answers pass unread.
        """
        self.settings = settings
        self._observer = observer
        self._keeper = keeper
        self._reads_records = reads_records or keeper is not None
        self._pipes = Pipes()
        self._clock = clock
        self._budget = Budget(settings.memory_bytes)
        self._names = TopicNames()
        self._ports: dict[Address, int] = {}
        self._ids = count(1)
        self._nursery: trio.Nursery | None = None
        self.open_count = 0

    @property
    def ports(self) -> dict[Address, int]:
        """The listening port of each broker."""
        return dict(self._ports)

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve; returns the first listener's port once it listens. Raises OSError where it cannot listen."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for endpoint in self.settings.brokers:
                    self.listen_for((endpoint.host, endpoint.port), is_needed=True)
                first = self.settings.brokers[0]
                task_status.started(self._ports[first.host, first.port])
                await trio.sleep_forever()
        finally:
            self._pipes.close()

    # --- listeners --------------------------------------------------------------------------------------------

    def listen_for(self, broker: Address, *, is_needed: bool = False) -> int | None:
        """Return a broker's port, and begin to listen on it if necessary; None if that fails."""
        listened = self._ports.get(broker)
        if listened is None and broker[0] in _LOCAL:
            listened = next(
                (
                    port
                    for (host, number), port in self._ports.items()
                    if host in _LOCAL and number == broker[1]
                ),
                None,
            )
        if listened is not None:
            return listened
        if len(self._ports) >= LISTENERS_MAX:
            log.warning("%s:%d is not listened for: there are %d brokers already", *broker, LISTENERS_MAX)
            return None
        try:
            sockets = self._bind(is_first=not self._ports)
        except OSError as error:
            if is_needed:
                raise
            log.warning("cannot listen for the broker at %s:%d: %s", *broker, error)
            return None
        port: int = sockets[0].getsockname()[1]
        self._ports[broker] = port
        assert self._nursery is not None
        for listening_socket in sockets:
            listening_socket.listen(BACKLOG)
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(socket)) for socket in sockets]
        self._nursery.start_soon(
            partial(
                trio.serve_listeners, partial(self._serve, broker), listeners, handler_nursery=self._nursery
            )
        )
        log.info("port %d stands for the broker at %s:%d", port, *broker)
        return port

    def _bind(self, *, is_first: bool) -> Sequence[socket.socket]:
        """Bind the next port that is free. Raises OSError."""
        host, port = self.settings.host, self.settings.port
        if is_first or port == 0:
            return bind_sockets(host, port)
        for number in range(max(self._ports.values()) + 1, 65536):
            try:
                return bind_sockets(host, number)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        return bind_sockets(host, 0)

    def address_for(self, local_host: str, host: str, port: int) -> Address | None:
        """Return the address for clients in place of a broker's; None without a listener."""
        own = self.listen_for((host, port))
        if own is None:
            return None
        settings = self.settings
        if settings.advertised_host:
            return settings.advertised_host, own
        return (local_host if settings.host in (*EVERYWHERE, "") else settings.host), own

    # --- connections ------------------------------------------------------------------------------------------

    async def _serve(self, broker: Address, accepted: trio.SocketStream) -> None:
        """Serve one client until it or the broker has closed."""
        try:
            accepted.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
            peer, local = accepted.socket.getpeername()[:2], accepted.socket.getsockname()[:2]
        except OSError:  # the client has disconnected already
            await trio.aclose_forcefully(accepted)
            return
        connection = Connection(next(self._ids), _text(peer), _text(broker), self._clock())
        sides = [
            side
            for side, context in (("client", self.settings.client_tls), ("broker", self.settings.broker_tls))
            if context is not None
        ]
        if sides:
            connection.tls = f"TLS to the {' and the '.join(sides)}"
        self.open_count += 1
        reason = "the tap ends"
        self._observer.opened(connection, connection.opened_at)
        try:
            reason = await self._connected(connection, accepted, broker, peer, local)
        except Exception as error:
            log.exception("connection %d ended by an internal error", connection.id)
            reason = f"internal error: {error}"
        finally:
            self.open_count -= 1
            self._observer.closed(connection, self._clock(), reason)

    async def _connected(
        self,
        connection: Connection,
        accepted: trio.SocketStream,
        broker: Address,
        peer: Address,
        local: Address,
    ) -> str:
        """Connect to the broker and forward; returns why it ended."""
        client: trio.abc.Stream = accepted
        upstream: trio.abc.Stream | None = None
        try:
            try:
                if self.settings.client_tls is not None:
                    client = await self._secured(accepted, self.settings.client_tls, server_side=True)
            except _TLS_ERRORS as error:
                return f"TLS with the client: {_reason(error)}"
            try:
                with trio.fail_after(CONNECT_SECONDS):
                    dialled = await dial(*broker)
                upstream = dialled
                remote = dialled.socket.getpeername()[:2]
                if self.settings.broker_tls is not None:
                    upstream = await self._secured(dialled, self.settings.broker_tls, host=broker[0])
            except trio.TooSlowError:
                return self._unreachable(connection, broker, f"no answer in {CONNECT_SECONDS:g} s")
            except OSError as error:
                return self._unreachable(connection, broker, _reason(error))
            except trio.BrokenResourceError as error:
                return self._unreachable(connection, broker, f"TLS: {_reason(error)}")
            keeper = self._keeper(connection, peer, remote) if self._keeper is not None else None
            session = Session(
                connection, _WithoutEnd(self._observer), budget=self._budget, names=self._names,
                holds=addresses.may_have_addresses, rewrite=partial(self._rewrite, local[0]), keeper=keeper,
                rewrite_end=None if self._reads_records else partial(self.rewrite_end, local[0]),
            )  # fmt: skip
            pumps = _Pumps(session, client, upstream, self._clock, self._pipes)
            try:
                return await pumps.run()
            finally:
                session.close(self._clock(), pumps.reason or "the tap ends")
        finally:
            for stream in (client, upstream):
                if stream is not None:
                    with (
                        trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS),
                        suppress(trio.BrokenResourceError, trio.BusyResourceError, OSError),
                    ):
                        await stream.aclose()

    def _unreachable(self, connection: Connection, broker: Address, reason: str) -> str:
        text = f"the broker at {_text(broker)} cannot be reached: {reason}"
        self._observer.noted(connection, self._clock(), text)
        return text

    async def _secured(
        self,
        stream: trio.SocketStream,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        host: str | None = None,
    ) -> trio.SSLStream[trio.SocketStream]:
        secured = trio.SSLStream(
            stream, context, server_hostname=host, server_side=server_side, https_compatible=True
        )
        with trio.fail_after(HANDSHAKE_SECONDS):
            await secured.do_handshake()
        return secured

    def _rewrite(self, local_host: str, exchange: Exchange, frame: Data) -> bytes | None:
        """Return an answer's frame with the addresses of the tap."""
        request, response = exchange.request, exchange.response
        assert response is not None
        return addresses.changed(
            request.api_key, request.version, frame, response.message, partial(self.address_for, local_host)
        )

    def rewrite_end(self, local_host: str, exchange: Exchange, size: int) -> bytes | None:
        """Return the tagged fields at the end of a large Fetch answer, in their size, with the addresses of the tap."""
        response = exchange.response
        assert response is not None
        end, is_complete = addresses.changed_end(
            exchange.request.version, size, response.message, partial(self.address_for, local_host)
        )
        if not is_complete:
            what = "are left out of" if end is not None else "are not changed in"
            text = f"addresses of leaders {what} a large Fetch answer: those of the tap are longer"
            self._observer.noted(exchange.connection, self._clock(), text)
        return end


_TLS_ERRORS = (trio.BrokenResourceError, ssl.SSLError, trio.TooSlowError, OSError)


class _WithoutEnd:
    """An observer of a session without its end, which the task that began it reports."""

    def __init__(self, observer: Observer) -> None:
        self.opened = observer.opened
        self.exchanged = observer.exchanged
        self.noted = observer.noted

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Leave it to the owner."""


class _Pumps:
    """The two directions of a connection."""

    def __init__(
        self,
        session: Session,
        client: trio.abc.Stream,
        broker: trio.abc.Stream,
        clock: Callable[[], float],
        pipes: Pipes,
    ) -> None:
        self._session = session
        self._pipes = pipes
        self._client = client
        self._broker = broker
        self._clock = clock
        self._is_client_done = False
        self._scope = trio.CancelScope()
        self.reason = ""

    async def run(self) -> str:
        """Forward until the end; returns its reason."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._upwards)
                nursery.start_soon(self._downwards)
        return self.reason

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._scope.cancel()

    async def _upwards(self) -> None:
        """Forward the client's bytes, and its end of stream if the broker's side supports half-closing."""
        size = READ_BYTES_MIN
        while True:
            try:
                data = bytes(await self._client.receive_some(size))
            except _GONE as error:
                return self._end(f"the client's side broke: {_reason(error)}")
            if not data:
                break
            size = _next_size(size, len(data))
            self._session.from_client(data, self._clock())
            try:
                await self._broker.send_all(data)
            except _GONE as error:
                return self._end(f"the broker's side broke: {_reason(error)}")
        self._is_client_done = True
        self.reason = "the client closed"
        if isinstance(self._broker, trio.SocketStream):
            try:
                await self._broker.send_eof()
            except _GONE as error:
                self._end(f"the broker's side broke: {_reason(error)}")
        elif self._session.is_answered:  # TLS closes both directions at once: wait for all responses
            self._end("the client closed")
        return None

    async def _downwards(self) -> None:
        """Forward the broker's bytes, with rewritten addresses."""
        size = READ_BYTES_MIN
        session = self._session
        while True:
            if session.unread >= SPLICED_BYTES_MIN and self._pipes.is_usable:
                passed = await self._splice(session.unread)
                if passed is None:
                    return None
                session.passed(passed, self._clock())
                size = READ_BYTES_MIN
            try:
                data = bytes(await self._broker.receive_some(size))
            except _GONE as error:
                return self._end(f"the broker's side broke: {_reason(error)}")
            if not data:
                break
            size = _next_size(size, len(data))
            chunks = session.from_broker(data, self._clock())
            if not await self._send(chunks):
                return None
            session.sent()
            if (
                self._is_client_done
                and session.is_answered
                and not isinstance(self._broker, trio.SocketStream)
            ):
                break
        rest = session.rest()
        if rest and not await self._send([rest]):
            return None
        return self._end("the broker closed")

    async def _splice(self, count: int) -> int | None:
        """Forward bytes without reading them; returns their number, None if the client or the broker has disconnected."""
        source, sink = self._broker, self._client
        if not isinstance(source, trio.SocketStream) or not isinstance(sink, trio.SocketStream):
            return 0  # TLS
        try:
            return await self._pipes.forward(source.socket, sink.socket, count)
        except SinkError as error:
            self._end(f"the client's side broke: {_reason(error)}")
        except _GONE as error:
            self._end(f"the broker's side broke: {_reason(error)}")
        return None

    async def _send(self, chunks: list[Data]) -> bool:
        """Send to the client; False if it has disconnected."""
        try:
            if len(chunks) > 1 and sum(map(len, chunks)) <= JOINED_BYTES_MAX:
                await self._client.send_all(b"".join(chunks))
            else:
                for chunk in chunks:
                    await self._client.send_all(chunk)
        except _GONE as error:
            self._end(f"the client's side broke: {_reason(error)}")
            return False
        return True


_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


def _next_size(size: int, received: int) -> int:
    """Return how much to read next: more where a read was full, less where it was much less."""
    if received == size:
        return min(size * 2, READ_BYTES_MAX)
    return max(size // 2, READ_BYTES_MIN) if received < size // 4 else size


def _text(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: BaseException) -> str:
    """Return the text for an error of a connection."""
    cause = error
    if isinstance(error, trio.BrokenResourceError | OSError) and error.__cause__ is not None:
        cause = error.__cause__
    if isinstance(cause, ssl.SSLError):
        return (getattr(cause, "verify_message", "") or cause.reason or str(cause)).replace("_", " ").lower()
    if isinstance(cause, trio.TooSlowError):
        return f"no handshake in {HANDSHAKE_SECONDS:g} s"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__

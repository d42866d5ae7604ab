"""Accepting connections, closing idle ones, and draining them at shutdown.

The rule: one nursery owns all connections, and no connection's failure reaches it.
"""

from __future__ import annotations

import errno
import logging
import math
from functools import partial
from heapq import nsmallest
from itertools import count
from typing import TYPE_CHECKING

import trio

from barnabas.serving.channel import NO_SECURITY
from barnabas.serving.connection import Connection
from barnabas.serving.connection_parts import ConnectionParts
from barnabas.serving.context import ConnectionInfo
from barnabas.serving.unauthenticated import UnauthenticatedConnections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.network.transport import Acceptor, Address, Transport
    from barnabas.serving.connection_limits import ConnectionLimits
    from barnabas.serving.seams import Doorkeeper, Taker

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
ACCEPT_BACKOFF_SECONDS = 0.1
"""Pause in accepting when the process has no file descriptor left for a connection."""

DRAIN_SECONDS = 1.0
"""Time that requests in hand have to finish at shutdown."""

IDLE_CHECK_SECONDS = 5.0
CLOSED_PER_TURN = 50
"""Most connections that are closed in one turn of the event loop, each by its own task."""

THROTTLED_MAX = 1000
"""Connections that come too fast from an address and are kept open until their time; beyond, they are closed immediately.
"""

_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    """One bound address with its name and security protocol, as in `PLAINTEXT://127.0.0.1:9092`.

    `channel` secures the clients: it is set before the listener accepts.
    """

    def __init__(self, name: str, security_protocol: str, acceptors: Sequence[Acceptor]) -> None:
        self.name = name
        self.security_protocol = security_protocol
        self.acceptors = acceptors
        self.channel = NO_SECURITY

    @property
    def addresses(self) -> list[Address]:
        """The (host, port) pairs really bound."""
        return [acceptor.address for acceptor in self.acceptors]

    @property
    def port(self) -> int:
        """The actual port; that of the first address if there are several."""
        return self.addresses[0][1]

    async def accept_forever(self, connections: Connections) -> None:
        """Accept until cancelled."""
        async with trio.open_nursery() as nursery:
            for acceptor in self.acceptors:
                nursery.start_soon(self._accept, acceptor, connections)

    async def _accept(self, acceptor: Acceptor, connections: Connections) -> None:
        has_failed = False
        while True:
            await acceptor.wait_acceptable()
            try:
                # Several at once: between two of them, every client that is already there would be served.
                for _ in range(ACCEPTS_PER_TURN):
                    transport = acceptor.accept_now()
                    if transport is None:
                        break
                    if has_failed:
                        has_failed = False
                        log.warning("connections to %s are accepted again", self.name)
                    await connections.take(self, transport)
                    if (
                        connections.parts.budget.is_used_up
                    ):  # one comes in even in a turn that others have used up
                        break
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    has_failed = True
                    connections.parts.log_limit.log(
                        log, logging.ERROR, "failures to accept", self.name,
                        "cannot accept on %s: %s; trying again in %ss", self.name, error, ACCEPT_BACKOFF_SECONDS,
                    )  # fmt: skip
                    await trio.sleep(ACCEPT_BACKOFF_SECONDS)
                else:
                    log.debug("a connection to %s went away before it was accepted: %s", self.name, error)

    def close(self) -> None:
        """Stop listening."""
        for acceptor in self.acceptors:
            acceptor.close()


def _is_idle(since_s: float, connection: Connection) -> bool:
    """Return whether no byte was received or sent since then, and no request is in progress."""
    return connection.last_active < since_s and not connection.answering


def _idle_first(connection: Connection) -> tuple[bool, float]:
    """Sort key of connections: those without a request in progress first, and of them the longest idle."""
    return connection.answering, connection.last_active


class Connections:
    """All open connections of a broker, living in one nursery."""

    def __init__(
        self,
        nursery: trio.Nursery,
        parts: ConnectionParts,
        limits: ConnectionLimits,
        *,
        idle_seconds_max: float,
        count_max: int | None,
        unauthenticated: UnauthenticatedConnections | None = None,
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        """`count_max` is the system's limit, None for any number; `unauthenticated` limits unauthenticated connections.

        `doorkeeper` is as in `Seams`.
        """
        self._doorkeeper = doorkeeper
        self.parts = parts
        self.limits = limits
        self._nursery = nursery
        self._throttled_count = 0
        self._count_max = count_max
        self._ids = count(1)
        self.open_connections: dict[
            Connection, None
        ] = {}  # in the order in which they came, as no set has them
        self._idle_seconds_max = idle_seconds_max
        self._unauthenticated = UnauthenticatedConnections() if unauthenticated is None else unauthenticated

    def __len__(self) -> int:
        return len(self.open_connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self.open_connections))

    async def take(self, listener: Listener, transport: Transport) -> None:
        """Serve an accepted connection, once the limits allow it; later connections of the listener wait, too."""
        limits, name = self.limits, listener.name
        if self._doorkeeper is not None and (taker := self._doorkeeper(name, transport)) is not None:
            self._nursery.start_soon(self._let_take, taker, listener, transport)
            return
        delay_ms = limits.delay_ms(name)
        if delay_ms or not limits.has_room(name):
            try:
                await limits.wait_for_turn(name, delay_ms)
            except BaseException:
                transport.close()
                raise
        throttle_ms = limits.throttle_ms(name, transport.peer_address[0])
        if throttle_ms:
            self._throttle(transport, throttle_ms)
        else:
            self.start(listener, transport)

    async def _let_take(self, taker: Taker, listener: Listener, transport: Transport) -> None:
        """Pass a connection to the taker of the doorkeeper, and serve it if the taker returns it."""
        is_ours = False
        try:
            is_ours = await taker(transport)
        except OSError as error:
            log.debug("a connection to %s ended: %s", listener.name, error)
        finally:
            if not is_ours:
                transport.close()
        if is_ours:
            self.start(listener, transport)

    def _throttle(self, transport: Transport, throttle_ms: int) -> None:
        """Close a connection after a while, so that a client that tries again at once does so later."""
        host = transport.peer_address[0]
        self.parts.log_limit.log(
            log, logging.WARNING, "connections throttled", host,
            "connections from %s come faster than its quota allows: they are closed after %d ms", host, throttle_ms,
        )  # fmt: skip
        if self._throttled_count >= THROTTLED_MAX:
            transport.close()
            return
        self._throttled_count += 1
        self._nursery.start_soon(self._close_later, transport, throttle_ms)

    async def _close_later(self, transport: Transport, throttle_ms: int) -> None:
        try:
            await trio.sleep(throttle_ms / 1000)
        finally:
            self._throttled_count -= 1
            transport.close()

    def start(self, listener: Listener, transport: Transport) -> None:
        """Serve an accepted connection in a separate task, or refuse it when there are too many."""
        host = transport.peer_address[0]
        if self.limits.refuses(host):
            self.parts.log_limit.log(
                log, logging.WARNING, "connections refused", host,
                "refusing a connection from %s: %d are open, %d of them from there",
                host, len(self.open_connections), self.limits.per_ip[host],
            )  # fmt: skip
            transport.close()
            return
        if (
            self._count_max is not None
            and len(self.open_connections) + self._throttled_count >= self._count_max
        ):
            transport.close()
            self.parts.log_limit.log(
                log, logging.ERROR, "connections refused for want of open files", "all hosts",
                "refusing connections, one of them from %s: %d are open, and that is all that the system allows "
                "beside the log's files (ulimit -n)", host, len(self.open_connections),
            )  # fmt: skip
            return
        info = ConnectionInfo(
            next(self._ids),
            listener.name,
            listener.security_protocol,
            transport.local_address,
            transport.peer_address,
            login=listener.channel.new_login(),
        )
        channel = listener.channel
        connection = Connection(
            self.parts, transport, info, channel=channel, on_arrived=self._unauthenticated.discard
        )
        self.open_connections[connection] = None
        self.limits.opened(listener.name, host)
        if not channel.is_open:
            self._greet(connection)
        self._nursery.start_soon(self._serve, connection)

    def _greet(self, connection: Connection) -> None:
        """Count an unauthenticated connection; above the limit one of them is evicted."""
        pushed_out = self._unauthenticated.add(connection, self.parts.now_s())
        if pushed_out is not None:
            host = pushed_out.info.peer_address[0]
            self.parts.log_limit.log(
                log, logging.WARNING, "connections closed before their login", host,
                "closing %s: %d connections have not authenticated, most of them from %s",
                pushed_out.info, len(self._unauthenticated), host,
            )  # fmt: skip
            pushed_out.scope.cancel()

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        finally:
            self.open_connections.pop(connection, None)
            self._unauthenticated.discard(connection)
            self.limits.closed(connection.info.listener, connection.info.peer_address[0])

    async def close_excess_forever(self) -> None:
        """Close the connections that have been idle for longest, when there are more than the broker may have."""
        limits = self.limits
        while True:
            if limits.excess > 0:
                leaving = sum(connection.scope.cancel_called for connection in self.open_connections)
                others = (
                    connection
                    for connection in self.open_connections
                    if limits.may_go(connection.info.listener) and not connection.scope.cancel_called
                )
                count = limits.excess - leaving
                for connection in nsmallest(count, others, key=_idle_first):
                    log.info("closing %s: more connections are open than max.connections", connection.info)
                    connection.scope.cancel()
            await limits.wait_for_change()

    async def close_idle_forever(self) -> None:
        """Close connections that have sent nothing for connections.max.idle.ms, half-sent frames included.

        Those that have sent nothing since the last check become inactive.
        """
        while True:
            shortest_s = min(self._idle_seconds_max, self._unauthenticated.seconds_max)
            pause_s = min(IDLE_CHECK_SECONDS, max(shortest_s / 2, 0.05))
            await trio.sleep(pause_s)
            await self._mark_inactive(self.parts.now_s() - pause_s)
            for connection in self._unauthenticated.overdue(self.parts.now_s()):
                log.debug("closing %s: it has not authenticated in time", connection.info)
                connection.scope.cancel()
            limit = self.parts.now_s() - self._idle_seconds_max
            await self._close_some(partial(_is_idle, limit), f"idle for more than {self._idle_seconds_max}s")

    async def _mark_inactive(self, since_s: float) -> None:
        """Mark connections that have been idle since then as not expecting a request soon."""
        for number, connection in enumerate(tuple(self.open_connections), 1):
            if _is_idle(since_s, connection):
                connection.expect_nothing_soon()
            if number % CLOSED_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            await self.parts.budget.checkpoint()

    async def _close_some(self, is_leaving: Callable[[Connection], bool], reason: str) -> None:
        """Close the connections for which `is_leaving` is true, only some in one turn of the event loop."""
        closed = 0
        for connection in tuple(self.open_connections):
            if is_leaving(connection):  # checked again: others have run since the last one
                log.debug("closing %s: %s", connection.info, reason)
                connection.scope.cancel()
                closed += 1
                if closed % CLOSED_PER_TURN == 0:
                    await trio.lowlevel.checkpoint()
            await self.parts.budget.checkpoint()

    async def drain(self) -> None:
        """Give requests in progress a moment to finish, then close all connections."""
        for connection in self.open_connections:
            connection.stopping = True
        with trio.move_on_after(DRAIN_SECONDS):
            await self._close_some(partial(_is_idle, math.inf), "the broker stops")
            while self.open_connections:
                await trio.sleep(0.02)
        for connection in self.open_connections:
            connection.scope.cancel()

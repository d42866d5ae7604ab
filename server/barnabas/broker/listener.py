"""Accepting connections, closing idle ones, and draining them at shutdown.

The rule: one nursery owns all connections, and no connection's failure reaches it.
"""

from __future__ import annotations

import errno
import logging
import math
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import trio

from barnabas.broker.channel import NO_SECURITY
from barnabas.broker.connection import Connection, ConnectionParts
from barnabas.config import broker as settings
from barnabas.requests.context import ConnectionInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.config.loading import BrokerConfig
    from barnabas.network.transport import Acceptor, Address, Transport

log = logging.getLogger(__name__)

ACCEPTS_AT_ONCE = 64
ACCEPT_BACKOFF_SECONDS = 0.1
"""How long accepting pauses when the process has no file descriptor left for a connection."""

DRAIN_SECONDS = 1.0
"""How long requests in hand may take to finish at shutdown."""

IDLE_CHECK_SECONDS = 5.0
CLOSED_AT_ONCE = 50
"""How many connections are closed in one turn of the event loop, each by its own task."""

_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    """One bound address with its name and security protocol, as in `PLAINTEXT://127.0.0.1:9092`.

    `channel` says how clients are secured: it is given before the listener accepts.
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
        """The port really bound; the first one where there are several addresses."""
        return self.addresses[0][1]

    async def accept_forever(self, connections: Connections) -> None:
        """Accept until cancelled."""
        async with trio.open_nursery() as nursery:
            for acceptor in self.acceptors:
                nursery.start_soon(self._accept, acceptor, connections)

    async def _accept(self, acceptor: Acceptor, connections: Connections) -> None:
        while True:
            await acceptor.wait_acceptable()
            try:
                # Several at once: between two of them, every client that is already there would be served.
                for _ in range(ACCEPTS_AT_ONCE):
                    transport = acceptor.accept_now()
                    if transport is None:
                        break
                    connections.start(self, transport)
                    if (
                        connections.parts.budget.is_used_up
                    ):  # one comes in even in a turn that others have used up
                        break
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
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


def most_from(host: str, config: BrokerConfig) -> int:
    """How many connections may be open from an address: max.connections.per.ip, or an override for that address."""
    overrides = config.get(settings.MAX_CONNECTIONS_PER_IP_OVERRIDES)
    for item in overrides.split(",") if overrides else ():
        name, _, count = item.strip().rpartition(":")
        if name == host.removeprefix("::ffff:"):
            return int(count)
    return config.get(settings.MAX_CONNECTIONS_PER_IP)


def _is_idle(since_s: float, connection: Connection) -> bool:
    """Whether nothing has come or gone since then, and no request is in hand."""
    return connection.last_active < since_s and not connection.answering


class Connections:
    """All open connections of a broker, living in one nursery."""

    def __init__(
        self, nursery: trio.Nursery, parts: ConnectionParts, config: BrokerConfig, *, count_max: int | None
    ) -> None:
        """`count_max` is what the system allows, None for any number."""
        self.parts = parts
        self._nursery = nursery
        self._config = config
        self._count_max = count_max
        self._ids = count(1)
        self._open: set[Connection] = set()
        self._idle_seconds_max = config.get(settings.CONNECTIONS_MAX_IDLE_MS) / 1000
        self._per_ip: dict[str, int] = {}
        self._per_listener: dict[str, int] = {}
        self.accepted: dict[str, int] = {}
        """How many have been accepted since the start, by the name of the listener."""

    def open_on(self, listener: str) -> int:
        """How many are open on a listener."""
        return self._per_listener.get(listener, 0)

    def __len__(self) -> int:
        return len(self._open)

    def start(self, listener: Listener, transport: Transport) -> None:
        """Serve an accepted connection in a task of its own, or refuse it when there are too many."""
        host = transport.peer_address[0]
        most = self._config.get(settings.MAX_CONNECTIONS)
        if len(self._open) >= most or self._per_ip.get(host, 0) >= most_from(host, self._config):
            self.parts.log_limit.log(
                log, logging.WARNING, "connections refused", host,
                "refusing a connection from %s: %d are open, %d of them from there",
                host, len(self._open), self._per_ip.get(host, 0),
            )  # fmt: skip
            transport.close()
            return
        if self._count_max is not None and len(self._open) >= self._count_max:
            transport.close()
            self.parts.log_limit.log(
                log, logging.ERROR, "connections refused for want of open files", "all hosts",
                "refusing connections, one of them from %s: %d are open, and that is all that the system allows "
                "beside the log's files (ulimit -n)", host, len(self._open),
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
        connection = Connection(self.parts, transport, info)
        self._open.add(connection)
        self._per_ip[host] = self._per_ip.get(host, 0) + 1
        self._per_listener[listener.name] = self._per_listener.get(listener.name, 0) + 1
        self.accepted[listener.name] = self.accepted.get(listener.name, 0) + 1
        self._nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)
            self._per_listener[connection.info.listener] -= 1
            host = connection.info.peer_address[0]
            left = self._per_ip[host] - 1
            if left:
                self._per_ip[host] = left
            else:
                del self._per_ip[host]

    async def close_idle_forever(self) -> None:
        """Close connections that have sent nothing for connections.max.idle.ms, half-sent frames included.

        Those that have sent nothing since the last check are inactive from then on.
        """
        while True:
            pause_s = min(IDLE_CHECK_SECONDS, max(self._idle_seconds_max / 2, 0.05))
            await trio.sleep(pause_s)
            await self._mark_inactive(self.parts.now_s() - pause_s)
            limit = self.parts.now_s() - self._idle_seconds_max
            await self._close_some(partial(_is_idle, limit), f"idle for more than {self._idle_seconds_max}s")

    async def _mark_inactive(self, since_s: float) -> None:
        """Tell the connections that have been idle since then that nothing is expected of them."""
        for number, connection in enumerate(tuple(self._open), 1):
            if _is_idle(since_s, connection):
                connection.expect_nothing_soon()
            if number % CLOSED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            await self.parts.budget.checkpoint()

    async def _close_some(self, wanted: Callable[[Connection], bool], reason: str) -> None:
        """Close the connections that are `wanted`, only so many in one turn of the event loop."""
        closed = 0
        for connection in tuple(self._open):
            if wanted(connection):  # as it is now: others have run since the last one
                log.debug("closing %s: %s", connection.info, reason)
                connection.scope.cancel()
                closed += 1
                if closed % CLOSED_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
            await self.parts.budget.checkpoint()

    async def drain(self) -> None:
        """Let requests in hand finish for a moment, then close everything."""
        for connection in self._open:
            connection.stopping = True
        with trio.move_on_after(DRAIN_SECONDS):
            await self._close_some(partial(_is_idle, math.inf), "the broker stops")
            while self._open:
                await trio.sleep(0.02)
        for connection in self._open:
            connection.scope.cancel()

"""Connections that are served without a listener, with clients that are threads with blocking sockets."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import PlainTransport
from barnabas.network.transport import Transport
from barnabas.network.wait_set import WaitSets
from barnabas.serving.connection import Connection
from barnabas.serving.connection_parts import ConnectionParts
from tests.support.broker import new_connection

TIMEOUT_S = 60.0


class Serving(NamedTuple):
    """The parts that connections share."""

    parts: ConnectionParts
    wait_sets: WaitSets
    ready: ReadySockets

    @classmethod
    def of(cls, parts: ConnectionParts) -> Serving:
        """Serve with these parts."""
        return cls(parts, WaitSets(), ReadySockets())


@asynccontextmanager
async def connected(
    serving: Serving, number: int = 1, over: Callable[[PlainTransport], Transport] | None = None
) -> AsyncIterator[tuple[Connection, socket.socket]]:
    """Yield a served connection, and the client's end of it; `over` may wrap the connection's transport."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(TIMEOUT_S)
    transport = PlainTransport(ours, wait_sets=serving.wait_sets, ready=serving.ready)
    seen = transport if over is None else over(transport)
    connection = Connection(serving.parts, seen, new_connection(number))
    with theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            yield connection, theirs
            nursery.cancel_scope.cancel()

"""Listener of the console.

The rule: it listens on loopback addresses unless there is a token. What reads and answers requests is imported with the
first connection, in a thread: a broker whose console nobody looks at has little more than a socket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.broker.startup import StartupError
from barnabas.environment.lazy import Lazy
from barnabas.network.sockets import BACKLOG
from barnabas.network.transport import host_and_port, is_loopback
from barnabas.network.visitors import AddressError, Visitors, bind, url_of

if TYPE_CHECKING:
    from barnabas.console.http import Answering
    from barnabas.console.live import Live
    from barnabas.console.sessions import Sessions
    from barnabas.console.target import WhereNow
    from barnabas.network.visitors import Visitor

CONNECTIONS_MAX = 256
DEFAULT_PORT = 9080


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises StartupError."""
    where = host_and_port(text.strip())
    if where is None:
        raise StartupError(f"the console's address {text} is not of the form HOST:PORT")
    return where


class ConsoleServer:
    """Lifecycle: bound when it is made; `run` in a task, until cancelled."""

    def __init__(
        self,
        address: tuple[str, int],
        where: WhereNow,
        *,
        token: str = "",
        origins: Sequence[str] = (),
        live_of: Callable[[], Live | None] = lambda: None,
        registry_url: str = "",
    ) -> None:
        """Bind an address, port 0 for a free one. `live_of` is asked with the first visitor.

        Raises StartupError, also for an address that other machines reach where there is no token.
        """
        self._where = where
        self._token = token
        self._origins = tuple(origins)
        self._live_of = live_of
        self._registry_url = registry_url
        self.sockets = _bind(*address, token=token)

    @property
    def url(self) -> str:
        """URL of the console."""
        return url_of(self.sockets)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; closes the sockets then."""
        async with trio.open_nursery() as nursery:
            sessions: list[Sessions] = []

            def make() -> Answering:
                from barnabas.console.sessions import Sessions

                sessions.append(Sessions(self._where, self._token, self._live_of(), self._registry_url))
                nursery.start_soon(sessions[0].run)
                return self._answering(sessions[0])

            answering = Lazy(
                make, "barnabas.console.http", "barnabas.console.own_broker", beside=trio.to_thread.run_sync
            )

            async def answer(visitor: Visitor) -> None:
                await (await answering.ready()).serve(visitor)

            for sock in self.sockets:
                sock.listen(BACKLOG)
            nursery.start_soon(Visitors("the console", CONNECTIONS_MAX, answer).serve, self.sockets)
            task_status.started()

    def _answering(self, sessions: Sessions) -> Answering:
        from barnabas.console.guard import Guard
        from barnabas.console.http import Answering

        addresses = {sock.getsockname()[0] for sock in self.sockets}
        is_local = all(map(is_loopback, addresses))
        names = addresses if is_local else {*addresses, socket.gethostname()}
        guard = Guard(names, self._origins, is_local=is_local)
        port = self.sockets[0].getsockname()[1]
        return Answering(guard, sessions, self._live_of(), f"barnabas-console-{port}")


def _bind(host: str, port: int, *, token: str) -> list[socket.socket]:
    unguarded = (
        "other machines reach the console on {}: give a token (--console-token-file), or use an address of this machine "
        "alone (127.0.0.1)"
    )
    try:
        return bind(host, port, "the console", unguarded="" if token else unguarded)
    except AddressError as error:
        raise StartupError(str(error)) from error

"""Listener of the console.

The rule: it listens on loopback addresses unless there is a token. What reads and answers requests is imported with the
first connection, in a thread: a console without visitors is little more than a socket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.environment.lazy import Lazy
from barnabas.network.visitors import Address, Site
from barnabas.sandbox.pool import Sandbox

if TYPE_CHECKING:
    from barnabas.console.http import ConsoleService
    from barnabas.console.live import Live
    from barnabas.console.sessions import Sessions
    from barnabas.console.target import WhereNow
    from barnabas.network.visitors import Visitor
    from barnabas.registry.client_settings import RegistryAt

WHAT = "the console"
CONNECTIONS_MAX = 256
DEFAULT_PORT = 9080
CALL_SECONDS_MAX = 3.0
"""Time of a call on what visitors and producers have sent."""
_UNGUARDED = (
    "other machines reach the console on {}: give a token (--console-token-file), or use an address of this machine "
    "alone (127.0.0.1)"
)


class ConsoleServer:
    """Lifecycle: bound when it is made; `run` in a task, until cancelled."""

    def __init__(
        self,
        address: Address,
        where: WhereNow,
        *,
        token: str = "",
        origins: Sequence[str] = (),
        live_of: Callable[[], Live | None] = lambda: None,
        registry: RegistryAt | None = None,
    ) -> None:
        """Bind an address, port 0 for a free one. `live_of` is asked with the first visitor.

        Raises AddressError, also for an address that other machines reach where there is no token.
        """
        self._where = where
        self._token = token
        self._origins = tuple(origins)
        self._live_of = live_of
        self._registry = registry
        self._site = Site(address, WHAT, unguarded="" if token else _UNGUARDED)

    @property
    def url(self) -> str:
        """URL of the console."""
        return self._site.url

    def close(self) -> None:
        """Close the sockets of one that does not run."""
        self._site.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; closes the sockets then."""
        async with Sandbox(seconds_max=CALL_SECONDS_MAX) as sandbox, trio.open_nursery() as nursery:
            sessions: list[Sessions] = []

            def make() -> ConsoleService:
                from barnabas.console.sessions import Sessions

                sessions.append(Sessions(self._where, self._token, self._live_of(), self._registry, sandbox))
                nursery.start_soon(sessions[0].run)
                return self._service(sessions[0])

            service = Lazy(
                make, "barnabas.console.http", "barnabas.console.own_broker", beside=trio.to_thread.run_sync
            )

            async def answer(visitor: Visitor) -> None:
                await (await service.ready()).serve(visitor)

            await self._site.serve(CONNECTIONS_MAX, answer, task_status=task_status)

    def _service(self, sessions: Sessions) -> ConsoleService:
        from barnabas.console.guard import Guard
        from barnabas.console.http import ConsoleService

        site = self._site
        names = site.hosts if site.is_local else {*site.hosts, socket.gethostname()}
        guard = Guard(
            names, self._origins, is_local=site.is_local, scheme="https" if site.has_tls else "http"
        )
        cookie = f"barnabas-console-{site.port}"
        return ConsoleService(guard, sessions, self._live_of(), cookie, has_tls=site.has_tls)

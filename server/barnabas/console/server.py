"""Listener of the console.

The rule: it listens on loopback addresses unless a token is set. The modules that read and answer requests are imported
with the first connection, in a thread: a console without visitors is little more than a socket.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.environment.lazy import Lazy
from barnabas.network.visitors import Address, Site
from barnabas.sandbox.pool import Sandbox

if TYPE_CHECKING:
    from barnabas.console.clusters import Clusters
    from barnabas.console.guard import Guard
    from barnabas.console.http import ConsoleService
    from barnabas.console.target import Cluster
    from barnabas.console.turns import Reads
    from barnabas.network.visitors import Visitor

WHAT = "the console"
CONNECTIONS_MAX = 256
DEFAULT_PORT = 9080
CALL_SECONDS_MAX = 3.0
"""Time limit of a call on data of visitors and producers."""
_UNGUARDED = (
    "other machines reach the console on {}: give a token (--console-token-file), or use an address of this machine "
    "alone (127.0.0.1)"
)


class ConsoleServer:
    """A listener of the console. Lifecycle: bound by its creation; `run` in a task, until cancelled."""

    def __init__(
        self,
        address: Address,
        clusters: Cluster | Mapping[str, Cluster],
        *,
        token: str = "",
        origins: Sequence[str] = (),
        is_read_only: bool = False,
        keeps_history: bool = False,
    ) -> None:
        """Bind an address, port 0 for a free one. Each of several clusters is shown under its name.

        `keeps_history`: numbers of clusters without logins are sampled from the start on, not from the first visit.
        Raises AddressError, also for an address that other machines can reach if no token is set.
        """
        self._clusters = clusters if isinstance(clusters, Mapping) else {"": clusters}
        self._token = token
        self._origins = tuple(origins)
        self._is_read_only = is_read_only
        self._keeps_history = keeps_history
        self._site = Site(address, WHAT, unguarded="" if token else _UNGUARDED)

    @property
    def url(self) -> str:
        """URL of the console."""
        return self._site.url

    def close(self) -> None:
        """Close the sockets of a server that does not run."""
        self._site.close()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; closes the sockets then."""
        async with Sandbox(seconds_max=CALL_SECONDS_MAX) as sandbox, trio.open_nursery() as nursery:

            def make() -> Clusters:
                from barnabas.console.clusters import Clusters
                from barnabas.console.turns import Reads

                reads = Reads()
                services = {name: self._service(name, nursery, sandbox, reads) for name in self._clusters}
                return Clusters(services)

            service = Lazy(
                make, "barnabas.console.http", "barnabas.console.own_broker", beside=trio.to_thread.run_sync
            )

            async def answer(visitor: Visitor) -> None:
                await (await service.ready()).serve(visitor)

            if self._keeps_history:
                nursery.start_soon(service.ready)
            await self._site.serve(CONNECTIONS_MAX, answer, task_status=task_status)

    def _service(self, name: str, nursery: trio.Nursery, sandbox: Sandbox, reads: Reads) -> ConsoleService:
        """Return the service of a cluster, with its sessions."""
        from barnabas.console.http import ConsoleService, Place
        from barnabas.console.sessions import Sessions

        cluster = self._clusters[name]
        live = cluster.live_of()
        sessions = Sessions(
            cluster.where,
            self._token,
            live,
            cluster.registry,
            sandbox,
            connects=cluster.connects,
            reads=reads,
            keeps_history=self._keeps_history,
        )
        nursery.start_soon(sessions.run)
        place = Place(f"barnabas-console-{self._site.port}", name, tuple(self._clusters))
        has_tls, is_read_only = self._site.has_tls, self._is_read_only
        return ConsoleService(
            self._guard(), sessions, live, place, has_tls=has_tls, is_read_only=is_read_only
        )

    def _guard(self) -> Guard:
        from barnabas.console.guard import Guard

        site = self._site
        names = site.hosts if site.is_local else {*site.hosts, socket.gethostname()}
        scheme = "https" if site.has_tls else "http"
        return Guard(names, self._origins, is_local=site.is_local, scheme=scheme)

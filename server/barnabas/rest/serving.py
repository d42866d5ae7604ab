"""The REST API at an address, as started by `barnabas serve --http` and `barnabas http`.

The rule: without logins every client can write to every topic, so an address beyond this machine needs logins, or an
explicit option to serve without them. The handling of requests is imported with the first connection, in a thread: a
server without clients is little more than a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from barnabas.environment.lazy import Lazy
from barnabas.network.visitors import Address, Site
from barnabas.sandbox.pool import Sandbox

if TYPE_CHECKING:
    from barnabas.network.visitors import Visitor
    from barnabas.rest.backend import Cluster
    from barnabas.rest.http import RestService

WHAT = "the REST API"
DEFAULT_ADDRESS = "localhost:8082"
CONNECTIONS_MAX = 256
CALL_SECONDS_MAX = 3.0
"""Timeout of a sandbox call on data of clients and producers."""
_UNGUARDED = (
    "every client that reaches the REST API on {} could write to every topic: have users log in, or use an address of this "
    "machine alone (localhost)"
)


class RestServer:
    """The REST API at an address. Lifecycle: bound by its creation; `run` in a task, until cancelled."""

    def __init__(self, address: Address, *, may_be_reached: bool) -> None:
        """Bind the address; `may_be_reached` where users log in, or where the operator has opened it to all.

        Raises AddressError.
        """
        self._site = Site(address, WHAT, unguarded="" if may_be_reached else _UNGUARDED)

    @property
    def url(self) -> str:
        """URL of the server."""
        return self._site.url

    async def run(
        self, cluster: Cluster, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve the clients of a cluster, until cancelled. Raises AddressError."""
        try:
            async with Sandbox(seconds_max=CALL_SECONDS_MAX) as sandbox, trio.open_nursery() as nursery:

                def make() -> RestService:
                    from barnabas.rest.backend import Users
                    from barnabas.rest.http import RestService
                    from barnabas.rest.instances import Instances

                    users, instances = Users(cluster, sandbox, nursery), Instances()
                    nursery.start_soon(users.run)
                    nursery.start_soon(instances.run)
                    site = self._site
                    return RestService(
                        users, instances, site.hosts, is_local=site.is_local, has_tls=site.has_tls
                    )

                service = Lazy(make, "barnabas.rest.http", beside=trio.to_thread.run_sync)

                async def answer(visitor: Visitor) -> None:
                    await (await service.ready()).serve(visitor)

                await nursery.start(self._site.serve, CONNECTIONS_MAX, answer)
                task_status.started()
        finally:
            self._site.close()

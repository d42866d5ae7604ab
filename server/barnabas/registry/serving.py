"""A registry at an address, as started by `barnabas serve --registry` and `barnabas registry`.

The rule: without logins every client can change every schema, so an address beyond this machine needs logins, or an
explicit option to serve without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.network.visitors import Address, Site
from barnabas.registry.formats import check_installed
from barnabas.registry.http import RegistryService
from barnabas.registry.parsing import Parsing
from barnabas.registry.reading import Reading
from barnabas.registry.registering import Registering
from barnabas.registry.removing import Removing
from barnabas.registry.routes import Registry
from barnabas.registry.setting import Setting
from barnabas.registry.store import TOPIC_NAME, Store
from barnabas.sandbox.pool import Sandbox

if TYPE_CHECKING:
    from barnabas.client import ClientSettings, Endpoint
    from barnabas.registry.access import Logins

WHAT = "the registry"
DEFAULT_ADDRESS = "localhost:8081"
CONNECTIONS_MAX = 256
_UNGUARDED = (
    "every client that reaches the registry on {} could change every schema: have users log in, or use an address of "
    "this machine alone (localhost)"
)


class RegistryServer:
    """A registry at an address. Lifecycle: bound by its creation; `run` in a task, until cancelled."""

    def __init__(self, address: Address, *, may_be_reached: bool) -> None:
        """Bind the address; `may_be_reached` where users log in, or where the operator has opened it to all.

        Raises AddressError; ModuleNotFoundError without the libraries for schemas.
        """
        check_installed()
        self._site = Site(address, WHAT, unguarded="" if may_be_reached else _UNGUARDED)

    @property
    def url(self) -> str:
        """URL of the registry."""
        return self._site.url

    @property
    def local_url(self) -> str:
        """URL of the registry for this process: an address that it has bound, no name."""
        return self._site.local_url

    async def run(
        self,
        bootstrap: Sequence[Endpoint],
        settings: ClientSettings,
        logins: Logins | None = None,
        topic: str = TOPIC_NAME,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve a registry stored in a Kafka, until cancelled; started once it has read the whole topic.

        With `logins`, users log in to the broker. Raises RegistryError, ClientError.
        """
        try:
            async with Sandbox() as sandbox, trio.open_nursery() as nursery:
                store = Store(bootstrap, settings, topic)
                parsing = Parsing(sandbox)
                registry = Registry(
                    store,
                    Reading(store.state, parsing),
                    Registering(store, parsing),
                    Removing(store),
                    Setting(store),
                )
                service = RegistryService(registry, logins, self._site.hosts, is_local=self._site.is_local)
                nursery.start_soon(parsing.prepare)
                await nursery.start(store.run)
                await nursery.start(self._site.serve, CONNECTIONS_MAX, service.serve)
                task_status.started()
        finally:
            self._site.close()

"""The REST API of `serve --http`: a client of this broker, in its process. Imported only if it is enabled.

The rule: it works with any Kafka; its connections and logins are those of all companions (`beside`). Schemas are those
of the registry in the same process, unless another one is set.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from barnabas.broker.beside import Companion, explained, has_logins, own_listener, user_logins
from barnabas.broker.startup import StartupError, bootstrap_of
from barnabas.client import parse_bootstrap
from barnabas.config import broker as settings
from barnabas.network.visitors import read_address
from barnabas.registry.client_settings import PREFIX, RegistryAt
from barnabas.rest.backend import Cluster
from barnabas.rest.serving import WHAT, RestServer

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.registry_beside import RegistryBeside
    from barnabas.config.loading import BrokerConfig

REST = Companion(settings.HTTP_LISTENER, "REST API", "barnabas-http")


class RestBeside:
    """Companion of one broker: its REST API."""

    def __init__(self, config: BrokerConfig, registry: RegistryBeside | None) -> None:
        """`registry` is that in the same process, None without one."""
        self._config = config
        self._registry = registry
        self._broker: Broker | None = None
        self._server: RestServer | None = None

    def begin(self) -> str:
        """Bind the address; returns words for the ready line. Raises StartupError."""
        config = self._config
        with explained(REST):
            address = read_address(
                config.get(settings.HTTP_LISTENER),
                WHAT,
                certificate=config.get(settings.HTTP_CERTIFICATE),
                key=config.get(settings.HTTP_KEY),
            )
            self._server = RestServer(address, may_be_reached=has_logins(config))
        return f" http={self._server.url}"

    def attach(self, broker: Broker) -> None:
        """Be a client of this broker, as long as it runs where it did before."""
        self._broker = broker

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises StartupError."""
        server, broker, config = self._server, self._broker, self._config
        assert server is not None
        assert broker is not None
        listener, own = own_listener(REST, config, broker)
        cluster = Cluster(tuple(parse_bootstrap(bootstrap_of(listener))), own, registry=self._registry_at())
        if has_logins(config):
            logins = user_logins(REST, config, broker)
            cluster = replace(cluster, bootstrap=tuple(logins.bootstrap), settings_of=logins.settings_of)
        with explained(REST):
            await server.run(cluster, task_status=task_status)

    def _registry_at(self) -> RegistryAt | None:
        """Return the address of the schema registry, None without one. Raises StartupError."""
        url = self._config.get(settings.HTTP_REGISTRY_URL)
        if url:
            try:
                return RegistryAt.of({f"{PREFIX}url": url})
            except ValueError as error:
                raise StartupError(f"{settings.HTTP_REGISTRY_URL.name}: {error}") from None
        own = self._registry
        return None if own is None else RegistryAt(own.local_url, own.client_tls(), is_of_the_broker=True)

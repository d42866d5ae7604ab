"""The schema registry of `serve --registry`: a client of this broker, in its process. Imported only if it is enabled.

The rule: it works with any Kafka; its connections and logins are those of all companions (`beside`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.broker.beside import Companion, client_tls_of, explained, has_logins, own_listener, user_logins
from barnabas.broker.startup import bootstrap_of
from barnabas.client import parse_bootstrap
from barnabas.config import broker as settings
from barnabas.network.visitors import read_address
from barnabas.registry.access import Logins
from barnabas.registry.serving import WHAT, RegistryServer

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.config.loading import BrokerConfig

REGISTRY = Companion(settings.REGISTRY_LISTENER, "registry", "barnabas-registry")


class RegistryBeside:
    """Companion of one broker: its schema registry."""

    def __init__(
        self, config: BrokerConfig, make_server: Callable[..., RegistryServer] = RegistryServer
    ) -> None:
        self._config = config
        self._make_server = make_server
        self._broker: Broker | None = None
        self._server: RegistryServer | None = None

    def begin(self) -> str:
        """Bind the address; returns words for the ready line. Raises StartupError."""
        config = self._config
        with explained(REGISTRY):
            address = read_address(
                config.get(settings.REGISTRY_LISTENER),
                WHAT,
                certificate=config.get(settings.REGISTRY_CERTIFICATE),
                key=config.get(settings.REGISTRY_KEY),
            )
            self._server = self._make_server(address, may_be_reached=has_logins(config))
        return f" registry={self.url}"

    @property
    def url(self) -> str:
        """URL of the registry, once it has begun."""
        assert self._server is not None
        return self._server.url

    @property
    def local_url(self) -> str:
        """URL for a client in this process, at the very address that is bound: a name may lead to another server."""
        assert self._server is not None
        return self._server.local_url

    def client_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of a client in this process, which trusts the registry's certificate for any name."""
        return client_tls_of(self._config.get(settings.REGISTRY_CERTIFICATE))

    def attach(self, broker: Broker) -> None:
        """Be kept by this broker, as long as it runs where it did before."""
        self._broker = broker

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises StartupError."""
        server, broker, config = self._server, self._broker, self._config
        assert server is not None
        assert broker is not None
        listener, own = own_listener(REGISTRY, config, broker)
        logins = Logins(*user_logins(REGISTRY, config, broker)) if has_logins(config) else None
        with explained(REGISTRY):
            await server.run(parse_bootstrap(bootstrap_of(listener)), own, logins, task_status=task_status)

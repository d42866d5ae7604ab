"""The schema registry of `serve --registry`: a client of this broker, in its process. Imported where one is asked for.

The rule: it is the registry of any Kafka, and knows nothing of the broker but its addresses: it connects to one without
encryption or login, or else as brokers connect to each other. With an authorizer, or where clients log in, so do the users
of the registry.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from barnabas.broker.peer_security import client_tls, for_peers
from barnabas.broker.startup import StartupError, bootstrap_of
from barnabas.client import ClientError, ClientSettings, parse_bootstrap
from barnabas.client.settings import SaslCredentials
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.config.listeners import inter_broker_listener, listener_settings, mechanisms_of
from barnabas.environment import extras
from barnabas.errors import leaves
from barnabas.network.visitors import AddressError, read_address
from barnabas.registry.access import Logins
from barnabas.registry.errors import RegistryError
from barnabas.registry.serving import WHAT, RegistryServer

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.listener import Listener

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Ways in which a name and a password log in, the best first."""
CLIENT_ID = "barnabas-registry"


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
        with _explained():
            address = read_address(
                config.get(settings.REGISTRY_LISTENER),
                WHAT,
                certificate=config.get(settings.REGISTRY_CERTIFICATE),
                key=config.get(settings.REGISTRY_KEY),
            )
            self._server = self._make_server(address, may_be_reached=_has_logins(config))
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
        certificate = self._config.get(settings.REGISTRY_CERTIFICATE)
        if not certificate:
            return None
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def attach(self, broker: Broker) -> None:
        """Be kept by this broker, as long as it runs where it did before."""
        self._broker = broker

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises StartupError."""
        server, broker, config = self._server, self._broker, self._config
        assert server is not None
        assert broker is not None
        listener, own = _own(config, broker)
        logins = _logins(config, broker) if _has_logins(config) else None
        with _explained():
            await server.run(parse_bootstrap(bootstrap_of(listener)), own, logins, task_status=task_status)


@contextmanager
def _explained() -> Iterator[None]:
    """Name the setting in what goes wrong within a block. Raises StartupError."""
    try:
        yield
    except* (AddressError, RegistryError, ClientError, ModuleNotFoundError) as group:
        error = leaves(group)[0]
        text = extras.explain(error) if isinstance(error, ModuleNotFoundError) else None
        raise StartupError(f"{settings.REGISTRY_LISTENER.name}: {text or error}") from None


def _has_logins(config: BrokerConfig) -> bool:
    """Say whether users of the registry have to log in."""
    names = [text.partition("://")[0].strip().upper() for text in config.listeners()]
    return has_authorizer(config) or any(listener_settings(config, name).has_sasl for name in names)


def _own(config: BrokerConfig, broker: Broker) -> tuple[Listener, ClientSettings]:
    """Return the listener that the registry connects to, and how. Raises StartupError."""
    plain = ClientSettings(client_id=CLIENT_ID)
    for listener in broker.listeners:
        if listener.security_protocol == "PLAINTEXT":
            return listener, plain
    name = inter_broker_listener(config)
    for listener in broker.listeners:
        if listener.name == name:
            return listener, for_peers(config, plain)
    raise StartupError(
        f"{settings.REGISTRY_LISTENER.name}: all listeners require a login; choose the listener and the login of the "
        "registry by inter.broker.listener.name or security.inter.broker.protocol"
    )


def _logins(config: BrokerConfig, broker: Broker) -> Logins:
    """Return how users of the registry log in. Raises StartupError."""
    for listener in broker.listeners:
        of_listener = listener_settings(config, listener.name)
        if not of_listener.has_sasl:
            continue
        offered = mechanisms_of(of_listener)
        for mechanism in MECHANISMS:
            if mechanism in offered:
                tls = client_tls(of_listener) if of_listener.has_tls else None
                return Logins(
                    parse_bootstrap(bootstrap_of(listener)),
                    _settings_of(replace(ClientSettings(client_id=CLIENT_ID), tls=tls), mechanism),
                )
    raise StartupError(
        f"{settings.REGISTRY_LISTENER.name}: users of the registry log in to the broker, and no listener takes a "
        f"password: add one with {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}"
    )


def _settings_of(plain: ClientSettings, mechanism: str) -> Callable[[str, str], ClientSettings]:
    return lambda user, password: replace(plain, sasl=SaslCredentials(mechanism, user, password))

"""Companions of a broker that are clients of it, in its process: their connections, and the logins of their users.

The rule: a companion knows only the broker's addresses: it connects to one without encryption or login, or else
as brokers connect to each other. With an authorizer, or if clients log in, the users of the companion log in, too.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.peer_security import client_tls, for_peers
from barnabas.broker.startup import StartupError, bootstrap_of
from barnabas.client import ClientError, ClientSettings, Endpoint, parse_bootstrap
from barnabas.client.settings import SaslCredentials
from barnabas.config.authorizer import has_authorizer
from barnabas.config.listeners import inter_broker_listener, listener_settings, mechanisms_of
from barnabas.environment import extras
from barnabas.errors import leaves
from barnabas.network.visitors import AddressError
from barnabas.registry.errors import RegistryError

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting
    from barnabas.serving.listener import Listener

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Ways in which a name and a password log in, the best first."""


class Companion(NamedTuple):
    """A companion server: the setting with its address, its name in messages, and the client id of its clients."""

    listener: Setting[str]
    what: str
    client_id: str


class UserLogins(NamedTuple):
    """The listener for logins of users, and the settings of a client with a user's name and password."""

    bootstrap: list[Endpoint]
    settings_of: Callable[[str, str], ClientSettings]


@contextmanager
def explained(companion: Companion) -> Iterator[None]:
    """Name the setting in errors within a block. Raises StartupError."""
    try:
        yield
    except* (AddressError, RegistryError, ClientError, ModuleNotFoundError) as group:
        error = leaves(group)[0]
        text = extras.explain(error) if isinstance(error, ModuleNotFoundError) else None
        raise StartupError(f"{companion.listener.name}: {text or error}") from None


def has_logins(config: BrokerConfig) -> bool:
    """Return whether users of a companion have to log in."""
    names = [text.partition("://")[0].strip().upper() for text in config.listeners()]
    return has_authorizer(config) or any(listener_settings(config, name).has_sasl for name in names)


def own_listener(
    companion: Companion, config: BrokerConfig, broker: Broker
) -> tuple[Listener, ClientSettings]:
    """Return the listener that a companion connects to, and how. Raises StartupError."""
    plain = ClientSettings(client_id=companion.client_id)
    for listener in broker.listeners:
        if listener.security_protocol == "PLAINTEXT":
            return listener, plain
    name = inter_broker_listener(config)
    for listener in broker.listeners:
        if listener.name == name:
            return listener, for_peers(config, plain)
    raise StartupError(
        f"{companion.listener.name}: all listeners require a login; choose the listener and the login of the "
        f"{companion.what} by inter.broker.listener.name or security.inter.broker.protocol"
    )


def user_logins(companion: Companion, config: BrokerConfig, broker: Broker) -> UserLogins:
    """Return how users of a companion log in. Raises StartupError."""
    for listener in broker.listeners:
        of_listener = listener_settings(config, listener.name)
        if not of_listener.has_sasl:
            continue
        offered = mechanisms_of(of_listener)
        for mechanism in MECHANISMS:
            if mechanism in offered:
                tls = client_tls(of_listener) if of_listener.has_tls else None
                plain = replace(ClientSettings(client_id=companion.client_id), tls=tls)
                return UserLogins(parse_bootstrap(bootstrap_of(listener)), _settings_of(plain, mechanism))
    raise StartupError(
        f"{companion.listener.name}: users of the {companion.what} log in to the broker, and no listener takes a "
        f"password: add one with {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}"
    )


def _settings_of(plain: ClientSettings, mechanism: str) -> Callable[[str, str], ClientSettings]:
    return lambda user, password: replace(plain, sasl=SaslCredentials(mechanism, user, password))


def client_tls_of(certificate: str) -> ssl.SSLContext | None:
    """Return the TLS context of a client in this process, which trusts a companion's certificate for any name."""
    if not certificate:
        return None
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context

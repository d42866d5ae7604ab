"""The schema registry of `serve --registry`: a client of this broker, in its process. Imported where one is asked for.

The rule: it is the registry of any Kafka, and knows nothing of the broker but its addresses: it connects to one without
encryption or login, or else as brokers connect to each other. With an authorizer, or where clients log in, so do the users
of the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from barnabas.broker.peer_security import client_tls, for_peers
from barnabas.broker.startup import StartupError, bootstrap_of
from barnabas.client import ClientError, ClientSettings, parse_bootstrap
from barnabas.client.settings import SaslCredentials
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.config.cluster import inter_broker_listener
from barnabas.config.listeners import listener_settings, mechanisms_of
from barnabas.environment import extras
from barnabas.errors import leaves
from barnabas.network.visitors import AddressError
from barnabas.registry.access import Logins
from barnabas.registry.errors import RegistryError
from barnabas.registry.serving import address_of, serve

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.listener import Listener

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Ways in which a name and a password log in, the best first."""
CLIENT_ID = "barnabas-registry"


async def run_registry(
    config: BrokerConfig, broker: Broker, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve a registry until cancelled; reports its URL. Raises StartupError."""
    try:
        address = address_of(
            config.get(settings.REGISTRY_LISTENER),
            certificate=config.get(settings.REGISTRY_CERTIFICATE),
            key=config.get(settings.REGISTRY_KEY),
        )
        listener, own = _own(config, broker)
        logins = _logins(config, broker)
        await serve(address, parse_bootstrap(bootstrap_of(listener)), own, logins, task_status=task_status)
    except* (AddressError, RegistryError, ClientError, ModuleNotFoundError) as group:
        error = leaves(group)[0]
        text = extras.explain(error) if isinstance(error, ModuleNotFoundError) else None
        raise StartupError(f"{settings.REGISTRY_LISTENER.name}: {text or error}") from None


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
        f"{settings.REGISTRY_LISTENER.name}: all listeners have clients log in; say by inter.broker.listener.name, or by "
        "security.inter.broker.protocol, to which the registry connects, and as whom"
    )


def _logins(config: BrokerConfig, broker: Broker) -> Logins | None:
    """Return how users of the registry log in; None where nobody has to. Raises StartupError."""
    with_login = [one for one in broker.listeners if listener_settings(config, one.name).has_sasl]
    if not with_login and not has_authorizer(config):
        return None
    for listener in with_login:
        found = listener_settings(config, listener.name)
        offered = mechanisms_of(found)
        for mechanism in MECHANISMS:
            if mechanism in offered:
                tls = client_tls(found) if found.has_tls else None
                return Logins(
                    parse_bootstrap(bootstrap_of(listener)),
                    _settings_of(replace(ClientSettings(client_id=CLIENT_ID), tls=tls), mechanism),
                )
    raise StartupError(
        f"{settings.REGISTRY_LISTENER.name}: users of the registry log in as the broker's, and no listener takes a name "
        f"and a password: one with {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]} is needed"
    )


def _settings_of(plain: ClientSettings, mechanism: str) -> Callable[[str, str], ClientSettings]:
    return lambda user, password: replace(plain, sasl=SaslCredentials(mechanism, user, password))

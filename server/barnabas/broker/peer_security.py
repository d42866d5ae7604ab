"""How this broker presents itself to the other brokers of a cluster: TLS and SASL of the listener between brokers.

The rule: settings are those of that listener, as Kafka resolves them; what cannot work stops the start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.broker.sasl_offers import MODULES, jaas_of
from barnabas.broker.startup import StartupError
from barnabas.broker.tls_settings import tls_settings
from barnabas.client.settings import MECHANISMS, SaslCredentials
from barnabas.config import broker as settings
from barnabas.config.cluster import inter_broker_listener
from barnabas.config.listeners import ListenerSettings, listener_settings
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    import ssl

    from barnabas.client.settings import ClientSettings
    from barnabas.config.loading import BrokerConfig


def for_peers(config: BrokerConfig, plain: ClientSettings) -> ClientSettings:
    """Return settings with which other brokers are reached. Reads files. Raises StartupError."""
    try:
        listener = listener_settings(config, inter_broker_listener(config))
        return replace(plain, tls=_context(listener), sasl=_credentials(listener))
    except SettingError as error:
        raise StartupError(f"between brokers: {error}") from error


def _context(listener: ListenerSettings) -> ssl.SSLContext | None:
    if not listener.has_tls:
        return None
    from barnabas.network.tls_context import client_context
    from barnabas.network.tls_stores import TlsError

    try:
        return client_context(tls_settings(listener))
    except TlsError as error:
        raise SettingError(f"listener {listener.name}: {error}") from error


def _credentials(listener: ListenerSettings) -> SaslCredentials | None:
    if not listener.has_sasl:
        return None
    mechanism = listener.get(settings.SASL_MECHANISM_INTER_BROKER_PROTOCOL)
    if mechanism not in MECHANISMS:
        raise SettingError(
            f"{settings.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name}={mechanism}: brokers log in to each other with one of "
            f"{', '.join(MECHANISMS)}"
        )
    entry = jaas_of(listener, mechanism)
    options = entry.options if entry is not None else {}
    if "username" not in options or "password" not in options:
        raise SettingError(
            f"set {listener.name_for(settings.SASL_JAAS_CONFIG, mechanism)}={MODULES[mechanism]} required "
            'username="NAME" password="PASSWORD"; with which this broker logs in to others'
        )
    return SaslCredentials(mechanism, options["username"], options["password"])

"""Security of this broker's connections to others of its cluster: TLS and SASL of the listener of brokers, or controllers.

The rule: settings are those of that listener, as Kafka resolves them; settings that cannot work stop the start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.broker.sasl_offers import MODULES, jaas_of
from barnabas.broker.startup import StartupError
from barnabas.broker.tls_settings import tls_settings
from barnabas.client.settings import MECHANISMS, SaslCredentials
from barnabas.config import broker as settings
from barnabas.config.listeners import ListenerSettings, inter_broker_listener, listener_settings
from barnabas.config.setting import SettingError
from barnabas.security.sasl.mechanism import GSSAPI, OAUTHBEARER

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from barnabas.client.settings import ClientSettings
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.quorum import QuorumSettings
    from barnabas.config.setting import Setting
    from barnabas.security.jaas import JaasEntry

_OAUTH = "org.apache.kafka.common.security.oauthbearer."
ASKED_FOR = (
    f"{_OAUTH}OAuthBearerLoginCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler",  # its name before Kafka 4
)
UNSECURED = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_EXTENSION = "extension_"


def for_peers(config: BrokerConfig, plain: ClientSettings) -> ClientSettings:
    """Return settings with which other brokers are reached. Reads files. Raises StartupError."""
    try:
        listener = listener_settings(config, inter_broker_listener(config))
        return _secured(plain, listener, settings.SASL_MECHANISM_INTER_BROKER_PROTOCOL)
    except SettingError as error:
        raise StartupError(f"between brokers: {error}") from error


def for_controllers(config: BrokerConfig, quorum: QuorumSettings, plain: ClientSettings) -> ClientSettings:
    """Return settings with which the controllers of a KRaft quorum are reached. Reads files. Raises StartupError."""
    try:
        listener = ListenerSettings(config, quorum.listener, quorum.protocol)
        return _secured(plain, listener, settings.SASL_MECHANISM_CONTROLLER_PROTOCOL)
    except SettingError as error:
        raise StartupError(f"to the controllers: {error}") from error


def _secured(plain: ClientSettings, listener: ListenerSettings, mechanism: Setting[str]) -> ClientSettings:
    return replace(plain, tls=client_tls(listener), sasl=_credentials(listener, mechanism))


def client_tls(listener: ListenerSettings) -> ssl.SSLContext | None:
    """Return the TLS context for connections to a listener; None if it is not encrypted. Reads files.

    Raises SettingError.
    """
    if not listener.has_tls:
        return None
    from barnabas.network.tls_context import client_context
    from barnabas.network.tls_stores import TlsError

    try:
        return client_context(tls_settings(listener))
    except TlsError as error:
        raise SettingError(f"listener {listener.name}: {error}") from error


def _credentials(listener: ListenerSettings, setting: Setting[str]) -> SaslCredentials | None:
    """Return the login to a listener by the mechanism that a setting names. Raises SettingError."""
    if not listener.has_sasl:
        return None
    mechanism = listener.get(setting)
    if mechanism not in MECHANISMS:
        peers = "each other" if setting is settings.SASL_MECHANISM_INTER_BROKER_PROTOCOL else "controllers"
        raise SettingError(
            f"{setting.name}={mechanism}: brokers log in to {peers} with one of {', '.join(MECHANISMS)}"
        )
    entry = jaas_of(listener, mechanism)
    options = entry.options if entry is not None else {}
    if mechanism == OAUTHBEARER:
        return _with_tokens(listener, options)
    if mechanism == GSSAPI:
        return _with_tickets(listener, entry, setting)
    if "username" not in options or "password" not in options:
        raise SettingError(
            f"set {listener.name_for(settings.SASL_JAAS_CONFIG, mechanism)}={MODULES[mechanism]} required "
            'username="NAME" password="PASSWORD"; with which this broker logs in to others'
        )
    return SaslCredentials(mechanism, options["username"], options["password"])


def _with_tickets(
    listener: ListenerSettings, entry: JaasEntry | None, setting: Setting[str]
) -> SaslCredentials:
    """Return a login with Kerberos. Reads the keytab. Raises SettingError."""
    from barnabas.broker.kerberos_login import tickets_of

    try:
        return SaslCredentials(GSSAPI, tickets=tickets_of(listener, entry))
    except SettingError as error:
        if listener.is_set(setting):
            raise
        raise SettingError(f"{error} ({setting.name} is not set, and its default is {GSSAPI})") from error


def _with_tokens(listener: ListenerSettings, options: Mapping[str, str]) -> SaslCredentials:
    """Return a login with tokens: from an identity provider or a file, or unsecured ones. Raises SettingError."""
    from barnabas.client.settings import extensions_of
    from barnabas.client.tokens import tokens_of, unsecured_tokens

    handler_setting = settings.SASL_LOGIN_CALLBACK_HANDLER_CLASS
    handler = listener.get(handler_setting, OAUTHBEARER)
    if handler and handler not in (*ASKED_FOR, UNSECURED):
        raise SettingError(
            f"{listener.name_of(handler_setting, OAUTHBEARER)}={handler}: there is no Java virtual machine to load it "
            f"into; there are {ASKED_FOR[0]} and {UNSECURED}"
        )
    url = listener.get(settings.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, OAUTHBEARER)
    principal = options.get("unsecuredLoginStringClaim_sub", "")
    try:
        extensions = extensions_of(
            ",".join(
                f"{name.removeprefix(_EXTENSION)}={value}"
                for name, value in options.items()
                if name.startswith(_EXTENSION)
            )
        )
        if url and handler != UNSECURED:
            identity = settings.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID
            secret = settings.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET
            source = tokens_of(
                url,
                listener.get(identity, OAUTHBEARER) or options.get("clientId", ""),
                listener.get(secret, OAUTHBEARER) or options.get("clientSecret", ""),
                listener.get(settings.SASL_OAUTHBEARER_SCOPE, OAUTHBEARER) or options.get("scope", ""),
            )
        elif principal and handler not in ASKED_FOR:
            source = unsecured_tokens(principal)
        else:
            raise SettingError(
                f"set {settings.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL.name} to where this broker gets the tokens with which "
                f"it logs in to others (or, for tests, {listener.name_for(settings.SASL_JAAS_CONFIG, OAUTHBEARER)}="
                f'{MODULES[OAUTHBEARER]} required unsecuredLoginStringClaim_sub="NAME"; to make unsecured ones)'
            )
    except SettingError:
        raise
    except ValueError as error:
        raise SettingError(f"listener {listener.name}: {error}") from error
    return SaslCredentials(OAUTHBEARER, tokens=source, extensions=extensions)

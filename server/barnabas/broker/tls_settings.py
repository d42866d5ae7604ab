"""A listener's ssl.* settings, as values for `network.tls_context`.

The rule: `ssl.client.auth` of a listener with SASL counts only where it is set for that listener (KIP-684).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.network.tls_context import TlsSettings
from barnabas.network.tls_stores import PEM, StoreSettings

if TYPE_CHECKING:
    from barnabas.config.listeners import ListenerSettings


def tls_settings(listener: ListenerSettings) -> TlsSettings:
    """Return the TLS settings that a listener obeys."""
    get = listener.get
    client_auth = get(settings.SSL_CLIENT_AUTH)
    if listener.has_sasl and listener.name_of(settings.SSL_CLIENT_AUTH) == settings.SSL_CLIENT_AUTH.name:
        client_auth = "none"
    key, chain = get(settings.SSL_KEYSTORE_KEY), get(settings.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    trusted = get(settings.SSL_TRUSTSTORE_CERTIFICATES)
    return TlsSettings(
        key_store=StoreSettings(
            "ssl.keystore",
            _type(get(settings.SSL_KEYSTORE_TYPE), is_inline=bool(key or chain)),
            get(settings.SSL_KEYSTORE_LOCATION),
            get(settings.SSL_KEYSTORE_PASSWORD),
            get(settings.SSL_KEY_PASSWORD),
            key,
            chain,
        ),
        trust_store=StoreSettings(
            "ssl.truststore",
            _type(get(settings.SSL_TRUSTSTORE_TYPE), is_inline=bool(trusted)),
            get(settings.SSL_TRUSTSTORE_LOCATION),
            get(settings.SSL_TRUSTSTORE_PASSWORD),
            certificates=trusted,
        ),
        protocol=get(settings.SSL_PROTOCOL),
        enabled_protocols=get(settings.SSL_ENABLED_PROTOCOLS),
        cipher_suites=get(settings.SSL_CIPHER_SUITES),
        client_auth=client_auth,
        identifies_endpoint=get(settings.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM).lower() == "https",
    )


def _type(kind: str, *, is_inline: bool) -> str:
    """Return the type of a store; certificates in the settings themselves are PEM, also where no type is set."""
    return PEM if is_inline and kind == settings.SSL_KEYSTORE_TYPE.default else kind

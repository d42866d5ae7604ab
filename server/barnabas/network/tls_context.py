"""TLS contexts of Python's ssl, created from Kafka's settings.

The rule: a setting that OpenSSL cannot honour is an error, never a weaker connection.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

from barnabas.network.tls_stores import KeyMaterial, StoreSettings, TlsError, read_key_store, read_trust_store
from barnabas.system.files import as_file

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS_1_3_SUITES = frozenset(
    ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
)
CLIENT_AUTH = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Kafka's ssl.* settings of one listener, or of a client."""

    key_store: StoreSettings
    trust_store: StoreSettings
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    identifies_endpoint: bool = True
    """True if a client compares the server's name with its certificate."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS contexts of accepted connections."""

    context: ssl.SSLContext
    suites: frozenset[str]
    """The suites of TLS 1.3 that may be used; OpenSSL offers all of them, so the handshake's outcome is compared."""
    certificate: str = ""
    """The broker's own certificate, as PEM."""
    has_trust_store: bool = False
    """True if a trust store is set, used or not."""

    @property
    def requires_certificate(self) -> bool:
        """True if clients without a certificate are refused."""
        return self.context.verify_mode == ssl.CERT_REQUIRED


def server_tls(settings: TlsSettings) -> ServerTls:
    """Read keys and certificates, and return the context for accepted connections. Raises TlsError."""
    if not settings.key_store.is_set:
        raise TlsError(
            "a listener with TLS needs a key and certificate: set ssl.keystore.location and ssl.keystore.type, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    material = _load_key(context, settings)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trust(context, settings)
    return ServerTls(context, _suites(settings), material.certificate, settings.trust_store.is_set)


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Read certificates, and return the context for connections to other brokers. Raises TlsError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.identifies_endpoint
    if settings.key_store.is_set:
        _load_key(context, settings)
    _load_trust(context, settings)
    return context


def _context(purpose: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    unknown = [name for name in settings.enabled_protocols if name not in VERSIONS]
    if unknown or not settings.enabled_protocols:
        raise TlsError(
            f"ssl.enabled.protocols={','.join(settings.enabled_protocols)}: there are {' and '.join(VERSIONS)}; older ones "
            "are broken"
        )
    if settings.protocol not in ("TLS", *VERSIONS):
        raise TlsError(f"ssl.protocol={settings.protocol}: there are TLS, {', '.join(VERSIONS)}")
    enabled = [VERSIONS[name] for name in settings.enabled_protocols]
    if settings.protocol == "TLSv1.2":
        enabled = [version for version in enabled if version == ssl.TLSVersion.TLSv1_2]
        if not enabled:
            raise TlsError("ssl.protocol=TLSv1.2 leaves nothing of ssl.enabled.protocols=TLSv1.3")
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # like Java: any trusted certificate ends a chain, even one signed by another
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _choose_ciphers(context, settings)
    return context


def _suites(settings: TlsSettings) -> frozenset[str]:
    named = TLS_1_3_SUITES & set(settings.cipher_suites)
    return named if settings.cipher_suites else TLS_1_3_SUITES


def _choose_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not settings.cipher_suites:
        return
    older = [name for name in settings.cipher_suites if name not in TLS_1_3_SUITES]
    shown = ",".join(settings.cipher_suites)
    for name in older:
        try:
            context.set_ciphers(openssl_name(name))
        except ssl.SSLError:
            raise TlsError(f"ssl.cipher.suites={shown}: OpenSSL does not know {name}") from None
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if context.maximum_version < ssl.TLSVersion.TLSv1_3:
            raise TlsError(f"ssl.cipher.suites={shown}: these are for TLSv1.3, and it is not enabled")
    if not _suites(settings):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        if context.minimum_version > ssl.TLSVersion.TLSv1_2:
            raise TlsError(f"ssl.cipher.suites={shown}: these are for TLSv1.2, and it is not enabled")


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite, given its standard name, as in Java."""
    parsed = re.fullmatch(r"(?:TLS|SSL)_(\w+?)_WITH_(\w+)", suite)
    if parsed is None:
        return suite
    exchange, cipher = parsed[1], parsed[2]
    cipher = (
        re.sub(r"AES_(128|256)", r"AES\1", cipher).replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    )
    parts = [cipher] if exchange == "RSA" else [exchange, cipher]
    return "-".join(parts).replace("_", "-")


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> KeyMaterial:
    material = read_key_store(settings.key_store)
    where = settings.key_store.location or f"{settings.key_store.what}.key"
    try:
        with as_file(material.pem) as path:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=material.password)
    except (ssl.SSLError, OSError, ValueError) as error:
        password = "" if material.password else "; if the key is encrypted, set ssl.key.password"
        raise TlsError(
            f"{where}: private key and certificates cannot be used together ({_reason(error)}){password}"
        ) from None
    return material


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not settings.trust_store.is_set:
        context.load_default_certs()
        return
    trusted = read_trust_store(settings.trust_store)
    where = settings.trust_store.location or f"{settings.trust_store.what}.certificates"
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"{where}: these are not certificates ({_reason(error)})") from None


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or str(error)
    return str(reason).replace("_", " ").lower()

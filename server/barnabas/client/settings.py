"""Settings of a client: addresses of brokers, security, timeouts.

The rule: names and values are those of Kafka's and librdkafka's clients, if they have a meaning here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl

    from barnabas.client.tokens import Tokens
    from barnabas.network.kerberos import Tickets

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_EXTENSION = re.compile(r"([A-Za-z]+)=([\x21-\x2b\x2d-\x7e \t\r\n]+)")


class Endpoint(NamedTuple):
    """Address at which a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """Credentials of a client, and the mechanism of its login."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: Tokens | None = None
    """Source of the tokens of OAUTHBEARER."""
    extensions: tuple[tuple[str, str], ...] = ()
    """Extensions that a broker is sent with a token (KIP-342): names and values."""
    tickets: Tickets | None = None
    """With which GSSAPI logs in."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings that all connections of a client share; times in ms."""

    client_id: str = "barnabas"
    software_name: str = "barnabas"
    software_version: str = "1"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    retries: int = 7
    """Number of times that a request is sent again after an error that may pass."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    creates_topics: bool = False
    """True if the broker may create the topics that a producer or consumer uses (`allow.auto.create.topics`)."""
    tls: ssl.SSLContext | None = None
    sasl: SaslCredentials | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str], *, client_id: str = "barnabas") -> ClientSettings:
        """Read `security.protocol`, `ssl.*`, `sasl.*`, `client.id`, `request.timeout.ms`.

        Raises ValueError, also for files that cannot be read.
        """
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        sasl = None
        if protocol.startswith("SASL"):
            mechanism = settings.get("sasl.mechanism", "PLAIN").upper()
            if mechanism not in MECHANISMS:
                raise ValueError(f"sasl.mechanism is one of {', '.join(MECHANISMS)}, not {mechanism!r}")
            sasl = _credentials(mechanism, settings)
        return cls(
            client_id=settings.get("client.id", client_id),
            request_timeout_ms=_milliseconds(settings, "request.timeout.ms", 30_000),
            tls=tls_context(settings) if protocol.endswith("SSL") else None,
            sasl=sasl,
        )


def parse_bootstrap(text: str) -> list[Endpoint]:
    """Read `host:port,...`; an IPv6 host stands in brackets. Raises ValueError."""
    endpoints = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        scheme, slashes, _ = part.partition("://")
        if slashes:
            raise ValueError(
                f"bootstrap server {part!r} begins with {scheme + slashes!r}: host:port alone is expected"
            )
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap server {part!r} is not host:port")
        endpoints.append(Endpoint(host.removeprefix("[").removesuffix("]"), int(port)))
    if not endpoints:
        raise ValueError("no bootstrap servers")
    return endpoints


def _milliseconds(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default))
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ValueError(f"{name} is a number of milliseconds, not {text!r}")
    return int(text)


def _credentials(mechanism: str, settings: Mapping[str, str]) -> SaslCredentials:
    if mechanism == "OAUTHBEARER":
        return _bearer(settings)
    if mechanism == "GSSAPI":
        return _kerberos(settings)
    return SaslCredentials(mechanism, settings.get("sasl.username", ""), settings.get("sasl.password", ""))


def _kerberos(settings: Mapping[str, str]) -> SaslCredentials:
    """Read `sasl.kerberos.*`, in librdkafka's names; without a keytab, tickets of kinit are used. Raises ValueError."""
    from barnabas.network.kerberos import KerberosError, Login, Tickets

    keytab, principal = settings.get("sasl.kerberos.keytab"), settings.get("sasl.kerberos.principal")
    if keytab and not principal:
        raise ValueError("sasl.kerberos.keytab needs sasl.kerberos.principal: who logs in with it")
    try:
        login = Login(settings.get("sasl.kerberos.service.name", "kafka"), principal, keytab)
        return SaslCredentials("GSSAPI", tickets=Tickets(login))
    except KerberosError as error:
        raise ValueError(f"GSSAPI: {error}") from None


def _bearer(settings: Mapping[str, str]) -> SaslCredentials:
    """Read `sasl.oauthbearer.*`, in librdkafka's names and in Kafka's. Raises ValueError."""
    from barnabas.client.tokens import tokens_of, unsecured_tokens

    extensions = extensions_of(settings.get("sasl.oauthbearer.extensions", ""))
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url:
        principal = re.fullmatch(r"principal=(\S+)", settings.get("sasl.oauthbearer.config", "").strip())
        if settings.get(UNSECURED, "false").lower() != "true" or principal is None:
            raise ValueError(
                "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url (or, for tests, sasl.oauthbearer.config="
                f"principal=NAME and {UNSECURED}=true)"
            )
        return SaslCredentials("OAUTHBEARER", tokens=unsecured_tokens(principal[1]), extensions=extensions)

    def either(name: str) -> str:
        return settings.get(
            f"sasl.oauthbearer.{name}", settings.get(f"sasl.oauthbearer.client.credentials.{name}", "")
        )

    import ssl

    authorities = settings.get("https.ca.location")
    try:
        tls = ssl.create_default_context(cafile=authorities) if authorities else None
    except OSError as error:
        raise ValueError(f"https.ca.location {authorities!r}: {error}") from None
    source = tokens_of(
        url,
        either("client.id"),
        either("client.secret"),
        settings.get("sasl.oauthbearer.scope", ""),
        tls=tls,
        encodes_header=settings.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
    )
    return SaslCredentials("OAUTHBEARER", tokens=source, extensions=extensions)


def extensions_of(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `name=value,...`, the extensions sent with a token. Raises ValueError."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _EXTENSION.fullmatch(part)
        if match is None or match[1] == "auth":
            raise ValueError(
                "extensions of a token are letters=value, with commas between them, and none is called auth"
            )
        pairs.append((match[1], match[2]))
    return tuple(pairs)


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context with authorities and certificate by `ssl.*`. Raises ValueError, also for unreadable files."""
    import ssl

    authorities = settings.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise ValueError(f"ssl.ca.location {authorities!r}: {error}") from None
    if settings.get("ssl.endpoint.identification.algorithm", "https") in ("", "none"):
        context.check_hostname = False
    certificate, key = settings.get("ssl.certificate.location"), settings.get("ssl.key.location")
    if certificate:
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, settings.get("ssl.key.password", ""))
        except OSError as error:
            raise ValueError(
                f"ssl.certificate.location {certificate!r}, ssl.key.location {key!r}: {error}"
            ) from None
    return context

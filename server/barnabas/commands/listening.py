"""An address as a client sees it: its name, its port, TLS or plaintext, its certificate, its login.

The rule: nothing is sent but ApiVersions, SaslHandshake, and the login that the settings ask for.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import trio

from barnabas.client import (
    AuthenticationError,
    ClientError,
    ClientSettings,
    Connection,
    ConnectionLostError,
    Endpoint,
)
from barnabas.client.connection import open_connection
from barnabas.commands.errors import explain
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Findings
from barnabas.errors import leaves
from barnabas.wire.generated.metadata import MetadataRequest

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

NOTHING, PLAINTEXT, TLS, OTHER = "nothing", "plaintext", "TLS", "another protocol"
EXPIRES_SOON = timedelta(days=30)
SECONDS_MAX = 5.0
# ApiVersions v0 of a client without a name, whose answer is correlation id, error code, versions.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
_ILLEGAL_SASL_STATE = 34


@dataclass(frozen=True, slots=True)
class Seen:
    """A checked address: its protocol, and the mechanisms that it offers; None if it needs no login."""

    protocol: str
    mechanisms: tuple[str, ...] | None = None


async def resolve(endpoint: Endpoint, findings: Findings) -> list[str]:
    """Return the addresses of a name; empty if it has none."""
    try:
        entries = await trio.socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        findings.add(
            "name", str(endpoint), PROBLEM, f"{endpoint.host} does not resolve: {text}",
            "use a name that this machine knows, or add it to DNS or /etc/hosts",
        )  # fmt: skip
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def connect(endpoint: Endpoint, addresses: Iterable[str], findings: Findings) -> list[str]:
    """Return the addresses that accept connections; others are reported, unless another address of the name does."""
    works, failures = [], []
    for address in addresses:
        try:
            with trio.fail_after(SECONDS_MAX):
                stream = await trio.open_tcp_stream(address, endpoint.port)
            await trio.aclose_forcefully(stream)
            works.append(address)
        except trio.TooSlowError:
            failures.append((address, f"no answer in {SECONDS_MAX:g} s", "a firewall may drop packets"))
        except OSError as error:
            cause = next(
                leaf for leaf in (*leaves(error.__cause__ or error), error) if isinstance(leaf, OSError)
            )
            text = os.strerror(cause.errno) if cause.errno else str(cause)
            advice = "start a broker there with `barnabas serve`, or use the port that it listens on"
            failures.append((address, text.lower(), advice))
    subject = str(endpoint)
    for address, text, advice in failures:
        if works:
            findings.add(
                "port",
                subject,
                NOTE,
                f"{address} does not accept connections: {text}",
                "clients try others of the name first or last",
            )
        else:
            findings.add(
                "port", subject, PROBLEM, f"nothing listens on {address} port {endpoint.port}: {text}", advice
            )
    if works:
        findings.add("port", subject, OK, f"{', '.join(works)} accepts connections")
    return works


async def spoken(address: str, port: int) -> str:
    """Return the protocol of a port: PLAINTEXT for Kafka without TLS, TLS, OTHER."""
    try:
        with trio.fail_after(SECONDS_MAX):
            stream = await trio.open_tcp_stream(address, port)
            async with stream:
                await stream.send_all(_API_VERSIONS)
                answer = b""
                while len(answer) < 8 and (part := await stream.receive_some(64)):
                    answer += part
        if answer[4:8] == struct.pack(">i", 7):
            return PLAINTEXT
    except (OSError, trio.TooSlowError, trio.BrokenResourceError):
        pass
    return TLS if await peer_certificate(address, port, address) is not None else OTHER


async def peer_certificate(address: str, port: int, name: str) -> bytes | None:
    """Return a port's certificate, unverified (DER), empty if it shows none; None if it does not speak TLS."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with trio.fail_after(SECONDS_MAX):
            stream = trio.SSLStream(await trio.open_tcp_stream(address, port), context, server_hostname=name)
            try:
                await stream.do_handshake()
                return bytes(stream.getpeercert(binary_form=True) or b"")
            except trio.BrokenResourceError as error:
                # a server that requires a client's certificate may refuse after sending its own
                is_tls = isinstance(error.__cause__, ssl.SSLError) and "ALERT" in str(error.__cause__)
                return b"" if is_tls else None
            finally:
                await trio.aclose_forcefully(stream)
    except (OSError, trio.TooSlowError, ValueError):
        return None


async def look_at(endpoint: Endpoint, settings: ClientSettings, findings: Findings) -> Seen | None:
    """Look at an address from outside; None if nothing listens there that a client with these settings can speak with."""
    addresses = await resolve(endpoint, findings)
    works = await connect(endpoint, addresses, findings) if addresses else []
    if not works:
        return None
    protocol = await spoken(works[0], endpoint.port)
    subject = str(endpoint)
    if protocol == OTHER:
        findings.add(
            "protocol", subject, PROBLEM, "what listens there speaks neither Kafka nor TLS", "check the port"
        )
        return None
    wants_tls = settings.tls is not None
    if wants_tls and protocol == PLAINTEXT:
        findings.add(
            "protocol",
            subject,
            PROBLEM,
            "the port is plaintext, and the settings ask for TLS",
            "leave out --tls (security.protocol PLAINTEXT or SASL_PLAINTEXT), or use the TLS listener",
        )
        return None
    if protocol == TLS:
        certificate = await peer_certificate(works[0], endpoint.port, endpoint.host)
        if not wants_tls:
            findings.add(
                "protocol",
                subject,
                PROBLEM,
                "the port speaks TLS, and the settings do not ask for it",
                "give --tls and --ca FILE (security.protocol SSL or SASL_SSL)",
            )
        if certificate:
            judge_certificate(certificate, endpoint, findings)
        if not wants_tls:
            return None
    findings.add(
        "protocol", subject, OK, f"Kafka over {'TLS' if wants_tls else 'plaintext'}, as the settings ask"
    )
    return Seen(protocol, await _offered(endpoint, settings, findings))


def judge_certificate(
    data: bytes, endpoint: Endpoint, findings: Findings, now: datetime | None = None
) -> None:
    """Judge the names and the time of a certificate; its trust shows when a client connects."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(data)
    subject = str(endpoint)
    today = now or datetime.now(UTC)
    until = certificate.not_valid_after_utc
    if until < today:
        findings.add(
            "certificate",
            subject,
            PROBLEM,
            f"it has expired on {until:%Y-%m-%d}",
            "renew it, and have the broker load it",
        )
    elif certificate.not_valid_before_utc > today:
        findings.add(
            "certificate",
            subject,
            PROBLEM,
            f"it is good only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} on",
            "check the clock of this machine, or renew it",
        )
    elif until - today < EXPIRES_SOON:
        findings.add("certificate", subject, NOTE, f"it expires on {until:%Y-%m-%d}", "renew it soon")
    else:
        findings.add("certificate", subject, OK, f"good until {until:%Y-%m-%d}")
    names = _names(certificate)
    if not _is_named(endpoint.host, names):
        findings.add(
            "certificate", subject, PROBLEM, f"it is for {', '.join(names) or 'no name'}, not for {endpoint.host}",
            "connect by one of its names, or add this one to it (subjectAltName)",
        )  # fmt: skip


def _names(certificate: Certificate) -> list[str]:
    from cryptography import x509

    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    names = list(alternatives.get_values_for_type(x509.DNSName))
    return names + [str(address) for address in alternatives.get_values_for_type(x509.IPAddress)]


def _is_named(host: str, names: Iterable[str]) -> bool:
    host = host.lower().rstrip(".")
    return any(
        host == name.lower() or (name.startswith("*.") and host.partition(".")[2] == name[2:].lower())
        for name in names
    )


async def _offered(
    endpoint: Endpoint, settings: ClientSettings, findings: Findings
) -> tuple[str, ...] | None:
    """Return the mechanisms of a listener, None if it requires no login; reports those that the settings lack."""
    from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest

    subject = str(endpoint)
    try:
        async with open_connection(endpoint, replace(settings, sasl=None)) as connection:
            if 17 not in connection.versions:
                return None
            answer = await connection.ask(SaslHandshakeRequest("none"), version_max=1)
    except ClientError as error:
        findings.add("TLS" if settings.tls else "protocol", subject, PROBLEM, explain(error))
        return None
    if answer.error_code == _ILLEGAL_SASL_STATE:
        if settings.sasl is not None:
            findings.add(
                "login",
                subject,
                PROBLEM,
                "the listener wants no login, and the settings have one",
                "leave out --user (security.protocol PLAINTEXT or SSL), or use the SASL listener",
            )
        return None
    mechanisms = tuple(answer.mechanisms)
    offers = ", ".join(mechanisms) or "none"
    if settings.sasl is None:
        findings.add(
            "login",
            subject,
            PROBLEM,
            f"the listener wants a login, and the settings have none; it offers {offers}",
            f"give --user NAME --mechanism {mechanisms[0] if mechanisms else '...'}",
        )
    elif settings.sasl.mechanism not in mechanisms:
        findings.add(
            "login",
            subject,
            PROBLEM,
            f"it offers {offers}, not {settings.sasl.mechanism}",
            f"give --mechanism {mechanisms[0] if mechanisms else '...'}, or add it to sasl.enabled.mechanisms",
        )
    return mechanisms


async def try_login(endpoint: Endpoint, settings: ClientSettings, findings: Findings) -> Connection | None:
    """Connect, log in by the settings, and request the brokers; None if that fails."""
    subject = str(endpoint)
    try:
        async with open_connection(endpoint, settings) as connection:
            await connection.ask(MetadataRequest(topics=[]), version_max=12)
    except AuthenticationError as error:
        findings.add(
            "login",
            subject,
            PROBLEM,
            str(error),
            "check user, password and mechanism; `barnabas users list` shows the users",
        )
        return None
    except ConnectionLostError as error:
        findings.add("login", subject, PROBLEM, explain(error))
        return None
    except ClientError as error:
        findings.add("login", subject, PROBLEM, explain(error))
        return None
    if settings.sasl is not None:
        findings.add("login", subject, OK, f"logged in with {settings.sasl.mechanism}")
    else:
        findings.add("login", subject, SKIPPED, "the listener wants none")
    return connection

"""TLS of a tap: as a server to its clients, as a client to brokers.

The rule: unusable files and options are errors before serving starts.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from barnabas.network.certificates import AUTHORITY, LOCAL_HOSTS, make_all

SERVER = "tap"


class TlsOptionError(ValueError):
    """Files that cannot be used."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate and key, and the trusted authority; PEM files, None for missing ones."""

    certificate: str | None = None
    key: str | None = None
    key_password: str = ""
    authority: str | None = None


def generated(directory: Path, hosts: tuple[str, ...]) -> TlsFiles:
    """Create a certificate for these hosts, signed by a new authority, unless the directory has one.

    Raises TlsOptionError.
    """
    try:
        make_all(
            directory,
            SERVER,
            hosts=tuple(dict.fromkeys((*hosts, *LOCAL_HOSTS))),
            authority_name="Barnabas tap CA",
        )
    except OSError as error:
        raise TlsOptionError(f"--tls-directory {directory}: {error}") from error
    return TlsFiles(
        str(directory / f"{SERVER}.crt"),
        str(directory / f"{SERVER}.key"),
        authority=str(directory / f"{AUTHORITY}.crt"),
    )


def server_context(files: TlsFiles, client_authority: str | None) -> ssl.SSLContext:
    """Return the context for clients; with `client_authority` they must present a certificate signed by it.

    Raises TlsOptionError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_key(context, files)
    if client_authority is not None:
        _load_authority(context, client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(files: TlsFiles, *, checks_name: bool = True) -> ssl.SSLContext:
    """Return the context for connections to brokers. Raises TlsOptionError."""
    context = ssl.create_default_context()
    if files.authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(context, files.authority)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = checks_name
    if files.certificate is not None:
        _load_key(context, files)
    return context


def _load_key(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.certificate is not None
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, files.key_password)
    except (OSError, ValueError) as error:
        where = files.certificate + (f", {files.key}" if files.key else "")
        raise TlsOptionError(f"certificate and key {where}: {_reason(error)}") from None


def _load_authority(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise TlsOptionError(f"authority {path}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return str(reason).replace("_", " ").lower()

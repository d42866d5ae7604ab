"""A local certificate authority, for demonstrations and taps, and the keys that it signs, as PEM files.

The rule: existing files are used again; only the owner of the directory can read a key.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=3650)
AUTHORITY = "ca"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Signed(NamedTuple):
    """A key with its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make_all(
    directory: Path,
    server: str,
    users: tuple[str, ...] = (),
    *,
    hosts: Sequence[str] = LOCAL_HOSTS,
    authority_name: str = "Barnabas demonstration CA",
) -> None:
    """Create the authority, the key of a server and those of its users, unless they exist. Raises OSError.

    Each has the files NAME.key, NAME.crt, and NAME.pem with both. `hosts` are the names and addresses of the server.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority = _read(directory, AUTHORITY)
    if authority is None:
        authority = _sign(authority_name, None)
        _write(directory, AUTHORITY, authority)
    for name in (server, *users):
        if not (directory / f"{name}.pem").exists():
            _write(directory, name, _sign(name, authority, hosts))


def _sign(name: str, by: Signed | None, hosts: Sequence[str] = LOCAL_HOSTS) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if by is not None:
        names = [_general_name(host) for host in hosts]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(issuer, critical=False)
    return Signed(key, builder.sign(by.key if by is not None else key, hashes.SHA256()))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read(directory: Path, name: str) -> Signed | None:
    try:
        key = load_pem_private_key((directory / f"{name}.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((directory / f"{name}.crt").read_bytes())
    except FileNotFoundError:
        return None
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Signed(key, certificate)


def _write(directory: Path, name: str, signed: Signed) -> None:
    key = signed.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = signed.certificate.public_bytes(Encoding.PEM)
    write_private(directory / f"{name}.key", key)
    (directory / f"{name}.crt").write_bytes(certificate)
    write_private(directory / f"{name}.pem", key + certificate)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read. Raises OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)

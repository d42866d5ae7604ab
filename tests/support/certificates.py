"""Certificates for tests: an authority, and keys that it has signed, as PEM and as PKCS12."""

from __future__ import annotations

import datetime
import ipaddress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

NAMES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "E": NameOID.EMAIL_ADDRESS,
    "DC": NameOID.DOMAIN_COMPONENT,
}
DAY = datetime.timedelta(days=1)


class Signed(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        """The key, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def encrypted_key_pem(self, password: str) -> str:
        """The key, encrypted."""
        encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.DER)

    def pkcs12(self, password: str, *others: x509.Certificate) -> bytes:
        """Key and certificates in one file."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"one", self.key, self.certificate, others, encryption)


def trusted_pkcs12(password: str, certificate: x509.Certificate) -> bytes:
    """A file of one certificate without a key, as keytool creates for a truststore."""
    entry = pkcs12.PKCS12Certificate(certificate, b"ca")
    encryption = BestAvailableEncryption(password.encode())
    return pkcs12.serialize_java_truststore([entry], encryption)


def _name(parts: dict[str, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NAMES[key], value) for key, value in parts.items()])


def signed(
    subject: dict[str, str], by: Signed | None = None, *, host: str = "localhost", has_address: bool = True
) -> Signed:
    """Make a key and a certificate: self-signed, as an authority's, without `by`; for `host` alone without an address."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host)]
    if has_address:
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(by.certificate.subject if by is not None else _name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if by is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Signed(key, builder.sign(by.key if by is not None else key, hashes.SHA256()))


@cache
def authority() -> Signed:
    """An authority, the same in all tests of a process."""
    return signed({"CN": "Test authority"})


@cache
def stranger() -> Signed:
    """Another authority, which is not trusted."""
    return signed({"CN": "Somebody else"})


class Files(NamedTuple):
    """Files that a broker and its clients need."""

    authority: Path
    broker: Path
    """Key and certificates in one file."""
    client: Path
    client_key: Path


def written(directory: Path, client_name: dict[str, str] | None = None) -> Files:
    """Write certificates of a broker and a client below a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    ca = authority()
    broker, client = signed({"CN": "broker"}, ca), signed(client_name or {"O": "Castle", "CN": "alice"}, ca)
    files = Files(*(directory / name for name in ("ca.pem", "broker.pem", "client.pem", "client.key")))
    files.authority.write_text(ca.pem)
    files.broker.write_text(broker.key_pem + broker.pem + ca.pem)
    files.client.write_text(client.pem)
    files.client_key.write_text(client.key_pem)
    return files

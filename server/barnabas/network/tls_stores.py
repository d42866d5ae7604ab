"""Keys and certificates of Kafka's settings: PEM or PKCS12, in files or in the settings themselves.

The rule: all files are read here into PEM in memory, once, so that the checked content is the one in use. Errors name
the fault and the file, never a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = 0x30
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")


class TlsError(ValueError):
    """Keys, certificates or TLS settings that cannot be used; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Place of keys or certificates: a file of some type, or PEM in the settings."""

    what: str
    """`ssl.keystore` or `ssl.truststore`, for messages."""
    type: str = PEM
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)

    @property
    def is_set(self) -> bool:
        """True if a file or any PEM is set."""
        return bool(self.location or self.key or self.certificates)


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates as PEM, the owner's own first, and the password of the key."""

    pem: bytes = field(repr=False)
    password: str = field(default="", repr=False)

    @property
    def certificate(self) -> str:
        """The owner's own certificate, as PEM; empty without one."""
        match = _CERTIFICATE.search(self.pem)
        return match[0].decode() if match is not None else ""


def read_key_store(settings: StoreSettings) -> KeyMaterial:
    """Read a private key with its certificates. Raises TlsError."""
    if settings.key or settings.certificates:
        _check_inline(settings)
        if not settings.key or not settings.certificates:
            raise TlsError(
                f"{settings.what}.key and {settings.what}.certificate.chain are set together or not at all"
            )
        pem = f"{settings.key}\n{settings.certificates}\n".encode()
        return KeyMaterial(pem, settings.key_password or "")
    data = _read(settings)
    if _is_pem(settings, data):
        return KeyMaterial(data, settings.key_password or "")
    return KeyMaterial(_key_of_pkcs12(settings, data))


def read_trust_store(settings: StoreSettings) -> str:
    """Read certificates that are trusted, as PEM. Raises TlsError."""
    if settings.certificates:
        _check_inline(settings)
        return settings.certificates
    data = _read(settings)
    if _is_pem(settings, data):
        return data.decode(errors="replace")
    return _certificates_of_pkcs12(settings, data)


def _check_inline(settings: StoreSettings) -> None:
    if settings.location:
        raise TlsError(
            f"{settings.what}.location is set, and PEM in the settings too: only one of the two can be"
        )
    if settings.type.upper() != PEM:
        raise TlsError(f"{settings.what}.type={settings.type}: what is in the settings themselves is {PEM}")


def _read(settings: StoreSettings) -> bytes:
    name = f"{settings.what}.location={settings.location}"
    if settings.type.upper() not in (PEM, PKCS12, JKS):
        raise TlsError(f"{settings.what}.type={settings.type}: there are {PEM} and {PKCS12}")
    try:
        with open(settings.location or "", "rb") as file:
            data = file.read()
    except OSError as error:
        raise TlsError(f"{name}: {error.strerror or error}") from error
    if data.startswith(_JKS_MAGIC):
        raise TlsError(
            f"{name}: it is in Java's format JKS, which only Java reads; convert it with keytool -importkeystore "
            f"-srckeystore {settings.location} -destkeystore {settings.location}.p12 -deststoretype {PKCS12} and set "
            f"{settings.what}.location and {settings.what}.type={PKCS12}"
        )
    return data


def _is_pem(settings: StoreSettings, data: bytes) -> bool:
    """Return whether a file is read as PEM. Type JKS, the default, means PKCS12 too, which keytool writes since Java 9."""
    kind = settings.type.upper()
    is_der = data[:1] == bytes((_DER_SEQUENCE,))
    if kind == PEM:
        if is_der or b"-----BEGIN" not in data:
            raise TlsError(f"{settings.what}.location={settings.location}: there is no PEM in it")
        if settings.password:
            raise TlsError(
                f"{settings.what}.password=...: a file of type {PEM} has no password; that of the key is ssl.key.password"
            )
        return True
    if not is_der:
        hint = f"; set {settings.what}.type={PEM}" if b"-----BEGIN" in data else ""
        raise TlsError(f"{settings.what}.location={settings.location}: it is not {PKCS12}{hint}")
    return False


def _loaded(settings: StoreSettings, data: bytes) -> object:
    from cryptography.hazmat.primitives.serialization import pkcs12

    password = settings.password.encode() if settings.password else None
    try:
        return pkcs12.load_pkcs12(data, password)
    except Exception as error:  # errors of several libraries, which may name the format
        raise TlsError(
            f"{settings.what}.location={settings.location}: it cannot be read as {PKCS12} with {settings.what}.password"
            f" ({error})"
        ) from None


def _key_of_pkcs12(settings: StoreSettings, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    loaded = _loaded(settings, data)
    assert isinstance(loaded, PKCS12KeyAndCertificates)
    if loaded.key is None or loaded.cert is None:
        raise TlsError(
            f"{settings.what}.location={settings.location}: there is no private key with a certificate in it"
        )
    key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = (loaded.cert, *loaded.additional_certs)
    return key + b"".join(certificate.certificate.public_bytes(Encoding.PEM) for certificate in chain)


def _certificates_of_pkcs12(settings: StoreSettings, data: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    loaded = _loaded(settings, data)
    assert isinstance(loaded, PKCS12KeyAndCertificates)
    certificates = [
        certificate for certificate in (loaded.cert, *loaded.additional_certs) if certificate is not None
    ]
    if not certificates:
        raise TlsError(f"{settings.what}.location={settings.location}: there is no certificate in it")
    return "".join(
        certificate.certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates
    )

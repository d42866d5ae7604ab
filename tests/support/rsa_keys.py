"""RSA key pairs in PEM files, as the settings of a remote store name them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@cache
def private_key(number: int = 0) -> rsa.RSAPrivateKey:
    """A key of 2048 bits; the same for the same number."""
    del number
    return rsa.generate_private_key(65537, 2048)


def key_files(folder: Path, number: int = 0) -> tuple[Path, Path]:
    """Write a pair's files: the public key (X.509), and the private one (PKCS 8)."""
    key = private_key(number)
    public, private = folder / f"public{number}.pem", folder / f"private{number}.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return public, private

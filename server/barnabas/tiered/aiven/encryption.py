"""Envelope encryption of the plug-in: an AES-256 key for each segment, wrapped by an RSA key.

The rule: a chunk is 12 bytes of nonce, ciphertext and 16 bytes of tag (AES-GCM), bound to the segment's additional data.
The key is wrapped by RSA-OAEP with SHA3-512, also in MGF1, which the package `cryptography` does not offer: OAEP is here
(RFC 8017, 7.1), around the numbers of a key that the package has read (decision 790).
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha3_512
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.tiered.aiven.manifest import Encryption

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
DATA_KEY_BYTES: Final = 32
OVERHEAD_BYTES: Final = NONCE_BYTES + TAG_BYTES
_HASH_BYTES: Final = 64
_LABEL_HASH: Final = sha3_512(b"").digest()


class EncryptionError(Exception):
    """Bytes that cannot be decrypted: damaged, or encrypted with a key that is not in the key ring."""


@dataclass(frozen=True)
class KeyPair:
    """An RSA key pair that wraps the keys of segments."""

    public: RSAPublicKey
    private: RSAPrivateKey

    @classmethod
    def from_files(cls, public: Path, private: Path) -> KeyPair:
        """Read two PEM files: a public key (X.509) and a private one (PKCS 8). Raises OSError, ValueError, TypeError."""
        from cryptography.hazmat.primitives.asymmetric import rsa
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

        public_key = load_pem_public_key(public.read_bytes())
        private_key = load_pem_private_key(private.read_bytes(), None)
        if not isinstance(public_key, rsa.RSAPublicKey) or not isinstance(private_key, rsa.RSAPrivateKey):
            raise ValueError("no RSA key")
        if private_key.public_key().public_numbers() != public_key.public_numbers():
            raise ValueError("the two keys are not a pair")
        if public_key.key_size // 8 < DATA_KEY_BYTES + 2 * _HASH_BYTES + 2:
            raise ValueError(f"an RSA key of {public_key.key_size} bits is too short")
        return cls(public_key, private_key)


class ChunkCipher:
    """Encrypts and decrypts chunks and indexes of a segment."""

    def __init__(self, data_key: bytes, aad: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(data_key)
        self._aad = aad

    def encrypt(self, data: bytes) -> bytes:
        """Return a chunk's bytes in its object, `OVERHEAD_BYTES` more."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, self._aad)

    def decrypt(self, data: bytes) -> bytes:
        """Return a chunk's bytes before encryption. Raises EncryptionError."""
        from cryptography.exceptions import InvalidTag

        if len(data) < OVERHEAD_BYTES:
            raise EncryptionError(f"an encrypted chunk of {len(data)} bytes")
        try:
            return self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._aad)
        except InvalidTag:
            raise EncryptionError("an encrypted chunk is damaged, or of another key") from None


class KeyRing:
    """The RSA key pairs by their ids: one wraps the keys of new segments, all unwrap."""

    def __init__(self, pairs: Mapping[str, KeyPair], active: str | None = None) -> None:
        self._pairs = pairs
        self._active = active

    @property
    def is_active(self) -> bool:
        """True if new segments are encrypted."""
        return self._active is not None

    def new_cipher(self) -> tuple[ChunkCipher, Encryption]:
        """Return the cipher of a new segment, and its entry in the manifest. Raises KeyError without an active key."""
        active = self._active or ""
        data_key, aad = secrets.token_bytes(DATA_KEY_BYTES), secrets.token_bytes(DATA_KEY_BYTES)
        wrapped = b64encode(wrap(self._pairs[active].public, data_key)).decode()
        return ChunkCipher(data_key, aad), Encryption(f"{active}:{wrapped}", aad)

    def cipher(self, encryption: Encryption) -> ChunkCipher:
        """Return the cipher of a stored segment. Raises EncryptionError."""
        key_id, _, wrapped = encryption.data_key.partition(":")
        pair = self._pairs.get(key_id)
        if pair is None:
            raise EncryptionError(f"the RSA key {key_id!r} is not among encryption.key.pairs")
        try:
            data_key = unwrap(pair.private, b64decode(wrapped, validate=True))
            return ChunkCipher(data_key, encryption.aad)
        except ValueError as error:
            raise EncryptionError(
                f"the key of the segment cannot be unwrapped with {key_id!r}: {error}"
            ) from None


def wrap(key: RSAPublicKey, message: bytes) -> bytes:
    """Encrypt a short message by RSA-OAEP with SHA3-512. Raises ValueError if it is too long for the key."""
    numbers = key.public_numbers()
    size = (numbers.n.bit_length() + 7) // 8
    padding = size - len(message) - 2 * _HASH_BYTES - 2
    if padding < 0:
        raise ValueError(f"{len(message)} bytes are too long for a key of {key.key_size} bits")
    block = _LABEL_HASH + bytes(padding) + b"\x01" + message
    seed = secrets.token_bytes(_HASH_BYTES)
    masked = _masked(block, seed)
    encoded = int.from_bytes(_masked(seed, masked) + masked, "big")
    return pow(encoded, numbers.e, numbers.n).to_bytes(size, "big")


def unwrap(key: RSAPrivateKey, wrapped: bytes) -> bytes:
    """Decrypt a result of `wrap`. Raises ValueError, the same for each kind of damage."""
    numbers = key.private_numbers()
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    cipher = int.from_bytes(wrapped, "big")
    if len(wrapped) != size or cipher >= modulus:
        raise ValueError("decryption failed")
    blind = (
        secrets.randbelow(modulus - 2) + 2
    )  # hides from a clock which number is raised to the secret power
    blinded = cipher * pow(blind, numbers.public_numbers.e, modulus) % modulus
    encoded = (pow(blinded, numbers.d, modulus) * pow(blind, -1, modulus) % modulus).to_bytes(size, "big")
    seed, masked = encoded[1 : 1 + _HASH_BYTES], encoded[1 + _HASH_BYTES :]
    block = _masked(masked, _masked(seed, masked))
    label, (padding, mark, message) = block[:_HASH_BYTES], block[_HASH_BYTES:].partition(b"\x01")
    if not (
        encoded[0] == 0 and secrets.compare_digest(label, _LABEL_HASH) and mark and not padding.strip(b"\x00")
    ):
        raise ValueError("decryption failed")
    return message


def _masked(data: bytes, seed: bytes) -> bytes:
    blocks = -(-len(data) // _HASH_BYTES)
    mask = b"".join(sha3_512(seed + number.to_bytes(4, "big")).digest() for number in range(blocks))
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask[: len(data)], "big")).to_bytes(len(data), "big")

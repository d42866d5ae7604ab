"""SCRAM credentials (RFC 5802, RFC 7677), which a broker stores instead of passwords: creation, text form, parsing. Pure.

The rule: a password is salted immediately and never stored; `repr` shows no part of a credential. Names and passwords
are used unchanged, in UTF-8: like Apache Kafka, without SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

HIDDEN = "[hidden]"


class ScramMechanism(NamedTuple):
    """One mechanism: `type` is its number in requests and records, `algorithm` the name of its hash in hashlib."""

    name: str
    type: int
    algorithm: str
    iterations_min: int = 4096
    iterations_max: int = 16384


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Mapping[str, ScramMechanism] = MappingProxyType(
    {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}
)
BY_TYPE: Mapping[int, ScramMechanism] = MappingProxyType(
    {mechanism.type: mechanism for mechanism in MECHANISMS.values()}
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Credential that proves a password without having it: a salt, two keys, and how often the password was hashed."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the SaltedPassword of RFC 5802. Takes about 1 ms for each 1,000 iterations, without the interpreter."""
    return hashlib.pbkdf2_hmac(mechanism.algorithm, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the ClientKey of a salted password."""
    return hmac.digest(salted, b"Client Key", mechanism.algorithm)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the ServerKey of a salted password."""
    return hmac.digest(salted, b"Server Key", mechanism.algorithm)


def stored_key(mechanism: ScramMechanism, key: bytes) -> bytes:
    """Return the StoredKey of a ClientKey."""
    return hashlib.new(mechanism.algorithm, key).digest()


def credential_of_salted(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a password that a client has salted, as AlterUserScramCredentials sends it."""
    return ScramCredential(
        salt, stored_key(mechanism, client_key(mechanism, salted)), server_key(mechanism, salted), iterations
    )


def credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a password. Takes as long as `salted_password`."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def to_text(kept: ScramCredential) -> str:
    """Write a credential as Kafka does in ZooKeeper: `salt=...,stored_key=...,server_key=...,iterations=...`."""
    return (
        f"salt={_base64(kept.salt)},stored_key={_base64(kept.stored_key)},"
        f"server_key={_base64(kept.server_key)},iterations={kept.iterations}"
    )


def of_text(text: str) -> ScramCredential:
    """Read a credential from Kafka's text. Raises ValueError with a message that has nothing of the text."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        if len(parts) != 4:
            raise ValueError
        salt, stored, server = (
            b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored, server, int(parts["iterations"]))
    except (KeyError, ValueError):
        raise ValueError(
            "a SCRAM credential has salt, stored_key and server_key in base64 and a number of iterations"
        ) from None


def decoy(mechanism: ScramMechanism, user: str, secret: bytes) -> ScramCredential:
    """Return a credential that no password fits, always the same for a user: so a login does not reveal an unknown user.

    `secret` is the broker's own and random.
    """
    keys = [
        hmac.digest(secret, f"{mechanism.name} {what} {user}".encode(), "sha512") for what in ("1", "2", "3")
    ]
    size = hashlib.new(mechanism.algorithm).digest_size
    return ScramCredential(keys[0][:24], keys[1][:size], keys[2][:size], mechanism.iterations_min)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()

"""SCRAM credentials as on the command line: `SCRAM-SHA-256=[name=alice,password=...]`, in Kafka's form. Pure.

The rule: no message contains a part of a password, of a salted password or of its salt.
"""

from __future__ import annotations

from base64 import b64decode
from typing import NamedTuple

from barnabas.security.scram import MECHANISMS, ScramCredential, credential, credential_of_salted

_KNOWN = ("iterations", "name", "password", "salt", "saltedpassword")


class NamedCredential(NamedTuple):
    """A user's credential for a mechanism."""

    user: str
    mechanism: str
    credential: ScramCredential


def parse_credential(text: str, salt: bytes) -> NamedCredential:
    """Parse a credential; `salt` is random, for a password without a salt. Takes some ms. Raises ValueError."""
    name, _, rest = text.strip().partition("=")
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        raise ValueError(f"it begins with one of {', '.join(MECHANISMS)} and an equals sign")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise ValueError(f"after {name}= stands a list in brackets: [name=USER,password=PASSWORD]")
    values = _values(rest[1:-1])
    user = values.get("name")
    if not user:
        raise ValueError("a name is missing: [name=USER,password=PASSWORD]")
    salted, password = values.get("saltedpassword"), values.get("password")
    if (salted is None) is (password is None):
        raise ValueError(f"{user} needs a password or a saltedpassword, and not both")
    if "salt" in values:
        salt = _decoded("salt", values["salt"])
    elif salted is not None:
        raise ValueError(f"the saltedpassword of {user} needs its salt")
    iterations = _iterations(values.get("iterations", str(mechanism.iterations_min)))
    if not mechanism.iterations_min <= iterations <= mechanism.iterations_max:
        raise ValueError(
            f"iterations of {name} are from {mechanism.iterations_min} to {mechanism.iterations_max}; "
            f"{iterations} are asked for"
        )
    if salted is not None:
        kept = credential_of_salted(mechanism, _decoded("saltedpassword", salted), salt, iterations)
    else:
        kept = credential(mechanism, password or "", salt, iterations)
    return NamedCredential(user, name, kept)


def _values(text: str) -> dict[str, str]:
    values = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in _KNOWN:
            raise ValueError(
                f"the parts in brackets are {', '.join(_KNOWN)}, each as NAME=VALUE, with commas between"
            )
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        values[name] = value
    return values


def _decoded(name: str, text: str) -> bytes:
    try:
        decoded = b64decode(text, validate=True)
    except ValueError:
        decoded = b""
    if not decoded:
        raise ValueError(f"{name} is not in base64")
    return decoded


def _iterations(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("iterations is not a number") from None

"""Ids of topics and clusters: 16 random bytes, shown as Kafka shows them."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from string import ascii_letters, digits
from typing import Final, Protocol

TEXT_SIZE: Final = 22
_ALPHABET: Final = frozenset(ascii_letters + digits + "-_")


class RandomBytes(Protocol):
    """A source of random bytes, for example `environment.Entropy`."""

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""


def new_uuid(entropy: RandomBytes) -> bytes:
    """A random id of 16 bytes; its base64url text does not begin with a dash, as Kafka's."""
    while True:
        value = entropy.token_bytes(16)
        if value[0] >> 2 != 62 and value[:15] != bytes(15):
            return value


def uuid_text(value: bytes) -> str:
    """Kafka's text of an id: base64url without padding."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """Decode an id from 22 characters of base64url, with or without padding. Raises ValueError.

    The last character has four bits that belong to no byte. Kafka ignores them, and its documentation has ids in which they
    are set.
    """
    characters = text.removesuffix("==")
    if len(characters) != TEXT_SIZE or not _ALPHABET.issuperset(characters):
        raise ValueError(f"{text!r} is no id")
    return urlsafe_b64decode(characters + "==")


def new_member_id(name: str, entropy: RandomBytes) -> str:
    """Return a new member id for a group: the client's name and a random part, in Kafka's format."""
    value = entropy.token_bytes(16).hex()
    return f"{name}-{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"

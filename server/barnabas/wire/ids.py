"""Ids of topics and clusters: 16 random bytes, shown as Kafka shows them."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Protocol


class RandomBytes(Protocol):
    """A source of random bytes, as `environment.Entropy` is one."""

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""


def new_uuid(entropy: RandomBytes) -> bytes:
    """A random id of 16 bytes whose base64url text does not begin with a dash, as Kafka's."""
    while True:
        value = entropy.token_bytes(16)
        if value[0] >> 2 != 62 and value[:15] != bytes(15):
            return value


def uuid_text(value: bytes) -> str:
    """Kafka's text of an id: base64url without padding."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """Return the id that a text of Kafka's stands for. Raises ValueError."""
    value = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    if len(value) != 16 or uuid_text(value) != text:
        raise ValueError(f"{text!r} is no id")
    return value


def new_member_id(name: str, entropy: RandomBytes) -> str:
    """A member id for a group: the client's name and a random part, as Kafka makes them."""
    value = entropy.token_bytes(16).hex()
    return f"{name}-{value[:8]}-{value[8:12]}-{value[12:16]}-{value[16:20]}-{value[20:]}"

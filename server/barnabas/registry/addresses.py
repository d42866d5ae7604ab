"""Addresses of registries: `http://HOST:PORT`, with a user and a password in front of the host if need be.

The rule: no text that is shown has anything of what may be a password; one scheme, host and port is one party.
"""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

_PORTS = {"http": 80, "https": 443}


def split(url: str) -> SplitResult:
    """Read an address. Raises ValueError."""
    with suppress(ValueError):
        where = urlsplit(url)
        is_whole = where.hostname and where.port != 0 and not where.query and not where.fragment
        # An "@" behind a slash ends a password that has one, and is not quoted.
        if where.scheme in _PORTS and is_whole and "@" not in where.path:
            return where
    scheme = url.partition("//")[0]
    shown = f"{scheme}//" if "@" in url and scheme.removesuffix(":") in _PORTS else ""
    shown += url.rpartition("@")[2]
    raise ValueError(f"{shown!r} is not the address of a registry: http://HOST:PORT is expected")


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port. Raises ValueError."""
    where = split(url)
    return where.scheme, where.hostname or "", where.port or _PORTS[where.scheme]


def without_secret(url: str) -> str:
    """Return an address without the user and the password. Raises ValueError."""
    where = split(url)
    return where._replace(netloc=where.netloc.rpartition("@")[2]).geturl()


def has_login(url: str) -> bool:
    """Say whether a user or a password stands in an address. Raises ValueError."""
    return "@" in split(url).netloc

"""Addresses of registries: `http://HOST:PORT`, with an optional user and password before the host.

The rule: shown texts contain no part of a possible password; two addresses with the same scheme, host and port are the
same server.
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
        # An "@" after a slash ends a password that contains an unquoted slash.
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
    """Return whether an address contains a user or a password. Raises ValueError."""
    return "@" in split(url).netloc

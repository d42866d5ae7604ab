"""Access to znodes: entries of an ACL, and how they are matched. Pure.

Schemes: `world` (every client), `auth` (the creator of the znode; becomes the creator's own entries), `digest` (user and
password), `sasl` (a user that has logged in), `ip` (an address or a network).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Collection, Sequence
from enum import IntFlag
from typing import NamedTuple

from barnabas.tools.zkserver.errors import Code, RefusedError


class Permission(IntFlag):
    """Permissions on a znode, with the bits of the wire."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Identity(NamedTuple):
    """Identity of a client, in one scheme."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """Permissions of one identity."""

    permissions: int
    identity: Identity


ANYONE = Identity("world", "anyone")
LOGINS = ("digest", "sasl")
"""Schemes in which a client proves its identity."""
OPEN = (Acl(Permission.ALL, ANYONE),)
"""Every client may do everything."""


def digest_identity(credentials: bytes) -> Identity:
    """Return the identity of `user:password`. Raises RefusedError with AUTH_FAILED for anything else."""
    try:
        user, _, password = credentials.decode().partition(":")
    except UnicodeDecodeError as error:
        raise RefusedError(Code.AUTH_FAILED, "the credentials are no UTF-8") from error
    if not user or not password:
        raise RefusedError(Code.AUTH_FAILED, "user:password expected")
    digest = hashlib.sha1(credentials, usedforsecurity=False).digest()  # the scheme's own hash
    return Identity("digest", f"{user}:{base64.b64encode(digest).decode()}")


def resolve(requested: Sequence[Acl], own: Collection[Identity]) -> tuple[Acl, ...]:
    """Return the ACL of a new znode as it is kept. Raises RefusedError with INVALID_ACL."""
    entries: dict[Acl, None] = {}
    for entry in requested:
        scheme, name = entry.identity
        if scheme == "auth":
            mine = [identity for identity in own if identity.scheme in LOGINS]
            if not mine:
                raise RefusedError(Code.INVALID_ACL, "scheme auth, and the client has not said who it is")
            entries.update(dict.fromkeys(Acl(entry.permissions, identity) for identity in mine))
            continue
        is_valid = (
            name == "anyone"
            if scheme == "world"
            else ":" in name
            if scheme == "digest"
            else name != ""
            if scheme == "sasl"
            else scheme == "ip" and _network(name) is not None
        )
        if not is_valid:
            raise RefusedError(Code.INVALID_ACL, f"{scheme}:{name}")
        entries[entry] = None
    if not entries:
        raise RefusedError(Code.INVALID_ACL, "an ACL without entries")
    acl = tuple(entries)
    return OPEN if acl == OPEN else acl


def require(acl: Sequence[Acl], permission: int, own: Collection[Identity]) -> None:
    """Raise RefusedError with NO_AUTH unless one of these identities has (a part of) the permission."""
    if acl is OPEN:
        return
    for granted, identity in acl:
        if granted & permission and (identity == ANYONE or any(_matches(owner, identity) for owner in own)):
            return
    raise RefusedError(Code.NO_AUTH)


def _matches(own: Identity, allowed: Identity) -> bool:
    if own.scheme != allowed.scheme:
        return False
    if own.scheme != "ip":
        return own.id == allowed.id
    network = _network(allowed.id)
    return network is not None and ipaddress.ip_address(own.id) in network


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None

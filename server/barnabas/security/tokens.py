"""Delegation tokens (KIP-48): their fields, their HMAC, and the users that may act on them. Pure.

The rule: a token's password is the HMAC of its id with the cluster's secret key; it is worked out when it is needed and
kept nowhere. Principals are texts, as in `User:alice`.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass

TIMESTAMP_MAX = 2**63 - 1
USER_TYPE = "User"


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token. Times are in ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    expires_max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Return whether it can neither be used nor renewed any more."""
        return self.expires_max_ms < now_ms or self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return whether a principal may renew it, or let it expire."""
        return principal == self.owner or principal in self.renewers


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token: HMAC-SHA-512 of its id, 64 bytes."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(mac: bytes) -> str:
    """Return the password with which the holder of a token logs in by SCRAM; the token's id is the user's name."""
    return b64encode(mac).decode()


def later(now_ms: int, duration_ms: int) -> int:
    """Return the time after a duration, at most the largest timestamp."""
    return min(now_ms + duration_ms, TIMESTAMP_MAX)

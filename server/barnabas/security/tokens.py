"""Delegation tokens (KIP-48): their fields, their HMAC, and the users that may act on them. Pure.

The rule: a token's password is the HMAC of its id with the cluster's secret key; it is computed when it is needed and
stored nowhere. Principals are texts like `User:alice`.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

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
        """Return whether it can no longer be used or renewed."""
        return self.expires_max_ms < now_ms or self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return whether a principal may renew it, or set its expiry."""
        return principal == self.owner or principal in self.renewers

    def renewed(self, principal: str, period_ms: int, lifetime: Lifetime, now_ms: int) -> Token:
        """Return the token with a new lifetime from `now_ms` on; with a period of 0 or less that of the settings.

        Raises DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
        """
        self._check_alive(now_ms)
        self._check_allowed(principal)
        return self.until(now_ms, min(period_ms, lifetime.expiry_ms) if period_ms > 0 else lifetime.expiry_ms)

    def expiring(self, principal: str, period_ms: int, now_ms: int) -> Token | None:
        """Return it with a new lifetime; None if it must be removed now, expired or not: for less than 0.

        Raises DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
        """
        self._check_allowed(principal)
        if period_ms < 0:
            return None
        self._check_alive(now_ms)
        return self.until(now_ms, period_ms)

    def until(self, now_ms: int, period_ms: int) -> Token:
        """Return the token with a new expiry, limited by its maximum lifetime."""
        return replace(self, expires_ms=min(self.expires_max_ms, later(now_ms, period_ms)))

    def _check_alive(self, now_ms: int) -> None:
        if self.is_expired(now_ms):
            raise RequestError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    def _check_allowed(self, principal: str) -> None:
        if not self.may_be_renewed_by(principal):
            raise RequestError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


class Lifetime(NamedTuple):
    """Settings of how long tokens live, in ms: at most, and until they are renewed."""

    max_ms: int
    expiry_ms: int

    def new_token(
        self, token_id: str, owner: str, requester: str, renewers: Iterable[str], asked_ms: int, now_ms: int
    ) -> Token:
        """Return a new token; for a lifetime of 0 or less it gets the maximum."""
        expires_max_ms = later(now_ms, min(asked_ms, self.max_ms) if asked_ms > 0 else self.max_ms)
        token = Token(token_id, owner, requester, tuple(renewers), now_ms, now_ms, expires_max_ms)
        return token.until(now_ms, self.expiry_ms)


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token: HMAC-SHA-512 of its id, 64 bytes."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(mac: bytes) -> str:
    """Return the password with which the holder of a token logs in by SCRAM; the token's id is the user's name."""
    return b64encode(mac).decode()


def later(now_ms: int, duration_ms: int) -> int:
    """Return the time after a duration, at most the largest timestamp."""
    return min(now_ms + duration_ms, TIMESTAMP_MAX)

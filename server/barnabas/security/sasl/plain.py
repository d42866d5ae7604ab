"""SASL PLAIN (RFC 4616), the server's side, with the users of a login module's options. Pure.

The rule: an unknown user takes the same time as a wrong password; both get the same answer.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from barnabas.security.sasl.mechanism import Identity, LoginFailedError

_WRONG = "Authentication failed: Invalid username or password"
_FIELDS = 3


class PlainExchange:
    """One message, checked against passwords by user name."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        """`users` are passwords (UTF-8) by name."""
        self._users = users
        self.identity: Identity | None = None

    async def step(self, message: bytes) -> bytes:
        """Check authorization id, user and password. Raises LoginFailedError, with Kafka's words."""
        # like Java: invalid UTF-8 cannot be a password, and is answered like a wrong one
        fields = message.decode(errors="replace").split("\0")
        if len(fields) != _FIELDS:
            count = min(len(fields), _FIELDS + 1)
            raise _failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
        authorization_id, user, password = fields
        if not user:
            raise _failed("Authentication failed: username not specified")
        if not password:
            raise _failed("Authentication failed: password not specified")
        expected = self._users.get(user)
        is_right = hmac.compare_digest(password.encode(), expected if expected is not None else b"\0")
        if expected is None or not is_right:
            reason = "wrong password" if expected is not None else "unknown user"
            raise LoginFailedError(f"{reason} {user[:100]!r}", shown=_WRONG)
        if authorization_id not in ("", user):
            raise _failed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.identity = Identity(user)
        return b""


def _failed(text: str) -> LoginFailedError:
    return LoginFailedError(text, shown=text)

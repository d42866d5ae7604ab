"""SASL OAUTHBEARER (RFC 7628, KIP-255), the server's side. Pure.

The rule: the claims of a token are valid only if its signature was checked, which another module does; the client learns
that its token is wrong, never the reason.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from barnabas.security.sasl.mechanism import Identity, LoginFailedError

INVALID_TOKEN = '{"status":"invalid_token"}'
GOODBYE = b"\x01"
"""Client's answer to a failure, before the server ends the exchange."""

_SASLNAME = r"(?:[^\x00,=]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASLNAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +([-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)


class TokenError(Exception):
    """A token that is refused; the text is for the log."""


Check = Callable[[str], Awaitable[Identity]]
"""Checks a token and returns its principal. Raises TokenError."""


class OAuthBearerExchange:
    """One message with a token; after a wrong token the error is sent, and the client's next message ends the exchange."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._failure = ""
        self.identity: Identity | None = None

    async def step(self, message: bytes) -> bytes:
        """Take the client's message. Raises LoginFailedError."""
        if self._failure:
            raise LoginFailedError(self._failure, shown=INVALID_TOKEN if message == GOODBYE else None)
        authorization_id, token = _parsed(message)
        try:
            identity = await self._check(token)
        except TokenError as error:
            self._failure = str(error)
            return INVALID_TOKEN.encode()
        if authorization_id not in ("", identity.name):
            text = (
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from "
                f"the token's principal name ({identity.name})"
            )
            raise LoginFailedError(text, shown=text)
        self.identity = identity
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a client's first message. Raises LoginFailedError."""
    try:
        parsed = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        parsed = None
    if parsed is None:
        raise LoginFailedError("the message is not that of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in parsed["pairs"].split("\x01") if pair)
    empty = [name for name, value in pairs.items() if not value]
    if empty:
        raise LoginFailedError(f"the message has no value of {empty[0][:40]}")
    bearer = _BEARER.fullmatch(pairs.get("auth", "").strip())
    if bearer is None:
        raise LoginFailedError("the message has no auth=Bearer TOKEN")
    authorization_id = (parsed["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, bearer[1]

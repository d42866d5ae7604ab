"""Port of SASL mechanisms on the server: an exchange of messages that ends with the client's identity. Pure.

The rule: an exchange is a state machine without input or output. Its errors are for the log; a client only gets a part
of them, which never shows whether a user exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

PLAIN, SCRAM_SHA_256, SCRAM_SHA_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER, GSSAPI = "OAUTHBEARER", "GSSAPI"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)


class LoginFailedError(Exception):
    """A client has not proved its identity. `shown` is the text for the client; None for a general one.

    `is_transient`: the client is sent nothing, and its connection is closed, upon which clients retry (Kafka's rule for
    replays and for tickets that are not yet valid).
    """

    def __init__(self, reason: str, *, shown: str | None = None, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.shown = shown
        self.is_transient = is_transient


class Identity(NamedTuple):
    """Identity of a client that has logged in.

    `name` is that of a principal of type User; `expires_at_ms` is the expiry of the credential in ms since the epoch, None
    for a credential without expiry.
    """

    name: str
    expires_at_ms: int | None = None
    is_by_token: bool = False
    """True if a delegation token was used (KIP-48)."""


class Exchange(Protocol):
    """One login. Ends with the first error, or when `identity` is set."""

    @property
    def identity(self) -> Identity | None:
        """Identity of the client; None until the last message has been checked."""

    async def step(self, message: bytes) -> bytes | None:
        """Take the client's next message and return the answer, None for none. Raises LoginFailedError."""


class Mechanism(NamedTuple):
    """A mechanism as a listener offers it."""

    begin: Callable[[], Exchange]
    max_reauth_ms: int = 0
    """After how many ms a client must log in again (KIP-368), 0 for never."""

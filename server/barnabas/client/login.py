"""The login of a connection, and its renewal before the broker ends it (KIP-368).

The rule: a login is several requests, and nothing else may be sent between them: the caller holds the connection's lock.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.client.errors import AuthenticationError
from barnabas.client.sasl import exchange

if TYPE_CHECKING:
    from barnabas.client.sasl import Exchange
    from barnabas.client.settings import Endpoint, SaslCredentials

T = TypeVar("T")
NONCE_BYTES = 32
RENEWED_AFTER_MIN, RENEWED_AFTER_MAX = 0.85, 0.95
"""Between these parts of a login's life it is renewed, at random, so that not all clients come at once (as in Kafka)."""


Ask = Callable[[Any, int], Awaitable[Any]]
"""Sends a request of a version, and returns its response."""


class Waiting(Protocol):
    """Clock, and runner of calls that block."""

    async def in_thread(
        self, work: Callable[[], T], *, limiter: Any = None, may_be_abandoned: bool = False
    ) -> T:
        """Return the result of a function that blocks, or calculates for long."""

    def now(self) -> float:
        """Return the time, s."""


class Login:
    """Lifecycle: `run` at the start, and again whenever `is_due`."""

    def __init__(self, credentials: SaslCredentials, peer: Endpoint) -> None:
        self._credentials = credentials
        self._peer = peer
        self._due_at = math.inf

    def is_due(self, now: float) -> bool:
        """Return whether it is time to log in again, before the next request."""
        return now >= self._due_at

    async def run(self, ask: Ask, version: int, waiting: Waiting) -> None:
        """Log in. `version` is that of SaslAuthenticate. Raises AuthenticationError, and the errors of `ask`."""
        from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
        from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest

        credentials, peer = self._credentials, self._peer
        response = await ask(SaslHandshakeRequest(mechanism=credentials.mechanism), 1)
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "nothing"
            raise AuthenticationError(f"{peer} offers {offered}, not {credentials.mechanism}")
        messages = exchange(credentials, secrets.token_bytes(NONCE_BYTES), peer.host)
        lifetime_ms = 0
        begun_at = waiting.now()
        data: bytes | None = await _first_message(waiting, credentials, messages)
        while data is not None:
            answer = await ask(SaslAuthenticateRequest(auth_bytes=data), version)
            if answer.error_code:
                raise AuthenticationError(f"{peer} refuses the login: {answer.error_message}")
            lifetime_ms = answer.session_lifetime_ms
            # In a thread: SCRAM hashes the password as often as the broker says.
            data = await waiting.in_thread(partial(_next_message, messages, bytes(answer.auth_bytes)))
        share = random.uniform(RENEWED_AFTER_MIN, RENEWED_AFTER_MAX)
        self._due_at = begun_at + lifetime_ms / 1000 * share if lifetime_ms > 0 else math.inf


async def _first_message(waiting: Waiting, credentials: SaslCredentials, messages: Exchange) -> bytes:
    if credentials.tokens is None and credentials.tickets is None:
        return next(messages)
    # in a thread that may be abandoned: an identity provider, or a key distribution centre, is contacted
    limiter = None if credentials.tickets is None else credentials.tickets.limiter
    return await waiting.in_thread(partial(next, messages), limiter=limiter, may_be_abandoned=True)


def _next_message(messages: Exchange, answer: bytes) -> bytes | None:
    try:
        return messages.send(answer)
    except StopIteration:
        return None

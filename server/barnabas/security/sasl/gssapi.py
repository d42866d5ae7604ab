"""SASL GSSAPI (RFC 4752), the server's side: Kerberos tokens until the context is complete, then the security layer. Pure.

    client: token ...  server: token ...  client: empty  server: offered layers  client: chosen layer

The rule: a client is the principal of its ticket. An authorization id that it requests is read and has no effect, as
in Kafka. No security layer is offered: the following messages are protected by TLS, or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from barnabas.security.sasl.mechanism import Identity, LoginFailedError

NO_LAYER = 1
"""The bit for neither integrity nor confidentiality (RFC 4752, section 3.3)."""
MESSAGE_BYTES_MAX = 65_536
OFFER = bytes((NO_LAYER,)) + MESSAGE_BYTES_MAX.to_bytes(3, "big")
"""The layers, and the largest message of a layer: unused without a layer; the value that Java sends."""


class GssError(Exception):
    """A token that the library refuses; the text is for the log. `is_transient`: the client's next attempt may succeed."""

    def __init__(self, reason: str, *, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.is_transient = is_transient


class AcceptedContext(Protocol):
    """A security context on the accepting side; all of it may block."""

    @property
    def is_established(self) -> bool:
        """True if the client is authenticated."""

    @property
    def initiator(self) -> str:
        """The client's principal, as in `alice/host@REALM`."""

    def step(self, token: bytes) -> bytes | None:
        """Take the client's token and return the answer, None for none."""

    def wrap(self, data: bytes) -> bytes:
        """Return data with a checksum."""

    def unwrap(self, token: bytes) -> bytes:
        """Return the data of a wrapped message; its checksum and its place in the sequence are right."""


Run = Callable[[Callable[[], "bytes | None"]], Awaitable["bytes | None"]]
"""Runs a function in a thread; raises GssError for errors of the context."""


class GssapiExchange:
    """One login with Kerberos."""

    def __init__(self, begin: Callable[[], AcceptedContext], name_of: Callable[[str], str], run: Run) -> None:
        """`begin` returns a new context; `name_of` a principal's short name, or raises ValueError."""
        self._begin = begin
        self._name_of = name_of
        self._run = run
        self._context: AcceptedContext | None = None
        self._has_offered = False
        self._is_over = False
        self.identity: Identity | None = None

    async def step(self, message: bytes) -> bytes | None:
        """Take the client's next message. Raises LoginFailedError."""
        if self._is_over:
            raise LoginFailedError("a message after the end of the exchange")
        self._is_over = True  # unless this step says otherwise
        try:
            answer = await self._run(partial(self._answer, message))
        except GssError as error:
            raise LoginFailedError(str(error), is_transient=error.is_transient) from error
        self._is_over = self.identity is not None
        return answer

    def _answer(self, message: bytes) -> bytes | None:
        if self._context is None:
            self._context = self._begin()
        context = self._context
        if not context.is_established:
            return self._establish(context, message)
        if not self._has_offered:
            if message:
                raise LoginFailedError("an empty message is expected before the security layer is offered")
            return self._offer(context)
        self._choose(context, message)
        return None

    def _establish(self, context: AcceptedContext, message: bytes) -> bytes:
        answer = context.step(message)
        if answer:
            return answer
        if not context.is_established:
            # MIT's library expects more after tokens of errors and drafts, without a reply: no client continues from
            # there
            raise LoginFailedError("the token does not begin a login")
        return self._offer(context)  # without mutual authentication there is no token to answer with

    def _offer(self, context: AcceptedContext) -> bytes:
        self._has_offered = True
        return context.wrap(OFFER)

    def _choose(self, context: AcceptedContext, message: bytes) -> None:
        chosen = context.unwrap(message)
        if len(chosen) < len(OFFER):
            raise LoginFailedError("the choice of a security layer is cut short")
        if not chosen[0] & NO_LAYER:
            raise LoginFailedError(f"security layer {chosen[0]} is chosen, and none is offered")
        try:
            self.identity = Identity(self._name_of(context.initiator))
        except ValueError as error:
            raise LoginFailedError(str(error)) from error

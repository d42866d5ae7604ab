"""State of a connection's login, with the states of Kafka's SASL server (KIP-43, KIP-152, KIP-368). Pure.

    START --ApiVersions--> VERSIONS --SaslHandshake--> EXCHANGE --last token--> DONE --SaslHandshake--> EXCHANGE ...

The rule: a request in the wrong state ends the connection. This module decides which requests are allowed; others read and
answer them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.errors import NotLoggedInError, PeerError, RequestError
from barnabas.security.principals import has_control_character
from barnabas.security.sasl.mechanism import GSSAPI, Exchange, Identity, LoginFailedError, Mechanism
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
REAUTHENTICATION_MS_MIN = 1_000
"""A client may not begin to log in again sooner after the last time it did (Kafka's limit)."""

_REQUESTS_SINCE = 1  # of SaslHandshake: the tokens after it come in SaslAuthenticate (KIP-152)


class Stage(enum.Enum):
    """Stages of a login."""

    START = enum.auto()
    VERSIONS = enum.auto()
    """ApiVersions is answered; only SaslHandshake may follow."""
    EXCHANGE = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class SaslOffer:
    """Mechanisms that a listener offers, with their limits."""

    mechanisms: Mapping[str, Mechanism]
    frame_bytes_max: int
    """Largest frame before the end of a login (`sasl.server.max.receive.size`)."""
    failure_delay_ms: int
    """For how long a failed login waits for its answer (`connection.failed.authentication.delay.ms`)."""


class SaslServer:
    """The login of one connection. Times are in ms: `wall_ms` since the epoch, `steady_ms` of a monotonic clock."""

    def __init__(self, offer: SaslOffer) -> None:
        self.offer = offer
        self.stage = Stage.START
        self.identity: Identity | None = None
        """Identity of the client that has logged in; keeps its value while the client logs in again."""
        self.expires_ms: float | None = None
        """The monotonic ms from which on only a new login is admitted."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._is_framed = False  # whether tokens come in SaslAuthenticate
        self._bad_mechanism = ""
        self._last_begun_ms: float | None = None

    @property
    def is_done(self) -> bool:
        """True if the client may send any request."""
        return self.stage is Stage.DONE

    @property
    def has_failed(self) -> bool:
        """True if the connection must be closed, after its response if one is sent."""
        return self.stage is Stage.FAILED

    @property
    def mechanism(self) -> str:
        """The mechanism of the last handshake; empty before it."""
        return self._mechanism

    # --- allowed requests ---------------------------------------------------------------------------------------

    def expects_token(self, *, is_known_api: bool) -> bool:
        """Return whether the next frame is a bare token: after SaslHandshake v0, or of a GSSAPI client without a handshake.

        `is_known_api`: whether the frame begins with the key of an API; a first frame that does not is a token of
        a client of Kafka 0.9. Raises PeerError if GSSAPI is not offered.
        """
        if self.stage is Stage.EXCHANGE:
            return not self._is_framed
        if self.stage is not Stage.START or is_known_api:
            return False
        if GSSAPI not in self.offer.mechanisms:
            self.stage = Stage.FAILED
            raise PeerError("the first bytes are no request, and GSSAPI is not offered")
        self._begin(GSSAPI)
        return True

    def admit(self, api_key: int, steady_ms: float) -> None:
        """Check that a request of an API is allowed now.

        Raises NotLoggedInError to close the connection, RequestError to answer and then close it.
        """
        if self.stage is Stage.DONE:
            if self.expires_ms is not None and steady_ms >= self.expires_ms and api_key != SASL_HANDSHAKE:
                raise NotLoggedInError("after the login has expired: the client has not logged in again")
            return
        if self.stage is Stage.EXCHANGE:
            if api_key != SASL_AUTHENTICATE:
                self.stage = Stage.FAILED
                raise RequestError(
                    ErrorCode.ILLEGAL_SASL_STATE,
                    f"Unexpected Kafka request of type {_java_name(api_key)} during SASL authentication.",
                )
            return
        if api_key != SASL_HANDSHAKE and (api_key != API_VERSIONS or self.stage is not Stage.START):
            self.stage = Stage.FAILED
            raise NotLoggedInError("before authentication")

    def fail(self) -> None:
        """Note that the login has failed, for a reason that is not in a token."""
        self.stage = Stage.FAILED

    def versions_answered(self) -> None:
        """Note that ApiVersions has been answered without an error."""
        if self.stage is Stage.START:
            self.stage = Stage.VERSIONS

    # --- logging in ---------------------------------------------------------------------------------------------

    def handshake(self, mechanism: str, version: int, steady_ms: float) -> ErrorCode:
        """Begin to log in with a mechanism, for the first time or again; returns the code of the answer."""
        if self.stage is Stage.DONE and not self._may_begin_again(steady_ms):
            return ErrorCode.ILLEGAL_SASL_STATE
        is_again = self.stage is Stage.DONE
        self._is_framed = version >= _REQUESTS_SINCE
        if mechanism not in self.offer.mechanisms:
            self.stage = Stage.FAILED
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if is_again and mechanism != self._mechanism:
            # Kafka sends this for the first token only
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism}'"
            )
            self.stage = Stage.EXCHANGE
            return ErrorCode.NONE
        self._begin(mechanism)
        return ErrorCode.NONE

    def _may_begin_again(self, steady_ms: float) -> bool:
        """Return whether a client may log in again, and note the time: only if logins expire, and at a limited rate."""
        if self.expires_ms is None:
            return False
        if self._last_begun_ms is not None and steady_ms - self._last_begun_ms < REAUTHENTICATION_MS_MIN:
            return False
        self._last_begun_ms = steady_ms
        return True

    def _begin(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._exchange = self.offer.mechanisms[mechanism].begin()
        self.stage = Stage.EXCHANGE

    async def evaluate(self, token: bytes) -> bytes | None:
        """Take the client's next token and return the answer to it, None for none. Raises LoginFailedError."""
        try:
            if self._bad_mechanism:
                raise LoginFailedError(self._bad_mechanism, shown=self._bad_mechanism)
            assert self._exchange is not None, "tokens are admitted only during an exchange"
            answer = await self._exchange.step(token)
            self._check(self._exchange.identity)
        except LoginFailedError:
            self.stage = Stage.FAILED
            raise
        return answer

    def _check(self, identity: Identity | None) -> None:
        """Check that a user's name has no control characters and has not changed. Raises LoginFailedError."""
        if identity is not None and has_control_character(identity.name):
            raise LoginFailedError(f"the user's name {identity.name[:100]!r} has a control character")
        if identity is not None and self.identity is not None and identity.name != self.identity.name:
            text = (
                "Cannot change principals during re-authentication from "
                f"User.{self.identity.name}: User.{identity.name}"
            )
            raise LoginFailedError(text, shown=text)

    def complete(self, wall_ms: int, steady_ms: float) -> int:
        """Note the end of the exchange, if it has ended; returns the lifetime of the login in ms, 0 for no limit.

        Call it after `evaluate`.
        """
        identity = self._exchange.identity if self._exchange is not None else None
        if identity is None:
            return 0
        self.identity = identity
        self.stage = Stage.DONE
        self._exchange = None
        limits = []
        if identity.expires_at_ms is not None:
            limits.append(identity.expires_at_ms - wall_ms)
        max_reauth_ms = self.offer.mechanisms[self._mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if not limits:
            self.expires_ms = None
            return 0
        lifetime_ms = max(min(limits), 0)
        self.expires_ms = steady_ms + lifetime_ms
        return lifetime_ms

    def shown_reason(self, failure: LoginFailedError) -> str:
        """Return the text of a failure for the client, in Kafka's words."""
        if failure.shown is not None:
            return failure.shown
        again = "re-authentication" if self.identity is not None else "authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"


def _java_name(api_key: int) -> str:
    """Return an API's name as Kafka writes it in messages, as in `DESCRIBE_CLUSTER`."""
    if not registry.is_known(api_key):
        return str(api_key)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", registry.name_of(api_key)).upper()

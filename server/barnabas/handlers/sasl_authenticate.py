"""SaslAuthenticate v0-v2. One token of a login; v1 adds the lifetime of the login (KIP-368).

A wrong token is answered SASL_AUTHENTICATION_FAILED after a delay, and is the connection's last request; a failure that
a retry may resolve closes the connection immediately. Where no token is expected, as on a listener without SASL or after
a login, the answer is ILLEGAL_SASL_STATE, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.serving.login import token_answered
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class SaslAuthenticate:
    """Handler of SaslAuthenticate."""

    clock_ms: Callable[[], int]

    async def handle(
        self, context: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | None:
        """Take the token to the connection's login."""
        connection = context.connection
        login = connection.login
        if login is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message=f"listener {connection.listener} uses {connection.security_protocol}, not SASL",
            )
        if login.is_done:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        try:
            answer, lifetime_ms = await token_answered(
                connection,
                bytes(request.auth_bytes),
                clock_ms=self.clock_ms,
                log_limit=context.shared.log_limit,
            )
        except LoginFailedError as failure:
            context.close_after_response = True
            if failure.is_transient:
                return None
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=login.shown_reason(failure)
            )
        return SaslAuthenticateResponse(auth_bytes=answer or b"", session_lifetime_ms=lifetime_ms)

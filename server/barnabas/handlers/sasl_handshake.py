"""SaslHandshake v0-v1. Selects the mechanism of a login, the first one or a new one before the last expires (KIP-368).

After v0 tokens are sent bare, after v1 in SaslAuthenticate. A listener without SASL, and a client with a login that does
not expire, are answered ILLEGAL_SASL_STATE. It is served on every listener because librdkafka assumes that a broker without
v0 has no SASL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext


class SaslHandshake:
    """Handler of SaslHandshake."""

    async def handle(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        """Begin to log in; a mechanism that is not offered is the connection's last request."""
        login = context.connection.login
        if login is None:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        code = login.handshake(request.mechanism, context.api_version, trio.current_time() * 1000)
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            return SaslHandshakeResponse(error_code=code)
        context.close_after_response = login.has_failed
        return SaslHandshakeResponse(error_code=code, mechanisms=list(login.offer.mechanisms))

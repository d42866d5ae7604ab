"""SaslHandshake v0-v1. No listener authenticates with SASL, so the answer is what Kafka gives on such a listener.

It is served because librdkafka takes a broker that does not advertise v0 for one without SASL at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext


async def handle(_context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:  # noqa: ARG001
    """ILLEGAL_SASL_STATE: the listener does not use SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

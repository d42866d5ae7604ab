"""SaslAuthenticate v0-v2. Refused on listeners that do not use SASL, as Kafka refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext


async def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:  # noqa: ARG001
    """ILLEGAL_SASL_STATE, with the reason in words."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message=f"listener {context.connection.listener} uses {context.connection.security_protocol}, not SASL",
    )

"""ExpireDelegationToken v0-v2. Changes when a token expires; a negative period removes it at once (KIP-48).

Only the token's owner and its renewers may do that, on connections on which tokens may be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.token_requests import NO_TIMESTAMP, may_handle_tokens
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.delegation_tokens import DelegationTokens
    from barnabas.requests.context import RequestContext


async def handle(
    context: RequestContext,
    request: ExpireDelegationTokenRequest,
    *,
    delegation_tokens: DelegationTokens,
) -> ExpireDelegationTokenResponse:
    """Let a token of the requester's, or one that it may renew, expire."""
    if not may_handle_tokens(context):
        return ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP
        )
    principal = context.connection.principal
    try:
        expires_ms = await delegation_tokens.expire(
            bytes(request.hmac), principal, request.expiry_time_period_ms
        )
    except RequestError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)

"""RenewDelegationToken v0-v2. Lets a token live longer, at most until its end (KIP-48).

Only the token's owner and its renewers may do that, on connections on which tokens may be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.token_requests import NO_TIMESTAMP, may_handle_tokens
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.delegation_tokens import DelegationTokens
    from barnabas.requests.context import RequestContext


async def handle(
    context: RequestContext,
    request: RenewDelegationTokenRequest,
    *,
    delegation_tokens: DelegationTokens,
) -> RenewDelegationTokenResponse:
    """Renew a token of the requester's, or one that it may renew."""
    if not may_handle_tokens(context):
        return RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP
        )
    principal = context.connection.principal
    try:
        expires_ms = await delegation_tokens.renew(bytes(request.hmac), principal, request.renew_period_ms)
    except RequestError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)

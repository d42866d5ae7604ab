"""Answers to requests for delegation tokens that a broker of a quorum refuses itself, before it forwards them.

The rule: the answers are those of the handlers, field by field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.handlers.create_delegation_token import owner_of, without_token
from barnabas.handlers.shared.token_requests import NO_TIMESTAMP, may_handle_tokens
from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenResponse
from barnabas.wire.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.serving.context import RequestContext

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def unless_refused(
    forward: Callable[[RequestContext, Any], Awaitable[Any]], context: RequestContext, request: Any
) -> Any:
    """Return what the controller answers, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection without a login."""
    if may_handle_tokens(context):
        return await forward(context, request)
    if isinstance(request, CreateDelegationTokenRequest):
        return without_token(context, owner_of(context, request), NOT_ALLOWED)
    is_renewal = isinstance(request, RenewDelegationTokenRequest)
    kind = RenewDelegationTokenResponse if is_renewal else ExpireDelegationTokenResponse
    return kind(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)

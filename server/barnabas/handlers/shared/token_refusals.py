"""Errors of requests for delegation tokens that a broker of a quorum refuses itself, before it forwards them.

The rule: the responses are those of the handlers, field by field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.handlers.shared.token_requests import NO_TIMESTAMP, may_handle_tokens, owner_of, without_token
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import USER_TYPE
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
    """Return the controller's response, or the error of a request that is not forwarded.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a connection without a login; INVALID_PRINCIPAL_TYPE for a renewer that is no
    user, unless the requester has no permission for the owner at all, which the controller checks. Version 0, which
    controllers of Kafka 4 lack (KIP-896), is always forwarded.
    """
    if not context.api_version:
        return await forward(context, request)
    is_allowed = may_handle_tokens(context)
    if isinstance(request, CreateDelegationTokenRequest):
        owner = owner_of(context, request)
        if not is_allowed:
            return without_token(context, owner, NOT_ALLOWED)
        is_own = owner == context.connection.principal
        if any(renewer.principal_type != USER_TYPE for renewer in request.renewers) and (
            is_own or context.authorizes(Operation.CREATE_TOKENS, ResourceType.USER, owner)
        ):
            return without_token(context, owner, ErrorCode.INVALID_PRINCIPAL_TYPE)
    if is_allowed:
        return await forward(context, request)
    is_renewal = isinstance(request, RenewDelegationTokenRequest)
    kind = RenewDelegationTokenResponse if is_renewal else ExpireDelegationTokenResponse
    return kind(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)

"""CreateDelegationToken v0-v3. Creates a token with which its holder logs in as the token's owner (KIP-48).

v3 allows a token for another owner, which needs CREATE_TOKENS on USER (KIP-373). Over PLAINTEXT, over SSL without a
client certificate, and after a login with a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.shared.token_requests import may_handle_tokens, owner_of, without_token
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import USER_TYPE
from barnabas.wire.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.serving.context import RequestContext

log = logging.getLogger(__name__)


@dataclass(eq=False)
class CreateDelegationToken:
    """Handler of CreateDelegationToken."""

    delegation_tokens: DelegationTokens

    async def handle(
        self, context: RequestContext, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse:
        """Create a token for the requester, or for the owner that it names."""
        requester = context.connection.principal
        owner = owner_of(context, request)
        response = without_token(context, owner)
        code = _refusal(context, request, owner, requester, self.delegation_tokens.per_owner_max)
        if code != ErrorCode.NONE:
            response.error_code = code
            return response
        renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
        try:
            token = await self.delegation_tokens.create(owner, requester, renewers, request.max_lifetime_ms)
        except RequestError as error:
            context.log(log, logging.INFO, "refused delegation tokens", "%s", error)
            response.error_code = error.code
            return response
        response.issue_timestamp_ms = token.issued_ms
        response.expiry_timestamp_ms = token.expires_ms
        response.max_timestamp_ms = token.expires_max_ms
        response.token_id = token.token_id
        response.hmac = self.delegation_tokens.mac_of(token)
        return response


def _refusal(
    context: RequestContext,
    request: CreateDelegationTokenRequest,
    owner: str,
    requester: str,
    renewers_max: int,
) -> ErrorCode:
    """Return why the request is refused, NONE if it is not."""
    if not may_handle_tokens(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if owner != requester and not context.authorizes(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if len(request.renewers) > renewers_max:
        return ErrorCode.POLICY_VIOLATION
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers) or owner.startswith(":"):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.NONE

"""DescribeDelegationToken v0-v3. The tokens of some owners, or of all, with their HMACs (KIP-48).

Owners and renewers see their tokens; others need DESCRIBE on the DELEGATION_TOKEN, or DESCRIBE_TOKENS on the USER that
owns it (KIP-373). Tokens that the requester may not see are excluded. An empty list of owners returns no tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.shared.token_requests import may_handle_tokens, parts_of
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.security.tokens import Token
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Described = DescribeDelegationTokenResponse.DescribedDelegationToken
Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
REQUESTER_SINCE = 3
TOKEN_BYTES = 1_000
"""Approximate memory of a token in a response."""


@dataclass(eq=False)
class DescribeDelegationToken:
    """Handler of DescribeDelegationToken."""

    delegation_tokens: DelegationTokens
    metadata: MetadataStore
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        """Describe the requested tokens that the requester may see."""
        response = DescribeDelegationTokenResponse()
        try:
            if not may_handle_tokens(context):
                raise RequestError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
            self.delegation_tokens.check_served()
        except RequestError as error:
            response.error_code = error.code
            return response
        owners: set[str] | None = None
        if request.owners is not None:
            owners = set()
            for owner in request.owners:
                owners.add(f"{owner.principal_type}:{owner.principal_name}")
                await self.budget.checkpoint()
            if not owners:
                return response
        tokens = self.metadata.image.tokens
        await context.reserve(len(tokens) * TOKEN_BYTES)
        for token in list(tokens.values()):
            if _is_wanted(token, owners) and _may_see(context, token):
                response.tokens.append(_described(context, token, self.delegation_tokens.mac_of(token)))
            await self.budget.checkpoint()
        context.unreserve((len(tokens) - len(response.tokens)) * TOKEN_BYTES)
        return response


def _is_wanted(token: Token, owners: set[str] | None) -> bool:
    return owners is None or not owners.isdisjoint((token.owner, *token.renewers))


def _may_see(context: RequestContext, token: Token) -> bool:
    return (
        token.may_be_renewed_by(context.connection.principal)
        or context.authorizes(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.authorizes(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(context: RequestContext, token: Token, mac: bytes) -> Described:
    owner_type, owner_name = parts_of(token.owner)
    described = Described(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.expires_max_ms,
        token_id=token.token_id,
        hmac=mac,
        renewers=[
            Renewer(principal_type=kind, principal_name=name) for kind, name in map(parts_of, token.renewers)
        ],
    )
    if context.api_version >= REQUESTER_SINCE:
        kind, name = parts_of(token.requester)
        described.token_requester_principal_type, described.token_requester_principal_name = kind, name
    return described

"""ExpireDelegationToken v0-v2. Changes when a token expires; a negative period removes it at once (KIP-48).

Only the token's owner and its renewers may do that, on connections on which tokens may be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.token_requests import expiry_changed
from barnabas.wire.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class ExpireDelegationToken:
    """Handler of ExpireDelegationToken."""

    delegation_tokens: DelegationTokens

    async def handle(
        self, context: RequestContext, request: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        """Set the expiry of a token that the requester owns or may renew."""
        code, expires_ms = await expiry_changed(
            context, self.delegation_tokens.expire, bytes(request.hmac), request.expiry_time_period_ms
        )
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)

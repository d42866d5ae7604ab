"""RenewDelegationToken v0-v2. Lets a token live longer, at most until its end (KIP-48).

Only the token's owner and its renewers may do that, on connections on which tokens may be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.token_requests import expiry_changed
from barnabas.wire.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.delegation_tokens import DelegationTokens
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class RenewDelegationToken:
    """Handler of RenewDelegationToken."""

    delegation_tokens: DelegationTokens

    async def handle(
        self, context: RequestContext, request: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        """Renew a token that the requester owns or may renew."""
        code, expires_ms = await expiry_changed(
            context, self.delegation_tokens.renew, bytes(request.hmac), request.renew_period_ms
        )
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)

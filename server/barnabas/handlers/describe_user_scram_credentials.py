"""DescribeUserScramCredentials v0. Which SCRAM credentials users have, without anything secret (KIP-554).

Without users, or with an empty list, all are described. A user that is named twice: DUPLICATE_RESOURCE; one without
credentials: RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.security.scram import MECHANISMS
from barnabas.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.security.scram import ScramCredential
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Response = DescribeUserScramCredentialsResponse
Result = Response.DescribeUserScramCredentialsResult
USER_BYTES = 600
"""Approximate memory of a user in a response."""


@dataclass(eq=False)
class DescribeUserScramCredentials:
    """Handler of DescribeUserScramCredentials."""

    metadata: MetadataStore
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Response:
        """Describe each user."""
        credentials_by_user = self.metadata.image.scram
        named: Counter[str] = Counter()
        for asked in request.users or ():
            named[asked.name] += 1
            await self.budget.checkpoint()
        named = named or Counter(list(credentials_by_user))
        await context.reserve(len(named) * USER_BYTES)
        response = Response()
        for user, count in named.items():
            response.results.append(_described(user, count, credentials_by_user))
            await self.budget.checkpoint()
        return response


def _described(
    user: str, count: int, credentials_by_user: Mapping[str, Mapping[str, ScramCredential]]
) -> Result:
    if count > 1:
        return Result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    credentials = credentials_by_user.get(user)
    if credentials is None:
        return Result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    infos = [
        Response.CredentialInfo(mechanism=mechanism.type, iterations=credentials[name].iterations)
        for name, mechanism in MECHANISMS.items()
        if name in credentials
    ]
    return Result(user=user, credential_infos=infos)

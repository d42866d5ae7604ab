"""Common part of the four APIs of delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.serving.context import ANONYMOUS
from barnabas.wire.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

NO_TIMESTAMP = -1
"""Stands in the answer to a request that is refused."""

OWNER_SINCE = 3
"""Version of CreateDelegationToken that may name another owner (KIP-373)."""

Change = Callable[[bytes, str, int], Awaitable[int]]
"""Changes when the token of an HMAC expires, for a principal, by a period in ms; returns when. Raises RequestError."""


async def expiry_changed(
    context: RequestContext, change: Change, hmac: bytes, period_ms: int
) -> tuple[int, int]:
    """Return the error code and the time of expiry in ms with which a renewal or an expiry is answered."""
    if not may_handle_tokens(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP
    try:
        return ErrorCode.NONE, await change(hmac, context.connection.principal, period_ms)
    except RequestError as error:
        return error.code, NO_TIMESTAMP


def may_handle_tokens(context: RequestContext) -> bool:
    """Return whether requests about tokens are allowed on this connection.

    Not without authentication and encryption of some kind, and not after a login with a token.
    """
    connection = context.connection
    if connection.token_authenticated or connection.security_protocol == "PLAINTEXT":
        return False
    return connection.security_protocol != "SSL" or connection.principal != ANONYMOUS


def parts_of(principal: str) -> tuple[str, str]:
    """Return type and name of a principal such as `User:alice`."""
    kind, _, name = principal.partition(":")
    return kind, name


def owner_of(context: RequestContext, request: CreateDelegationTokenRequest) -> str:
    """Return the owner of a requested token: the requester, or since v3 the principal in the request."""
    if context.api_version >= OWNER_SINCE and request.owner_principal_name:
        return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    return context.connection.principal


def without_token(
    context: RequestContext, owner: str, code: ErrorCode = ErrorCode.NONE
) -> CreateDelegationTokenResponse:
    """Return an answer that names owner and requester, and has no token."""
    response = CreateDelegationTokenResponse(
        error_code=code, issue_timestamp_ms=NO_TIMESTAMP, expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )  # fmt: skip
    response.principal_type, response.principal_name = parts_of(owner)
    if context.api_version >= OWNER_SINCE:
        kind, name = parts_of(context.connection.principal)
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response

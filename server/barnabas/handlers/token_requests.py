"""What the four APIs of delegation tokens (KIP-48) have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.requests.context import ANONYMOUS

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

NO_TIMESTAMP = -1
"""Stands in the answer to a request that is refused."""


def may_handle_tokens(context: RequestContext) -> bool:
    """Return whether tokens may be asked for on this connection.

    Not without authentication and encryption of some kind, and not by somebody who has logged in with a token.
    """
    connection = context.connection
    if connection.token_authenticated or connection.security_protocol == "PLAINTEXT":
        return False
    return connection.security_protocol != "SSL" or connection.principal != ANONYMOUS


def parts_of(principal: str) -> tuple[str, str]:
    """Return type and name of a principal such as `User:alice`."""
    kind, _, name = principal.partition(":")
    return kind, name

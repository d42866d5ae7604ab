"""Common part of CreateAcls, DeleteAcls and DescribeAcls: without an authorizer there are no ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext


def require_authorizer(context: RequestContext, text: str = "No Authorizer is configured.") -> None:
    """Raise SECURITY_DISABLED where there is no authorizer; `text` has Kafka's words."""
    if not context.asks_authorizer:
        raise RequestError(ErrorCode.SECURITY_DISABLED, text)

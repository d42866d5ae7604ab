"""DescribeAcls v0-v3. No ACL can be shown: like a Kafka without an authorizer, this broker lets everybody do everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from barnabas.errors import RequestError
from barnabas.wire.generated.describe_acls import DescribeAclsRequest
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext


async def handle(_context: RequestContext, request: DescribeAclsRequest) -> NoReturn:  # noqa: ARG001
    """Always SECURITY_DISABLED, as Kafka answers."""
    raise RequestError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured on this broker")

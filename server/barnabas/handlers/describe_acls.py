"""DescribeAcls v0-v3. The ACLs that match a filter, by resource pattern; v0 knows literal patterns only.

DESCRIBE on the cluster is asked for before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.acl_requests import ACL_BYTES, filter_of, require_authorizer
from barnabas.wire.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext
    from barnabas.security.acls import ResourcePattern

Resource = DescribeAclsResponse.DescribeAclsResource
Description = DescribeAclsResponse.AclDescription


async def handle(
    context: RequestContext, request: DescribeAclsRequest, *, metadata: MetadataStore, budget: LoopBudget
) -> DescribeAclsResponse:
    """Describe what matches; numbers that mean nothing match nothing."""
    require_authorizer(context)
    acls, wanted = metadata.image.acls, filter_of(request)
    await context.reserve(acls.count * ACL_BYTES)
    resources: dict[ResourcePattern, Resource] = {}
    for piece in acls.matching(wanted):
        for pattern, (principal, host, operation, permission) in piece:
            resource = resources.get(pattern)
            if resource is None:
                kind, pattern_type, name = pattern
                resource = resources[pattern] = Resource(kind, name, pattern_type)
            resource.acls.append(Description(principal, host, operation, permission))
        await budget.checkpoint()
    return DescribeAclsResponse(resources=list(resources.values()))

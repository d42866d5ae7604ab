"""DescribeAcls v0-v3. The ACLs that match a filter, by resource pattern; v0 has literal patterns only.

Requires DESCRIBE on the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.acl_requests import ACL_BYTES, filter_of
from barnabas.handlers.shared.acl_requests import require_authorizer
from barnabas.wire.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.security.acls import ResourcePattern
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Resource = DescribeAclsResponse.DescribeAclsResource
Description = DescribeAclsResponse.AclDescription


@dataclass(eq=False)
class DescribeAcls:
    """Handler of DescribeAcls."""

    metadata: MetadataStore
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """Describe the ACLs that match; unknown codes of types or operations match none."""
        require_authorizer(context, "No Authorizer is configured on the broker")
        acls, acl_filter = self.metadata.image.acls, filter_of(request)
        await context.reserve(acls.count * ACL_BYTES)
        resources: dict[ResourcePattern, Resource] = {}
        for piece in acls.matching(acl_filter):
            for pattern, (principal, host, operation, permission) in piece:
                resource = resources.get(pattern)
                if resource is None:
                    kind, pattern_type, name = pattern
                    resource = resources[pattern] = Resource(kind, name, pattern_type)
                resource.acls.append(Description(principal, host, operation, permission))
            await self.budget.checkpoint()
        return DescribeAclsResponse(resources=list(resources.values()))

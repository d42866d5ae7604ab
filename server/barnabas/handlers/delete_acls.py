"""DeleteAcls v0-v3. Each filter is answered by itself, with the ACLs that it removes; two filters may name the same.

v0 knows literal patterns only. Requires ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.access_changes import AclRemoved
from barnabas.cluster.metadata.acl_requests import ACL_BYTES, CHANGES_MAX, filter_to_delete
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.errors import RequestError
from barnabas.handlers.shared.acl_requests import require_authorizer
from barnabas.wire.generated.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.security.acls import AclBinding, AclFilter, Acls
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Result = DeleteAclsResponse.DeleteAclsFilterResult
MATCHES_MAX = 10 * CHANGES_MAX
"""ACLs in one answer, where several filters name the same ones."""
_TOO_MANY = f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation."


@dataclass(eq=False)
class DeleteAcls:
    """Handler of DeleteAcls."""

    metadata: MetadataStore
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """Remove the ACLs that match, and answer once this broker no longer enforces them."""
        require_authorizer(context)
        if len(request.filters) > CHANGES_MAX:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION, f"no more than {CHANGES_MAX} filters can be sent at once"
            )
        acls = self.metadata.image.acls
        results: list[Result] = []
        count = 0
        removed: dict[AclBinding, None] = {}
        for asked in request.filters:
            try:
                acl_filter = filter_to_delete(asked)
            except RequestError as error:
                results.append(Result(error.code, error.message))
                continue
            matching = await self._matching(acls, acl_filter)
            count += len(matching)
            removed.update(dict.fromkeys(matching))
            if len(removed) > CHANGES_MAX or count > MATCHES_MAX:
                raise RequestError(ErrorCode.INVALID_REQUEST, _TOO_MANY)
            results.append(Result(0, None, [_removed(acl) for acl in matching]))

        def decide(image: ClusterImage) -> Iterator[AclRemoved]:
            return (AclRemoved(acl) for acl in removed if acl in image.acls)

        await context.reserve(count * ACL_BYTES)
        if removed:
            await self.metadata.change(decide)
        return DeleteAclsResponse(filter_results=results)

    async def _matching(self, acls: Acls, acl_filter: AclFilter) -> list[AclBinding]:
        """Return the ACLs that match. Raises INVALID_REQUEST if they are too many."""
        matching: list[AclBinding] = []
        for piece in acls.matching(acl_filter):
            matching += piece
            if len(matching) > CHANGES_MAX:
                raise RequestError(ErrorCode.INVALID_REQUEST, _TOO_MANY)
            await self.budget.checkpoint()
        return matching


def _removed(acl: AclBinding) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    (kind, pattern_type, name), (principal, host, operation, permission) = acl
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        0, None, kind, name, pattern_type, principal, host, operation, permission
    )

"""DeleteGroups v0-v3. Deletes groups without members, with their offsets or the state of their partitions.

v3 has a message, which stays empty as Kafka's does: it is for descriptions of topologies that cannot be deleted
(KIP-1331), and this broker stores none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Result = DeleteGroupsResponse.DeletableGroupResult


@dataclass(eq=False)
class DeleteGroups:
    """Handler of DeleteGroups."""

    shares: Shares
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """Delete each group on its own."""
        response = DeleteGroupsResponse()
        for group_id in dict.fromkeys(request.groups_names):
            result = Result(group_id=group_id)
            response.results.append(result)
            try:
                context.require(Operation.DELETE, ResourceType.GROUP, group_id)
                await self.shares.groups.delete_group(group_id)
            except RequestError as error:
                result.error_code = error.code
            await self.budget.checkpoint()
        return response

"""DeleteShareGroupState v0. Ends the state of share partitions (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.share_state import answer_each
from barnabas.wire.generated.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinators.share.records import StateKey
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Asked = DeleteShareGroupStateRequest.PartitionData
Result = DeleteShareGroupStateResponse.PartitionResult


@dataclass(eq=False)
class DeleteShareGroupState:
    """Handler of DeleteShareGroupState."""

    shares: Shares
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: DeleteShareGroupStateRequest
    ) -> DeleteShareGroupStateResponse:
        """Delete each state on its own; deleting a missing state succeeds."""

        async def delete(key: StateKey, asked: Asked, result: Result) -> None:  # noqa: ARG001
            await self.shares.state.delete(key)

        return await answer_each(
            request, DeleteShareGroupStateResponse(), "DeleteStateResult", delete, budget=self.budget
        )

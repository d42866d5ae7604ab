"""ReadShareGroupState v0. The persisted state of share partitions (KIP-932), for the leaders of their partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.share_state import answer_each
from barnabas.wire.generated.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinators.share.records import StateKey
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Asked = ReadShareGroupStateRequest.PartitionData
Result = ReadShareGroupStateResponse.PartitionResult


@dataclass(eq=False)
class ReadShareGroupState:
    """Handler of ReadShareGroupState."""

    shares: Shares
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: ReadShareGroupStateRequest
    ) -> ReadShareGroupStateResponse:
        """Read each on its own; leaders with an older epoch may not write from then on."""

        async def read(key: StateKey, asked: Asked, result: Result) -> None:
            state = await self.shares.state.read_state(key, asked.leader_epoch)
            result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
            result.state_batches = [ReadShareGroupStateResponse.StateBatch(*batch) for batch in state.batches]

        return await answer_each(
            request, ReadShareGroupStateResponse(), "ReadStateResult", read, budget=self.budget
        )

"""ReadShareGroupStateSummary v0-v1. Where share partitions begin (KIP-932); v1 adds how many records are complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.share.records import UNKNOWN_OFFSET
from barnabas.handlers.shared.share_state import answer_each
from barnabas.wire.generated.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinators.share.records import StateKey
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Asked = ReadShareGroupStateSummaryRequest.PartitionData
Result = ReadShareGroupStateSummaryResponse.PartitionResult


@dataclass(eq=False)
class ReadShareGroupStateSummary:
    """Handler of ReadShareGroupStateSummary."""

    shares: Shares
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse:
        """Read each state on its own; a missing one has no start offset."""

        async def read(key: StateKey, asked: Asked, result: Result) -> None:  # noqa: ARG001
            state = await self.shares.state.summary(key)
            if state is None:
                result.start_offset, result.delivery_complete_count = UNKNOWN_OFFSET, -1
                return
            result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
            result.start_offset, result.delivery_complete_count = state.start_offset, state.complete_count

        return await answer_each(
            request, ReadShareGroupStateSummaryResponse(), "ReadStateSummaryResult", read, budget=self.budget
        )

"""WriteShareGroupState v0-v1. Persists the states of records (KIP-932); v1 adds the number of complete ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.state import StateWrite
from barnabas.handlers.shared.share_state import answer_each
from barnabas.wire.generated.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinators.share.records import StateKey
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Asked = WriteShareGroupStateRequest.PartitionData
Result = WriteShareGroupStateResponse.PartitionResult


@dataclass(eq=False)
class WriteShareGroupState:
    """Handler of WriteShareGroupState."""

    shares: Shares
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: WriteShareGroupStateRequest
    ) -> WriteShareGroupStateResponse:
        """Write each on its own."""

        async def write(key: StateKey, asked: Asked, result: Result) -> None:  # noqa: ARG001
            batches = []
            for batch in asked.state_batches:
                batches.append(
                    StateBatch(
                        batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
                    )
                )
                await self.budget.checkpoint()
            await self.shares.state.write_state(
                key,
                StateWrite(
                    asked.state_epoch,
                    asked.leader_epoch,
                    asked.start_offset,
                    asked.delivery_complete_count,
                    batches,
                ),
            )

        return await answer_each(
            request, WriteShareGroupStateResponse(), "WriteStateResult", write, budget=self.budget
        )

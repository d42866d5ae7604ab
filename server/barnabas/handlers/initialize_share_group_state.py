"""InitializeShareGroupState v0. Begins the state of share partitions (KIP-932), as the group coordinator asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.share_state import answer_each
from barnabas.wire.generated.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

if TYPE_CHECKING:
    from barnabas.coordinators.share.records import StateKey
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Asked = InitializeShareGroupStateRequest.PartitionData
Result = InitializeShareGroupStateResponse.PartitionResult


@dataclass(eq=False)
class InitializeShareGroupState:
    """Handler of InitializeShareGroupState."""

    shares: Shares
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: InitializeShareGroupStateRequest
    ) -> InitializeShareGroupStateResponse:
        """Begin each on its own."""

        async def initialize(key: StateKey, asked: Asked, result: Result) -> None:  # noqa: ARG001
            await self.shares.state.initialize(key, asked.state_epoch, asked.start_offset)

        return await answer_each(
            request,
            InitializeShareGroupStateResponse(),
            "InitializeStateResult",
            initialize,
            budget=self.budget,
        )

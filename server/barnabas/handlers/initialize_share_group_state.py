"""InitializeShareGroupState v0. Begins the state of share partitions (KIP-932), as the group coordinator asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.share_state import answer_each
from barnabas.wire.generated.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

if TYPE_CHECKING:
    from barnabas.coordination.shares import Shares
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext
    from barnabas.share.records import StateKey

Asked = InitializeShareGroupStateRequest.PartitionData
Result = InitializeShareGroupStateResponse.PartitionResult


async def handle(
    _context: RequestContext, request: InitializeShareGroupStateRequest, *, shares: Shares, budget: LoopBudget
) -> InitializeShareGroupStateResponse:
    """Begin each on its own."""

    async def initialize(key: StateKey, asked: Asked, result: Result) -> None:  # noqa: ARG001
        await shares.state.initialize(key, asked.state_epoch, asked.start_offset)

    return await answer_each(
        request, InitializeShareGroupStateResponse(), "InitializeStateResult", initialize, budget=budget
    )

"""SyncGroup v0-v5. A member asks for its assignment; the leader brings everybody's.

v3 adds static members; v5 says which protocol the member believes in (KIP-559).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.later import Later
from barnabas.statemachine.decision import slices
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

PROTOCOL_SINCE = 5
ASSIGNMENTS_AT_ONCE = 500


def handle(
    context: RequestContext,
    request: SyncGroupRequest,
    *,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> SyncGroupResponse | Later[SyncGroupResponse]:
    """Sync; answered when the leader has synced."""
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if context.api_version >= PROTOCOL_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "v5 needs the protocol's type and name")
    if len(request.assignments) > ASSIGNMENTS_AT_ONCE:
        return Later(partial(_sync_many, context, request, group_coordinator, budget))
    return group_coordinator.perform_and_announce(
        request.group_id,
        lambda shard, out, waiter: shard.sync(request, waiter, context.now_ms, out),
        _respond,
    )


def _respond(outcome: SyncGroupResponse | RequestError) -> SyncGroupResponse:
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome


async def _sync_many(
    context: RequestContext,
    request: SyncGroupRequest,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> SyncGroupResponse:
    """Sync as the leader of very many members."""
    assigned: dict[str, bytes] = {}
    for some in slices(request.assignments, ASSIGNMENTS_AT_ONCE):
        assigned.update({entry.member_id: entry.assignment for entry in some})
        await budget.checkpoint()
    response: SyncGroupResponse = await group_coordinator.perform_and_wait(
        request.group_id,
        lambda shard, out, waiter: shard.sync(request, waiter, context.now_ms, out, assigned),
    )
    return response

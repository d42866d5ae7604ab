"""Heartbeat v0-v4. A member is alive; REBALANCE_IN_PROGRESS tells it to join again. v3 adds static members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.later import Later
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.groups.shard import GroupShard
    from barnabas.requests.context import RequestContext
    from barnabas.statemachine.decision import Decision


def handle(
    context: RequestContext, request: HeartbeatRequest, *, group_coordinator: GroupCoordinator
) -> HeartbeatResponse | Later[HeartbeatResponse]:
    """Note that the member is alive."""
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")

    def beat(shard: GroupShard, out: Decision) -> HeartbeatResponse:
        must_join = shard.heartbeat(request, context.now_ms, out)
        code = ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE
        last: HeartbeatResponse | None = context.last_response
        return last if last is not None and last.error_code == code else HeartbeatResponse(error_code=code)

    return group_coordinator.perform_at_once(request.group_id, beat)

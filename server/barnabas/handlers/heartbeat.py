"""Heartbeat v0-v4. A member is alive; after REBALANCE_IN_PROGRESS it must join again. v3 adds static members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext
    from barnabas.serving.deferred import Deferred


@dataclass(eq=False)
class Heartbeat:
    """Handler of Heartbeat."""

    group_coordinator: GroupCoordinator

    def handle(
        self, context: RequestContext, request: HeartbeatRequest
    ) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
        """Note that the member is alive. Raises RequestError."""
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        now_ms = context.now_ms

        def beat(shard: GroupShard, out: Decision) -> HeartbeatResponse:
            must_join = shard.heartbeat(request, now_ms, out)
            code = ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE
            last: HeartbeatResponse | None = context.last_response
            return (
                last if last is not None and last.error_code == code else HeartbeatResponse(error_code=code)
            )

        return self.group_coordinator.write_nowait(request.group_id, beat)

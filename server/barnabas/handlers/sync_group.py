"""SyncGroup v0-v5. A member requests its assignment; the leader sends those of all members.

v3 adds static members; v5 has the protocol that the member expects (KIP-559).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import slices
from barnabas.errors import RequestError
from barnabas.serving.deferred import Deferred, resolved
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext


PROTOCOL_SINCE: Final = 5
"""From this version on a member says which protocol it believes in (KIP-559)."""
ASSIGNMENTS_PER_CHECKPOINT: Final = 500


@dataclass(eq=False)
class SyncGroup:
    """Handler of SyncGroup."""

    group_coordinator: GroupCoordinator
    budget: LoopBudget

    def handle(
        self, context: RequestContext, request: SyncGroupRequest
    ) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
        """Sync; answered when the leader has synced. Raises RequestError."""
        if context.api_version >= PROTOCOL_SINCE and (
            request.protocol_type is None or request.protocol_name is None
        ):
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "v5 needs the protocol's type and name")
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        if len(request.assignments) > ASSIGNMENTS_PER_CHECKPOINT:
            return Deferred(partial(self._sync_in_slices, context, request))
        now_ms = context.now_ms
        return self.group_coordinator.write_for_reply(
            request.group_id,
            lambda shard, out, waiter: shard.sync(request, waiter, now_ms, out),
            raising,
        )

    async def _sync_in_slices(self, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
        """Sync as the leader of very many members."""
        assigned: dict[str, bytes] = {}
        for some in slices(request.assignments, ASSIGNMENTS_PER_CHECKPOINT):
            assigned.update({entry.member_id: entry.assignment for entry in some})
            await self.budget.checkpoint()
        now_ms = context.now_ms
        response: SyncGroupResponse = await resolved(
            self.group_coordinator.write_for_reply(
                request.group_id,
                lambda shard, out, waiter: shard.sync(request, waiter, now_ms, out, assigned),
                raising,
            )
        )
        return response

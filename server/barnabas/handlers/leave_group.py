"""LeaveGroup v0-v5. Members leave; v3 has many members in one request, static ones by instance id (KIP-345)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinators.statemachine.decision import slices
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.groups.shard import GroupShard
    from barnabas.coordinators.statemachine.decision import Decision
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

MANY_SINCE = 3
MEMBERS_PER_BATCH = 500
"""Members that leave in one event; a longer request is split into several, between which others may run."""


@dataclass(eq=False)
class LeaveGroup:
    """Handler of LeaveGroup."""

    group_coordinator: GroupCoordinator
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove each member on its own."""
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        members = request.members
        if context.api_version < MANY_SINCE:
            members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]

        codes: list[int] = []
        for together in slices(members, MEMBERS_PER_BATCH) if members else (members,):
            codes += await self.group_coordinator.write(
                request.group_id,
                partial(_leave, group_id=request.group_id, members=together, now_ms=context.now_ms),
            )
        if context.api_version < MANY_SINCE:
            return LeaveGroupResponse(error_code=codes[0])
        response = LeaveGroupResponse()
        for member, code in zip(members, codes, strict=True):
            response.members.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                )
            )
            await self.budget.checkpoint()
        return response


def _leave(
    shard: GroupShard,
    out: Decision,
    *,
    group_id: str,
    members: Sequence[LeaveGroupRequest.MemberIdentity],
    now_ms: int,
) -> list[int]:
    return shard.leave(group_id, members, now_ms, out)

"""LeaveGroup v0-v5. Members leave; v3 takes many at once, static ones by instance id (KIP-345)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.requests.context import RequestContext

MANY_SINCE = 3


async def handle(
    context: RequestContext, request: LeaveGroupRequest, *, group_coordinator: GroupCoordinator
) -> LeaveGroupResponse:
    """Let each member leave on its own."""
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    members = request.members
    if context.api_version < MANY_SINCE:
        members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]

    codes = await group_coordinator.perform(
        request.group_id, lambda shard, out: shard.leave(request.group_id, members, context.now_ms, out)
    )
    if context.api_version < MANY_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
            )
            for member, code in zip(members, codes, strict=True)
        ]
    )

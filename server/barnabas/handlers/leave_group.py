"""LeaveGroup v0-v5. Members leave; v3 takes many at once, static ones by instance id (KIP-345)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.decision import Decision
from barnabas.groups.shard import GroupShard
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

MANY_SINCE = 3


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Let each member leave on its own."""
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    members = request.members
    if context.api_version < MANY_SINCE:
        members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]

    def leave(shard: GroupShard, out: Decision) -> list[int]:
        codes = []
        for member in members:
            try:
                group = shard.group(request.group_id)
                group.leave(member.member_id, member.group_instance_id, context.now_ms, out)
            except RequestError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.NONE)
        return codes

    codes = await context.broker.groups.perform(request.group_id, leave)
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

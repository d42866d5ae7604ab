"""DescribeGroups v0-v6. State and members of groups; v6 returns GROUP_ID_NOT_FOUND instead of the state Dead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

NOT_FOUND_SINCE = 6

Described = DescribeGroupsResponse.DescribedGroup


@dataclass(eq=False)
class DescribeGroups:
    """Handler of DescribeGroups."""

    group_coordinator: GroupCoordinator
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Describe each group on its own, once."""
        response = DescribeGroupsResponse()
        for group_id in dict.fromkeys(request.groups):
            await self.budget.checkpoint()
            try:
                context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
                described, members = await self.group_coordinator.read(
                    group_id, partial(_describe, context, group_id)
                )
                for member in members:
                    described.members.append(member)
                    await self.budget.checkpoint()
            except RequestError as error:
                described = Described(group_id=group_id, error_code=error.code)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
            response.groups.append(described)
        return response


def _describe(
    context: RequestContext, group_id: str, shard: GroupShard
) -> tuple[Described, Iterator[DescribeGroupsResponse.DescribedGroupMember]]:
    """Return the description of a group, and an iterator over its members, which may be many."""
    group = shard.find(group_id, ClassicGroup)
    if group is None:
        if group_id not in shard.groups and shard.exists(group_id):
            return Described(group_id=group_id, group_state="Empty"), iter(())
        if context.api_version >= NOT_FOUND_SINCE:
            dead = Described(
                group_id=group_id,
                group_state="Dead",
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=shard.why_not(group_id, ClassicGroup),
            )
            return dead, iter(())
        return Described(group_id=group_id, group_state="Dead"), iter(())
    protocol = group.protocol or ""
    is_stable = group.state_name == "Stable"
    members, assignments = group.members.values(), group.assignments
    described = Described(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=protocol if is_stable else "",
    )
    return described, (
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_for(protocol) if is_stable else b"",
            member_assignment=assignments.get(member.id, b""),
        )
        for member in members
    )

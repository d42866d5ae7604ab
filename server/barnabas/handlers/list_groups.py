"""ListGroups v0-v5. All groups of this broker; v4 filters by state, v5 by type (KIP-848)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.groups.shard import GroupShard
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

CLASSIC = "classic"
STATE_SINCE = 4
TYPE_SINCE = 5


@dataclass(eq=False)
class ListGroups:
    """Handler of ListGroups."""

    group_coordinator: GroupCoordinator
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        """List the groups that pass the filters, which ignore case."""
        states: set[str] = set()
        types: set[str] = set()
        for lowered, names in ((states, request.states_filter), (types, request.types_filter)):
            for name in names:
                lowered.add(name.lower())
                await self.budget.checkpoint()
        sees_all = context.authorizes(
            Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
        )

        def look(shard: GroupShard) -> Iterator[ListGroupsResponse.ListedGroup | None]:
            for group_id in shard.groups.keys() | shard.offsets.keys() | shard.pending.groups():
                group = shard.groups.get(group_id)
                if group is None and not shard.exists(group_id):
                    continue  # it has gone meanwhile
                kind = group.kind if group else CLASSIC
                state = group.state_name if group else "Empty"
                if (states and state.lower() not in states) or (types and kind not in types):
                    yield None
                    continue
                if not (
                    sees_all
                    or context.authorizes(
                        Operation.DESCRIBE, ResourceType.GROUP, group_id, is_asked_for=False
                    )
                ):
                    yield None
                    continue
                yield ListGroupsResponse.ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type if group else "",
                    group_state=state if context.api_version >= STATE_SINCE else "",
                    group_type=kind if context.api_version >= TYPE_SINCE else "",
                )

        listed = await self.group_coordinator.read_all(look)
        return ListGroupsResponse(groups=[group for group in listed if group is not None])

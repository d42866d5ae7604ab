"""DeleteGroups v0-v2. Deletes groups without members, with their offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.decision import Decision
from barnabas.groups.shard import GroupShard
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

Result = DeleteGroupsResponse.DeletableGroupResult


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group on its own."""
    response = DeleteGroupsResponse()
    for group_id in request.groups_names:
        result = Result(group_id=group_id)
        response.results.append(result)
        try:
            await context.broker.groups.perform(group_id, partial(_delete, group_id))
        except RequestError as error:
            result.error_code = error.code
    return response


def _delete(group_id: str, shard: GroupShard, out: Decision) -> None:
    shard.delete_group(group_id, out)

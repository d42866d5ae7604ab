"""OffsetDelete v0. Forgets committed offsets, except of topics that members are subscribed to (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.decision import Decision
from barnabas.groups.shard import GroupShard
from barnabas.groups.subscription import subscribed_topics
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Answer every partition on its own."""

    def delete(shard: GroupShard, out: Decision) -> OffsetDeleteResponse:
        if not shard.exists(request.group_id):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        group = shard.groups.get(request.group_id)
        subscribed = subscribed_topics(group) if group is not None else set()
        if subscribed is None:
            raise RequestError(
                ErrorCode.NON_EMPTY_GROUP, "its members do not say what they are subscribed to"
            )
        response = OffsetDeleteResponse()
        places = []
        for topic in request.topics:
            answers = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                answer = OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index
                )
                answers.partitions.append(answer)
                if topic.name in subscribed:
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    places.append((topic.name, partition.partition_index))
        shard.delete_offsets(request.group_id, places, out)
        return response

    response: OffsetDeleteResponse = await context.broker.groups.perform(request.group_id, delete)
    return response

"""OffsetDelete v0. Forgets committed offsets, except of topics that members are subscribed to (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.decision import Decision
from barnabas.groups.embedded import CONSUMER
from barnabas.groups.shard import GroupShard
from barnabas.groups.share.group import ShareGroup
from barnabas.groups.subscription import subscribed_topics
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Answer every partition on its own."""
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    known_topics = context.broker.metadata.image.topics

    def delete(shard: GroupShard, out: Decision) -> OffsetDeleteResponse:
        if not shard.exists(request.group_id):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        group = shard.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{request.group_id!r} is a share group")
        if isinstance(group, ClassicGroup) and group.members and group.protocol_type != CONSUMER:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, "the group has members that are no consumers")
        subscribed = subscribed_topics(group) if group is not None else set()
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
                info = known_topics.get(topic.name)
                if info is None or not 0 <= partition.partition_index < len(info.partitions):
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif subscribed is None or topic.name in subscribed:
                    # Consumers whose subscription cannot be read may be subscribed to anything.
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    places.append((topic.name, partition.partition_index))
        shard.delete_offsets(request.group_id, places, out)
        return response

    response: OffsetDeleteResponse = await context.broker.groups.perform(request.group_id, delete)
    return response

"""OffsetDelete v0. Deletes committed offsets, except of topics that members are subscribed to (KIP-496)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import TopicInfo
from barnabas.coordinators.groups.shard import OFFSETS_PER_EVENT, GroupShard
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision, slices
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Answer = OffsetDeleteResponse.OffsetDeleteResponsePartition


@dataclass(eq=False)
class OffsetDelete:
    """Handler of OffsetDelete."""

    metadata: MetadataStore
    group_coordinator: GroupCoordinator
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Answer every partition on its own."""
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        response = OffsetDeleteResponse()
        asked: list[tuple[TopicPartition, Answer]] = []
        for topic in request.topics:
            if not topic.partitions:
                continue
            answers = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(answers)
            may_read = context.authorizes(Operation.READ, ResourceType.TOPIC, topic.name)
            for partition in topic.partitions:
                await self.budget.checkpoint()
                answer = Answer(partition_index=partition.partition_index)
                answers.partitions.append(answer)
                if not may_read:
                    answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    continue
                asked.append(((topic.name, partition.partition_index), answer))
        known_topics = self.metadata.image.topics
        for some in slices(asked, OFFSETS_PER_EVENT) if asked else [[]]:
            event = partial(_delete, request.group_id, known_topics, some)
            await self.group_coordinator.write(
                request.group_id,
                event,
                is_large=lambda shard: shard.subscription_size(request.group_id) > EVENT_SIZE_MAX,
            )
        return response


def _delete(
    group_id: str,
    known_topics: Mapping[str, TopicInfo],
    asked: Sequence[tuple[TopicPartition, Answer]],
    shard: GroupShard,
    out: Decision,
) -> None:
    """Delete some offsets, or return the reason for refusing each. Raises RequestError for all of them."""
    if not shard.exists(group_id):
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
    group = shard.groups.get(group_id)
    subscribed: Set[str] | None = set()
    if group is not None:
        group.check_offset_deletion()
        subscribed = group.subscribed_topics()
    topic_partitions = []
    for topic_partition, answer in asked:
        topic, index = topic_partition
        info = known_topics.get(topic)
        if info is None or not 0 <= index < len(info.partitions):
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif subscribed is None or topic in subscribed:
            # Consumers with a subscription that cannot be read may be subscribed to anything.
            answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            topic_partitions.append(topic_partition)
    shard.delete_offsets(group_id, topic_partitions, out)

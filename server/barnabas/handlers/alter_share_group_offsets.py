"""AlterShareGroupOffsets v0. Lets a share group without members begin elsewhere (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Partition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


@dataclass(eq=False)
class AlterShareGroupOffsets:
    """Handler of AlterShareGroupOffsets."""

    metadata: MetadataStore
    shares: Shares
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse:
        """Alter each partition on its own; a missing group is created, unless no partition in the request can be altered.

        A group with members, or of another kind, is refused whatever topics are named.
        """
        response = AlterShareGroupOffsetsResponse()
        offsets: dict[TopicIdPartition, int] = {}
        answers: dict[TopicIdPartition, Partition] = {}
        topics: dict[str, Topic] = {}
        for asked in request.topics:
            await self.budget.checkpoint()
            may_read = context.authorizes(Operation.READ, ResourceType.TOPIC, asked.topic_name)
            info = self.metadata.image.topics.get(asked.topic_name) if may_read else None
            topic = topics.setdefault(
                asked.topic_name, Topic(topic_name=asked.topic_name, topic_id=info.id if info else bytes(16))
            )
            for partition in asked.partitions:
                answer = Partition(partition_index=partition.partition_index)
                topic.partitions.append(answer)
                await self.budget.checkpoint()
                if not may_read:
                    answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    answer.error_message = f"READ on TOPIC {asked.topic_name!r} is denied"
                elif info is None or not 0 <= partition.partition_index < len(info.partitions):
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    answer.error_message = (
                        f"there is no partition {asked.topic_name}-{partition.partition_index}"
                    )
                else:
                    offsets[info.id, partition.partition_index] = partition.start_offset
                    answers[info.id, partition.partition_index] = answer
        response.responses = [*topics.values()]
        try:
            if not request.group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            if request.topics and not offsets:
                await self.shares.groups.check_alterable(request.group_id)
                return response
            for topic_partition, error in (
                await self.shares.groups.alter_offsets(request.group_id, offsets)
            ).items():
                if error is not None:
                    answers[topic_partition].error_code, answers[topic_partition].error_message = (
                        error.code,
                        error.message or None,
                    )
        except RequestError as error:
            return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message or None)
        return response

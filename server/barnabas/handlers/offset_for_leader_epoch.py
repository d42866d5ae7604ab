"""OffsetForLeaderEpoch v0-v4. Where an epoch ended, so that a reader can find the point its log parts from ours.

v1 adds the epoch to the answer, v2 the client's current leader epoch (KIP-320), v3 the replica id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.replicas.epoch_ends import end_offset_for_epoch
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


@dataclass(eq=False)
class OffsetForLeaderEpoch:
    """Handler of OffsetForLeaderEpoch."""

    replicas: Replicas
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Answer every partition on its own."""
        response = OffsetForLeaderEpochResponse()
        is_replica = context.authorizes(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
        )
        for topic in request.topics:
            result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(result)
            await self.budget.checkpoint()
            may = is_replica or context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            for asked in topic.partitions:
                if may:
                    answer = self._answer(topic.topic, asked)
                else:
                    answer = EpochEndOffset(
                        partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                result.partitions.append(answer)
                await self.budget.checkpoint()
        return response

    def _answer(
        self, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    ) -> EpochEndOffset:
        answer = EpochEndOffset(partition=asked.partition, leader_epoch=-1, end_offset=-1)
        try:
            partition = self.replicas.leader(topic, asked.partition, asked.current_leader_epoch)
            end = end_offset_for_epoch(partition, asked.leader_epoch)
            answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
        except RequestError as error:
            answer.error_code = error.code
        return answer

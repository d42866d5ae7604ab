"""AlterPartitionReassignments v0-v1. Gives partitions to other brokers, or cancels that (KIP-455).

The controller begins the moves and carries them out later. kafka-reassign-partitions asks this first, also when a replica
is only to change its log dir. v1 can forbid that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cluster.metadata.ports import Controller
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


@dataclass(eq=False)
class AlterPartitionReassignments:
    """Handler of AlterPartitionReassignments."""

    controller: Controller
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Answer each partition on its own."""
        targets: dict[TopicPartition, Sequence[int] | None] = {}
        for topic in request.topics:
            for reassignment in topic.partitions:
                targets[topic.name, reassignment.partition_index] = reassignment.replicas
                await self.budget.checkpoint()
            await self.budget.checkpoint()
        results = await self.controller.alter_reassignments(
            targets, keeps_factor=not request.allow_replication_factor_change
        )
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
        )
        for topic in request.topics:
            answer = Topic(name=topic.name)
            response.responses.append(answer)
            await self.budget.checkpoint()
            for reassignment in topic.partitions:
                partition = Partition(partition_index=reassignment.partition_index, error_message=None)
                error = results[topic.name, reassignment.partition_index]
                if error is not None:
                    partition.error_code, partition.error_message = error.code, error.message or None
                answer.partitions.append(partition)
                await self.budget.checkpoint()
        return response

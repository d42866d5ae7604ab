"""ListPartitionReassignments v0. The ongoing moves of partitions to other brokers (KIP-455).

Topics and partitions that do not exist or do not move are excluded; a broker without a cluster has no moves. Moves between
the log dirs of a broker are in the response to DescribeLogDirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.asked import each_partition
from barnabas.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import Controller
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
Partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


@dataclass(eq=False)
class ListPartitionReassignments:
    """Handler of ListPartitionReassignments."""

    controller: Controller
    budget: LoopBudget

    async def handle(
        self, _context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """List the moves of these topics' partitions, or of all."""
        asked = None
        if request.topics is not None:
            asked = await each_partition(
                request.topics,
                lambda topic: topic.partition_indexes,
                lambda topic, index: (topic.name, index),
                self.budget,
            )
        topics: dict[str, Topic] = {}
        for (name, index), moving in (await self.controller.reassignments(asked)).items():
            topic = topics.setdefault(name, Topic(name=name))
            topic.partitions.append(
                Partition(
                    partition_index=index,
                    replicas=list(moving.replicas),
                    adding_replicas=list(moving.adding),
                    removing_replicas=list(moving.removing),
                )
            )
            await self.budget.checkpoint()
        return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))

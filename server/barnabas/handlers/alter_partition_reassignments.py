"""AlterPartitionReassignments v0-v1. Gives partitions to other brokers, or cancels that (KIP-455).

In a cluster of one there is nobody else to give them to: replicas that are as they should be need no move, others are
refused, and no move is ever there to be cancelled. kafka-reassign-partitions asks this first, also when a replica is
only to change its log dir. v1 can forbid that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster import controller
from barnabas.errors import RequestError
from barnabas.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.image import ClusterImage
    from barnabas.cluster.store import MetadataStore
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


async def handle(
    _context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    *,
    metadata: MetadataStore,
    budget: LoopBudget,
) -> AlterPartitionReassignmentsResponse:
    """Answer each partition on its own."""
    image, keeps_factor = metadata.image, not request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        told = Topic(name=topic.name)
        response.responses.append(told)
        for wanted in topic.partitions:
            told.partitions.append(_reassign(image, topic.name, wanted, keeps_factor))
            await budget.checkpoint()
    return response


def _reassign(
    image: ClusterImage,
    topic: str,
    wanted: AlterPartitionReassignmentsRequest.ReassignablePartition,
    keeps_factor: bool,
) -> Partition:
    told = Partition(partition_index=wanted.partition_index, error_message=None)
    try:
        controller.check_reassignment(
            image, topic, wanted.partition_index, wanted.replicas, keeps_factor=keeps_factor
        )
    except RequestError as error:
        told.error_code, told.error_message = error.code, error.message or None
    return told

"""DescribeProducers v0. The idempotent and transactional producers that a partition remembers (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.describe_producers import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

PRODUCERS_PER_STEP = 100

PartitionResponse = DescribeProducersResponse.PartitionResponse


@dataclass(eq=False)
class DescribeProducers:
    """Handler of DescribeProducers."""

    replicas: Replicas
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """Answer every partition on its own."""
        response = DescribeProducersResponse()
        for topic in request.topics:
            result = DescribeProducersResponse.TopicResponse(name=topic.name)
            response.topics.append(result)
            await self.budget.checkpoint()
            for index in topic.partition_indexes:
                result.partitions.append(await self._describe(context, topic.name, index))
                await self.budget.checkpoint()
        return response

    async def _describe(self, context: RequestContext, topic: str, index: int) -> PartitionResponse:
        answer = PartitionResponse(partition_index=index)
        try:
            topic_decisions.check_topic_name(topic)
            context.require(Operation.READ, ResourceType.TOPIC, topic)
            partition = self.replicas.local(topic, index)  # followers know them too
        except RequestError as error:
            answer.error_code = error.code
            answer.error_message = error.message or None
            return answer
        for count, producer in enumerate(tuple(partition.log.producers.active()), start=1):
            answer.active_producers.append(
                DescribeProducersResponse.ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.current_txn_first_offset,
                )
            )
            if not count % PRODUCERS_PER_STEP:
                await self.budget.checkpoint()
        return answer

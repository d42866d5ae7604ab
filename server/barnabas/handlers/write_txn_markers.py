"""WriteTxnMarkers v0-v2. A coordinator, or an operator who cleans up, ends transactions in partitions of this broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from barnabas.coordinators.runtime.markers import LocalMarkers
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Marker = WriteTxnMarkersRequest.WritableTxnMarker
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


@dataclass(eq=False)
class WriteTxnMarkers:
    """Handler of WriteTxnMarkers."""

    budget: LoopBudget
    markers: LocalMarkers

    async def handle(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Answer each partition of each marker on its own; a producer is answered once, whatever its markers."""
        if not context.authorizes(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False):
            context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        codes: dict[int, dict[str, dict[int, int]]] = {}
        for marker in request.markers:
            await self.budget.checkpoint()
            for topic in marker.topics:
                await self.budget.checkpoint()
                for index in topic.partition_indexes:
                    code = await _write(marker, topic.name, index, markers=self.markers)
                    codes.setdefault(marker.producer_id, {}).setdefault(topic.name, {})[index] = code
                    await self.budget.checkpoint()
        response = WriteTxnMarkersResponse()
        for producer_id, topics in codes.items():
            result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=producer_id)
            response.markers.append(result)
            for name, partitions in topics.items():
                answers = []
                for index, code in partitions.items():
                    answers.append(PartitionResult(partition_index=index, error_code=code))
                    await self.budget.checkpoint()
                result.topics.append(TopicResult(name=name, partitions=answers))
                await self.budget.checkpoint()
        return response


async def _write(marker: Marker, topic: str, index: int, *, markers: LocalMarkers) -> int:
    if marker.producer_epoch < NO_PRODUCER_EPOCH:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, which can make no such marker
    try:
        await markers.write(
            (topic, index),
            Producer(marker.producer_id, marker.producer_epoch),
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
    except RequestError as error:
        return error.code
    return 0

"""WriteTxnMarkers v0-v2. A coordinator, or an operator's clean-up, ends transactions in partitions of this broker.

The rule: the request is answered after a second at most. A coordinator sends markers of many transactions together, and
a partition with replicas that do not follow must not delay the others: it is answered REQUEST_TIMED_OUT, and the
coordinator retries. Kafka waits for `request.timeout.ms`, with all of the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError, StorageError
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.markers import AppendedMarker, LocalMarkers
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

PATIENCE_SECONDS: Final = 1.0
"""Time that replicas have to follow before a partition is answered REQUEST_TIMED_OUT."""

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
        """Answer each partition of each marker on its own; a producer is answered once, even with several markers."""
        if not context.authorizes(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False):
            context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        deadline = trio.current_time() + PATIENCE_SECONDS
        results: dict[int, dict[str, dict[int, int | AppendedMarker]]] = {}
        for marker in request.markers:
            await self.budget.checkpoint()
            for topic in marker.topics:
                await self.budget.checkpoint()
                for index in topic.partition_indexes:
                    result = self._append(marker, topic.name, index)
                    results.setdefault(marker.producer_id, {}).setdefault(topic.name, {})[index] = result
                    await self.budget.checkpoint()
        response = WriteTxnMarkersResponse()
        for producer_id, topics in results.items():
            of_producer = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=producer_id)
            response.markers.append(of_producer)
            for name, partitions in topics.items():
                answers = []
                for index, result in partitions.items():
                    code = result if isinstance(result, int) else await _committed(result, deadline)
                    answers.append(PartitionResult(partition_index=index, error_code=code))
                    await self.budget.checkpoint()
                of_producer.topics.append(TopicResult(name=name, partitions=answers))
                await self.budget.checkpoint()
        return response

    def _append(self, marker: Marker, topic: str, index: int) -> int | AppendedMarker:
        """Return a marker that is in the log now, or the error code for which it is not."""
        if marker.producer_epoch < NO_PRODUCER_EPOCH:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH:
            return ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka, which can make no such marker
        try:
            return self.markers.append(
                (topic, index),
                Producer(marker.producer_id, marker.producer_epoch),
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
        except RequestError as error:
            return error.code
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR  # the replica has told of it


async def _committed(appended: AppendedMarker, deadline: float) -> int:
    """Wait until a marker is committed; returns the error code."""
    try:
        with trio.CancelScope(deadline=inf if appended.is_committed else deadline) as scope:
            await appended.wait_committed()
    except RequestError as error:
        return error.code
    return ErrorCode.REQUEST_TIMED_OUT if scope.cancelled_caught else 0

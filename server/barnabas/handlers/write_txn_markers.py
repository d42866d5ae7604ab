"""WriteTxnMarkers v0-v2. A coordinator, or an operator who cleans up, ends transactions in partitions of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.markers import write_marker
from barnabas.errors import RequestError
from barnabas.transactions.transaction import Producer
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

Marker = WriteTxnMarkersRequest.WritableTxnMarker
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Answer each partition of each marker on its own."""
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answers = TopicResult(name=topic.name)
            result.topics.append(answers)
            for index in topic.partition_indexes:
                code = await _write(context, marker, topic.name, index)
                answers.partitions.append(PartitionResult(partition_index=index, error_code=code))
    return response


async def _write(context: RequestContext, marker: Marker, topic: str, index: int) -> int:
    try:
        await write_marker(
            context.broker,
            (topic, index),
            Producer(marker.producer_id, marker.producer_epoch),
            marker.coordinator_epoch,
            marker.transaction_result,
        )
    except RequestError as error:
        return error.code
    return 0

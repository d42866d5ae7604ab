"""DeleteRecords v0-v2. Moves the start of partitions forward; -1 means up to the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.partitions import Partitions
    from barnabas.requests.context import RequestContext

UP_TO_HIGH_WATERMARK = -1

Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(
    context: RequestContext, request: DeleteRecordsRequest, *, replicas: Partitions, budget: LoopBudget
) -> DeleteRecordsResponse:
    """Answer every partition on its own."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        result = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        may = context.authorizes(Operation.DELETE, ResourceType.TOPIC, topic.name)
        for entry in topic.partitions:
            if may:
                answer = _delete(topic.name, entry.partition_index, entry.offset, replicas=replicas)
            else:
                answer = Result(
                    partition_index=entry.partition_index,
                    low_watermark=-1,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
            result.partitions.append(answer)
            await budget.checkpoint()
    return response


def _delete(topic: str, index: int, offset: int, *, replicas: Partitions) -> Result:
    result = Result(partition_index=index, low_watermark=-1)
    try:
        partition_log = replicas.leader(topic, index).log
        if not partition_log.config.is_deleted:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete"
            )
        if offset == UP_TO_HIGH_WATERMARK:
            offset = partition_log.high_watermark
        if not 0 <= offset <= partition_log.high_watermark:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not within 0 to {partition_log.high_watermark}"
            )
        partition_log.delete_records_before(offset)
        result.low_watermark = partition_log.log_start_offset
    except RequestError as error:
        result.error_code = error.code
    return result

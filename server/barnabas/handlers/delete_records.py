"""DeleteRecords v0-v2. Moves the start of partitions forward; -1 means up to the high watermark.

Answered when all live replicas have done so, or with REQUEST_TIMED_OUT. Records of internal topics are never
deleted: INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.errors import RequestError
from barnabas.log.format.names import INTERNAL_TOPICS
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

UP_TO_HIGH_WATERMARK = -1

Result = DeleteRecordsResponse.DeleteRecordsPartitionResult
Waiting = list[tuple["Replica", int, Result]]
"""Replicas with followers that have yet to delete records: each with the end offset of the deletion, and its answer."""


@dataclass(eq=False)
class DeleteRecords:
    """Handler of DeleteRecords."""

    metadata: MetadataStore
    replicas: Replicas
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """Answer every partition on its own, once; for a partition that is named twice, the last offset counts."""
        response = DeleteRecordsResponse()
        waiting: Waiting = []
        offsets_by_topic: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            await self.budget.checkpoint()
            for entry in topic.partitions:
                offsets_by_topic.setdefault(topic.name, {})[entry.partition_index] = entry.offset
                await self.budget.checkpoint()
        for name, offsets in offsets_by_topic.items():
            result = DeleteRecordsResponse.DeleteRecordsTopicResult(name=name)
            response.topics.append(result)
            may = context.authorizes(Operation.DELETE, ResourceType.TOPIC, name)
            for index, offset in offsets.items():
                if may:
                    answer = self._delete(name, index, offset, waiting, image=self.metadata.image)
                else:
                    answer = Result(
                        partition_index=index,
                        low_watermark=-1,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                result.partitions.append(answer)
                await self.budget.checkpoint()
        if waiting:
            await _wait(waiting, request.timeout_ms)
        return response

    def _delete(
        self, topic: str, index: int, offset: int, waiting: Waiting, *, image: ClusterImage
    ) -> Result:
        result = Result(partition_index=index, low_watermark=-1)
        try:
            if topic in INTERNAL_TOPICS and image.partition(topic, index) is not None:
                raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
            replica = self.replicas.leader(topic, index)
            partition_log = replica.log
            if not partition_log.config.is_deleted:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete"
                )
            if offset == UP_TO_HIGH_WATERMARK:
                offset = partition_log.high_watermark
            if not 0 <= offset <= partition_log.high_watermark:
                raise RequestError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{offset} is not within 0 to {partition_log.high_watermark}",
                )
            replica.delete_records_before(offset)
            result.low_watermark = replica.low_watermark
            if result.low_watermark < offset:
                waiting.append((replica, offset, result))
        except RequestError as error:
            result.error_code = error.code
        return result


async def _wait(waiting: Waiting, timeout_ms: int) -> None:
    deadline = trio.current_time() + max(timeout_ms, 0) / 1000
    for replica, offset, result in waiting:
        with trio.move_on_at(deadline) as scope:
            try:
                await replica.wait_low_watermark(offset)
                result.low_watermark = replica.low_watermark
            except RequestError as error:
                result.error_code, result.low_watermark = error.code, -1
        if scope.cancelled_caught:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT

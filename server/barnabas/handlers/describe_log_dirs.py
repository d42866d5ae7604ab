"""DescribeLogDirs v0-v5. The partitions in each log dir, and their sizes in bytes; v4 adds the volume's size.

A replica that is being moved is listed twice: at its present place, and as a future replica at the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
PARTITIONS_PER_CHECKPOINT = 16


@dataclass(eq=False)
class DescribeLogDirs:
    """Handler of DescribeLogDirs."""

    budget: LoopBudget
    logs: LogManager

    async def handle(
        self, _context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """Describe all log dirs, with all partitions or the ones asked for."""
        requested: dict[TopicPartition, None] | None = None
        count = 0
        if request.topics is not None:
            requested = {}
            for topic in request.topics:
                if not topic.partitions:
                    await self.budget.checkpoint()
                for index in topic.partitions:
                    requested[topic.topic, index] = None
                    count += 1
                    if not count % PARTITIONS_PER_CHECKPOINT:
                        await self.budget.checkpoint()
        topics: dict[str, dict[str, Topic]] = {path: {} for path in self.logs.dirs}

        def add(path: str, partition_log: PartitionLog, size: int, lag: int, *, is_future: bool) -> None:
            name = partition_log.topic
            topic = topics[path].get(name)
            if topic is None:
                topic = topics[path][name] = Topic(name)
            topic.partitions.append(Partition(partition_log.partition, size, lag, is_future))

        # if few partitions are requested, the others are not visited
        for partition_log in self.logs if requested is None else starmap(self.logs.get, requested):
            count += 1
            if not count % PARTITIONS_PER_CHECKPOINT:
                await self.budget.checkpoint()
            if partition_log is not None:
                lag = max(partition_log.high_watermark - partition_log.log_end_offset, 0)
                add(partition_log.log_dir, partition_log, partition_log.size_bytes, lag, is_future=False)
        for move in self.logs.moves:
            of = move.partition_log
            if requested is None or (of.topic, of.partition) in requested:
                add(move.target_dir, of, move.size_bytes, move.offset_lag, is_future=True)
        results = []
        for path in self.logs.dirs:
            result = Result(
                log_dir=path, topics=list(topics[path].values()), is_cordoned=path in self.logs.cordoned
            )
            results.append(result)
            try:
                if path in self.logs.offline:
                    raise self.logs.offline[path]
                result.total_bytes, result.usable_bytes = self.logs.usage(path)
            except StorageError:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return DescribeLogDirsResponse(results=results)

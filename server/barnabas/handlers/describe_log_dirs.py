"""DescribeLogDirs v0-v5. Which partitions each log dir holds, and how large they are; v4 adds the volume's size.

A replica that is being moved is listed twice: where it is, and as a future one where it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.log.manager import LogManager
    from barnabas.log.partition_log import PartitionLog
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


@dataclass(eq=False)
class DescribeLogDirs:
    """Handler of DescribeLogDirs."""

    budget: LoopBudget
    logs: LogManager

    async def handle(
        self, _context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """Describe all log dirs, with all partitions or the ones asked for."""
        wanted: dict[tuple[str, int], None] | None = None
        if request.topics is not None:
            wanted = {}
            for topic in request.topics:
                await self.budget.checkpoint()
                for index in topic.partitions:
                    wanted[topic.topic, index] = None
                    await self.budget.checkpoint()
        topics: dict[str, dict[str, Topic]] = {path: {} for path in self.logs.dirs}

        def add(path: str, partition_log: PartitionLog, partition: Partition) -> None:
            name = partition_log.topic
            if wanted is None or (name, partition_log.partition) in wanted:
                partition.partition_index = partition_log.partition
                topics[path].setdefault(name, Topic(name=name)).partitions.append(partition)

        # Of few partitions that are asked for, all others are not looked at.
        found = self.logs if wanted is None else (self.logs.get(*place) for place in wanted)
        for one in found:
            await self.budget.checkpoint()
            if one is None:
                continue
            lag = max(one.high_watermark - one.log_end_offset, 0)
            add(one.log_dir, one, Partition(partition_size=one.size_bytes, offset_lag=lag))
        for move in self.logs.moves:
            future = Partition(partition_size=move.size_bytes, offset_lag=move.offset_lag, is_future_key=True)
            add(move.target_dir, move.partition_log, future)
        results = []
        for path in self.logs.dirs:
            result = Result(log_dir=path, topics=list(topics[path].values()))
            results.append(result)
            try:
                if path in self.logs.offline:
                    raise self.logs.offline[path]
                result.total_bytes, result.usable_bytes = self.logs.usage(path)
            except StorageError:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return DescribeLogDirsResponse(results=results)

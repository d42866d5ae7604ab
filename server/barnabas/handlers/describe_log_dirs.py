"""DescribeLogDirs v0-v5. Which partitions each log dir holds, and how large they are; v4 adds the volume's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.wire.generated.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


async def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe all log dirs, with all partitions or the ones asked for."""
    logs = context.broker.logs
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, dict[str, Topic]] = {path: {} for path in logs.dirs}
    for partition_log in logs:
        if wanted is not None and (partition_log.topic, partition_log.partition) not in wanted:
            continue
        here = topics[partition_log.log_dir]
        topic = here.setdefault(partition_log.topic, Topic(name=partition_log.topic))
        topic.partitions.append(
            Partition(
                partition_index=partition_log.partition,
                partition_size=partition_log.size_bytes,
                offset_lag=max(partition_log.high_watermark - partition_log.log_end_offset, 0),
            )
        )
    results = []
    for path in logs.dirs:
        result = Result(log_dir=path, topics=list(topics[path].values()))
        results.append(result)
        try:
            if path in logs.offline:
                raise logs.offline[path]
            result.total_bytes, result.usable_bytes = logs.usage(path)
        except StorageError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(results=results)

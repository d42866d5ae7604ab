"""AlterReplicaLogDirs v0-v2. Starts moving replicas of this broker between its log dirs; DescribeLogDirs tells how far.

Answered when the moves have begun. A replica that this broker does not have yet is made in that log dir later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.log.format.names import DIR_NAME_LENGTH_MAX
from barnabas.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.moving import LogMover
    from barnabas.requests.context import RequestContext

Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Partition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

MARK_LENGTH = len(".-future") + 32  # what the name of a directory under way has more than the partition's


async def handle(
    _context: RequestContext, request: AlterReplicaLogDirsRequest, *, budget: LoopBudget, log_mover: LogMover
) -> AlterReplicaLogDirsResponse:
    """Answer every partition on its own."""
    topics: dict[str, Topic] = {}
    for log_dir in request.dirs:
        for asked in log_dir.topics:
            topic = topics.setdefault(asked.name, Topic(topic_name=asked.name))
            for index in asked.partitions:
                code = _start(asked.name, index, log_dir.path, log_mover=log_mover)
                topic.partitions.append(Partition(partition_index=index, error_code=code))
                await budget.checkpoint()
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _start(topic: str, index: int, path: str, *, log_mover: LogMover) -> int:
    if len(f"{topic}-{index}") + MARK_LENGTH > DIR_NAME_LENGTH_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    try:
        log_mover.start(topic, index, path)
    except RequestError as error:
        return error.code
    return 0

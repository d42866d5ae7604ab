"""AlterReplicaLogDirs v0-v2. Begins to move replicas of this broker between its log dirs; DescribeLogDirs has the progress.

Answered when the moves have begun. A replica that this broker does not have yet is created in that log dir later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.log.format.names import DIR_NAME_LENGTH_MAX
from barnabas.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.replicas.moving import LogMover
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Partition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

# length of the suffix that a directory being moved adds to the partition's name
MARK_LENGTH = len(".-future") + 32


@dataclass(eq=False)
class AlterReplicaLogDirs:
    """Handler of AlterReplicaLogDirs."""

    budget: LoopBudget
    log_mover: LogMover

    async def handle(
        self, _context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        """Answer every partition on its own, once; for a partition that is named twice, the last log dir counts."""
        paths_by_topic: dict[str, dict[int, str]] = {}
        for log_dir in request.dirs:
            await self.budget.checkpoint()
            for asked in log_dir.topics:
                await self.budget.checkpoint()
                for index in asked.partitions:
                    paths_by_topic.setdefault(asked.name, {})[index] = log_dir.path
                    await self.budget.checkpoint()
        response = AlterReplicaLogDirsResponse()
        for name, paths in paths_by_topic.items():
            topic = Topic(topic_name=name)
            response.results.append(topic)
            for index, path in paths.items():
                code = self._start(name, index, path)
                topic.partitions.append(Partition(partition_index=index, error_code=code))
                await self.budget.checkpoint()
        return response

    def _start(self, topic: str, index: int, path: str) -> int:
        if len(f"{topic}-{index}") + MARK_LENGTH > DIR_NAME_LENGTH_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        try:
            self.log_mover.start(topic, index, path)
        except RequestError as error:
            return error.code
        return 0

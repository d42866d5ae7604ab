"""StopReplica v0-v4. The controller's removal of replicas from this broker; in clusters on ZooKeeper.

v0 to v2 have one flag for deleting all of them, v3 has one for each, with its leader epoch; v1 adds the broker epoch, v4
belongs to the migration to KRaft. In a cluster logs are deleted by this request only. A log without a topic in the metadata
is deleted too: its topic was deleted while this broker was down; a log with another id than the deleted topic is set aside.
A replica that this broker does not have is answered with NONE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.control_requests import (
    Learned,
    StoppedReplica,
    of_stop_replica,
    stopped_replicas,
)
from barnabas.cluster.replication.roles import Role
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.cluster.metadata.ports import Member
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Answer = StopReplicaResponse.StopReplicaPartitionError


@dataclass(eq=False)
class StopReplica:
    """Handler of StopReplica."""

    member: Member
    replicas: Replicas
    broker_id: int
    clock_ms: Callable[[], int]
    budget: LoopBudget

    async def handle(self, _context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop and delete, and answer each replica. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
        learned = Learned()

        def decide(image: ClusterImage) -> Iterable[Change]:
            nonlocal learned
            self.member.check_controller(
                request.controller_id, request.controller_epoch, request.broker_epoch
            )
            learned = of_stop_replica(image, request, self.broker_id)
            return learned.changes

        await self.member.follow(decide)
        stopped = [*stopped_replicas(request)]
        errors = {partition.key: self._error(partition, learned) for partition in stopped}
        gone = [
            replica.key
            for replica in stopped
            if replica.deletes and not errors[replica.key] and self.replicas.role(*replica.key) is Role.NONE
        ]
        errors.update(await self.replicas.delete_logs(gone, self.clock_ms()))
        response = StopReplicaResponse()
        for replica in stopped:
            name, index = replica.key
            response.partition_errors.append(
                Answer(topic_name=name, partition_index=index, error_code=errors[replica.key])
            )
            await self.budget.checkpoint()
        return response

    def _error(self, stopped: StoppedReplica, learned: Learned) -> ErrorCode:
        error = learned.errors.get(stopped.key, ErrorCode.NONE)
        if error is ErrorCode.NONE and self.replicas.role(*stopped.key) is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error

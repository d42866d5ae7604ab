"""StopReplica v0-v4. The controller tells this broker which replicas it has no longer; in clusters on ZooKeeper.

v0 to v2 say once for all whether to delete them, v3 says so for each, with its leader epoch; v1 adds the broker epoch, v4
belongs to the migration to KRaft. A log that no topic of the metadata has is deleted too: its topic went while this broker
was down. A replica that is not here is answered with NONE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.cluster.control_requests import Learned, of_stop_replica, stopped_replicas
from barnabas.errors import StorageError
from barnabas.replication.roles import Role
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from barnabas.cluster.image import Change, ClusterImage
    from barnabas.cluster.ports import Member
    from barnabas.log.manager import LogManager
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.failures import LogDirFailures
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import RequestContext

Answer = StopReplicaResponse.StopReplicaPartitionError


async def handle(
    _context: RequestContext,
    request: StopReplicaRequest,
    *,
    member: Member,
    replicas: Replicas,
    logs: LogManager,
    failures: LogDirFailures,
    broker_id: int,
    clock_ms: Callable[[], int],
    budget: LoopBudget,
) -> StopReplicaResponse:
    """Stop and delete, and answer each replica. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    learned = Learned()

    def decide(image: ClusterImage) -> Iterable[Change]:
        nonlocal learned
        member.check_controller(request.controller_id, request.controller_epoch, request.broker_epoch)
        learned = of_stop_replica(image, request, broker_id)
        return learned.changes

    await member.follow(decide)
    response = StopReplicaResponse()
    for stopped in stopped_replicas(request):
        name, index = stopped.key
        error: int = learned.errors.get(stopped.key, ErrorCode.NONE)
        role = replicas.role(name, index)
        if not error and role is Role.OFFLINE:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        elif stopped.deletes and role is Role.NONE and logs.get(name, index) is not None:
            try:
                logs.delete(name, index, clock_ms())
            except StorageError as failed:
                error = failures.failed(failed).code
        response.partition_errors.append(Answer(topic_name=name, partition_index=index, error_code=error))
        await budget.checkpoint()
    return response

"""ElectLeaders v0-v2. Makes the preferred replica the leader, or (v1, unclean) any that is left (KIP-460).

With one replica of each partition the leader is the preferred one as long as there is one, so that no election is
needed; and none can be held when its log is offline. Only of a log dir that is gone for good it is believed that what
was in it is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.lost_dirs import LostDirs
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import RequestContext

PREFERRED, UNCLEAN = 0, 1

Result = ElectLeadersResponse.PartitionResult


async def handle(
    _context: RequestContext,
    request: ElectLeadersRequest,
    *,
    metadata: MetadataStore,
    replicas: Replicas,
    budget: LoopBudget,
    lost_dirs: LostDirs,
) -> ElectLeadersResponse:
    """Answer each partition on its own; asked for all (null), only those that an election could be held for are told."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is not known")
    asked: Iterable[tuple[str, Sequence[int]]]
    if request.topic_partitions is not None:
        asked = ((one.topic, one.partitions) for one in request.topic_partitions)
    else:
        topics = metadata.image.topics
        asked = ((name, range(len(info.partitions))) for name, info in topics.items())
    response = ElectLeadersResponse()
    for topic, partitions in asked:
        results = []
        for partition in partitions:
            result = await _elect(
                request.election_type, topic, partition, replicas=replicas, lost_dirs=lost_dirs
            )
            if request.topic_partitions is not None or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                results.append(result)
            await budget.checkpoint()
        if results:
            response.replica_election_results.append(
                ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=results)
            )
    return response


async def _elect(
    election_type: int, topic: str, partition: int, *, replicas: Replicas, lost_dirs: LostDirs
) -> Result:
    try:
        replicas.leader(topic, partition)
    except RequestError as error:
        code = error.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            if election_type == UNCLEAN and await lost_dirs.begin_again(topic, partition):
                return Result(partition_id=partition)
            code = (
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                if election_type == PREFERRED
                else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            )
        return Result(partition_id=partition, error_code=code, error_message=error.message or None)
    return Result(
        partition_id=partition,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="the partition has the leader that it should have",
    )

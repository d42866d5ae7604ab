"""ElectLeaders v0-v2. Makes the preferred replica the leader, or (v1, unclean) any that is left (KIP-460).

With one replica of each partition the leader is the preferred one as long as there is one, so that no election is
needed; and none can be held when its log is offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

PREFERRED, UNCLEAN = 0, 1

Result = ElectLeadersResponse.PartitionResult


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer each partition on its own; asked for all (null), only those that have changed are told: none."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is not known")
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    _elect(context, request.election_type, asked.topic, partition)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
    )


def _elect(context: RequestContext, election_type: int, topic: str, partition: int) -> Result:
    try:
        context.broker.partitions.leader(topic, partition)
    except RequestError as error:
        code = error.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
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

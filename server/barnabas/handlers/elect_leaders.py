"""ElectLeaders v0-v2. Elects the preferred replica as the leader, or (v1, unclean) any live replica (KIP-460).

The controller holds the election. On a broker without a cluster, an unclean election can only restart a partition of a lost
log dir. v0 has preferred elections only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.ports import ElectionType
from barnabas.errors import RequestError
from barnabas.handlers.shared.asked import each_partition
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import Controller
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

Topic = ElectLeadersResponse.ReplicaElectionResult
Result = ElectLeadersResponse.PartitionResult


@dataclass(eq=False)
class ElectLeaders:
    """Handler of ElectLeaders."""

    controller: Controller
    budget: LoopBudget

    async def handle(self, _context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Answer each partition on its own.

        For all partitions (null) the answer has every topic, as in Kafka's controllers, with the partitions that needed an
        election.
        """
        if request.election_type not in tuple(ElectionType):
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is not known"
            )
        asked: list[TopicPartition] | None = None
        if request.topic_partitions is not None:
            asked = await each_partition(
                request.topic_partitions,
                lambda topic: topic.partitions,
                lambda topic, index: (topic.topic, index),
                self.budget,
            )
        elected = await self.controller.elect_leaders(
            ElectionType(request.election_type), asked, request.timeout_ms
        )
        response = ElectLeadersResponse()
        for topic in request.topic_partitions or ():
            result = Topic(topic=topic.topic)
            response.replica_election_results.append(result)
            await self.budget.checkpoint()
            for index in topic.partitions:
                result.partition_result.append(_result(index, elected[topic.topic, index]))
                await self.budget.checkpoint()
        if asked is None:
            topics: dict[str, Topic] = {}
            for (name, index), error in elected.items():
                result = topics.setdefault(name, Topic(topic=name))
                if error is None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
                    result.partition_result.append(_result(index, error))
                await self.budget.checkpoint()
            response.replica_election_results = [*topics.values()]
        return response


def _result(index: int, error: RequestError | None) -> Result:
    if error is None:
        return Result(partition_id=index)
    return Result(partition_id=index, error_code=error.code, error_message=error.message or None)

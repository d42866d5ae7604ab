"""AlterPartition v0-v3. A leader proposes ISRs for its partitions to the controller (KIP-497); in clusters on ZooKeeper.

v1 adds whether the leader recovers from an unclean election (KIP-704), v2 names topics by their ids and knows
INELIGIBLE_REPLICA (KIP-841; before, OPERATION_NOT_ATTEMPTED), v3 adds the epochs of the brokers that would be in sync
(KIP-903).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.ports import AcceptedState, ProposedState
from barnabas.wire.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import Controller
    from barnabas.errors import RequestError
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Answer = AlterPartitionResponse.PartitionData
TOPIC_IDS_SINCE = 2
EPOCHS_SINCE = 3


@dataclass(eq=False)
class AlterPartition:
    """Handler of AlterPartition."""

    controller: Controller
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Answer each partition with its state, or why it stays. Raises NOT_CONTROLLER, STALE_BROKER_EPOCH."""
        version = context.api_version
        proposals = []
        for topic in request.topics:
            for partition in topic.partitions:
                proposals.append(_proposal(topic, partition, version))
                await self.budget.checkpoint()
        answers = iter(
            await self.controller.alter_partitions(request.broker_id, request.broker_epoch, proposals)
        )
        response = AlterPartitionResponse()
        for topic in request.topics:
            answer = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, topic_name=topic.topic_name)
            response.topics.append(answer)
            for partition in topic.partitions:
                answer.partitions.append(_answer(partition.partition_index, next(answers), version))
                await self.budget.checkpoint()
        return response


def _proposal(
    topic: AlterPartitionRequest.TopicData, partition: AlterPartitionRequest.PartitionData, version: int
) -> ProposedState:
    by_id = version >= TOPIC_IDS_SINCE
    if version >= EPOCHS_SINCE:
        isr = tuple((epoch.broker_id, epoch.broker_epoch) for epoch in partition.new_isr_with_epochs)
    else:
        isr = tuple((replica, -1) for replica in partition.new_isr)
    return ProposedState(
        None if by_id else topic.topic_name,
        topic.topic_id if by_id else None,
        partition.partition_index,
        partition.leader_epoch,
        partition.partition_epoch,
        isr,
        partition.leader_recovery_state == 1,
    )


def _answer(index: int, outcome: AcceptedState | RequestError, version: int) -> Answer:
    if isinstance(outcome, AcceptedState):
        return Answer(
            partition_index=index,
            leader_id=outcome.leader,
            leader_epoch=outcome.leader_epoch,
            isr=list(outcome.isr),
            leader_recovery_state=int(outcome.recovering),
            partition_epoch=outcome.partition_epoch,
        )
    code = outcome.code
    if code == ErrorCode.INELIGIBLE_REPLICA and version < TOPIC_IDS_SINCE:
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
    return Answer(partition_index=index, error_code=code)

"""LeaderAndIsr v0-v7. The controller's assignment of leaders and followers to this broker; in clusters on ZooKeeper.

v0 and v1 name the topic of each partition, v2 adds the broker epoch, v3 the replicas of a reassignment, v5 topic ids in
request and response, v6 the recovery of a leader, v7 belongs to the migration to KRaft. Answered when logs are open
and roles are taken over; KAFKA_STORAGE_ERROR for a replica without its log, so that the controller is notified, and
INCONSISTENT_TOPIC_ID for a log of another topic id. If the controller sends no id, and the log has one, that is
written back into ZooKeeper before the response.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.control_requests import Learned, of_leader_and_isr
from barnabas.cluster.replication.roles import Role
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.cluster.metadata.ports import Member
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

BY_TOPIC_SINCE = 5

Topic = LeaderAndIsrResponse.LeaderAndIsrTopicError
Partition = LeaderAndIsrResponse.LeaderAndIsrPartitionError


@dataclass(eq=False)
class LeaderAndIsr:
    """Handler of LeaderAndIsr."""

    member: Member
    replicas: Replicas
    broker_id: int
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Take over the states, and answer each partition. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
        learned = Learned()

        def decide(image: ClusterImage) -> Iterable[Change]:
            nonlocal learned
            self.member.check_controller(
                request.controller_id, request.controller_epoch, request.broker_epoch
            )
            learned = of_leader_and_isr(image, request, self.broker_id)
            for key in learned.new:
                self.replicas.begin_empty(*key)
            return learned.changes

        await self.member.follow(decide)
        topic_ids = {
            name: topic_id
            for name in learned.unnamed
            if (topic_id := self.replicas.topic_id(name)) is not None
        }
        if topic_ids:
            await self.member.restore_topic_ids(topic_ids)
        response = LeaderAndIsrResponse()

        def answer(name: str, index: int) -> Partition:
            error = learned.errors.get((name, index), ErrorCode.NONE)
            if error is ErrorCode.NONE and self.replicas.role(name, index) is Role.OFFLINE:
                error = self.replicas.why_offline(name, index)
            return Partition(topic_name=name, partition_index=index, error_code=error)

        for state in request.ungrouped_partition_states:
            response.partition_errors.append(answer(state.topic_name, state.partition_index))
            await self.budget.checkpoint()
        for topic in request.topic_states:
            answers = []
            for state in topic.partition_states:
                answers.append(answer(topic.topic_name, state.partition_index))
                await self.budget.checkpoint()
            if context.api_version >= BY_TOPIC_SINCE:
                response.topics.append(Topic(topic_id=topic.topic_id, partition_errors=answers))
            else:
                response.partition_errors += answers
        return response

"""OffsetCommit v0-v10. Commits offsets for a group, by its members or, while it has none, by any client.

v0 is stored in ZooKeeper if the cluster has one, as in Kafka, and at the group coordinator otherwise. v1 has a
generation and a timestamp; v2-v4 a retention time; v6 leader epochs; v7 static members; v10 topic ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.handlers.shared.committing import Commits
from barnabas.serving.deferred import Deferred
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import ConsumerOffsets
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

COORDINATED_SINCE = 1
TOPIC_IDS_SINCE = 10

TopicAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionAnswer = OffsetCommitResponse.OffsetCommitResponsePartition


@dataclass(eq=False)
class OffsetCommit:
    """Handler of OffsetCommit."""

    metadata: MetadataStore
    replicas: Replicas
    group_coordinator: GroupCoordinator
    consumer_offsets: ConsumerOffsets | None
    budget: LoopBudget

    def handle(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse | Deferred[OffsetCommitResponse]:
        """Commit all valid offsets; each partition has its own result."""
        in_zookeeper = self.consumer_offsets if context.api_version < COORDINATED_SINCE else None
        commits = Commits(
            context,
            request,
            retention_ms=request.retention_time_ms,
            metadata=self.metadata,
            replicas=self.replicas,
            group_coordinator=self.group_coordinator,
            budget=self.budget,
        )
        by_id = context.api_version >= TOPIC_IDS_SINCE
        if in_zookeeper is not None or not commits.are_few:
            return Deferred(partial(_commit_many, commits, in_zookeeper, by_id=by_id))
        topics = commits.take_few(_topic_answer, PartitionAnswer, by_id=by_id)
        return commits.commit_few(OffsetCommitResponse(topics=topics))


async def _commit_many(
    commits: Commits, in_zookeeper: ConsumerOffsets | None, *, by_id: bool
) -> OffsetCommitResponse:
    """Commit offsets that are many, or kept in ZooKeeper."""
    topics = await commits.take(
        _topic_answer, PartitionAnswer, by_id=by_id, in_zookeeper=in_zookeeper is not None
    )
    if in_zookeeper is not None:
        await commits.commit_in_zookeeper(in_zookeeper)
    else:
        await commits.commit(commits.write)
    return OffsetCommitResponse(topics=topics)


def _topic_answer(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, partitions: list[PartitionAnswer]
) -> TopicAnswer:
    return TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

"""OffsetCommit v0-v10. Commits offsets for a group, by its members or, while it has none, by anybody.

v0 is kept in ZooKeeper where there is one, as Kafka does, and with the group coordinator otherwise. v1 names a
generation and carries a timestamp; v2-v4 a retention time; v6 leader epochs; v7 static members; v10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.groups.group import Committer
from barnabas.groups.shard import GroupShard
from barnabas.handlers.committing import Commits, RequestedCommit, check_size
from barnabas.statemachine.decision import Decision
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from barnabas.cluster.ports import ConsumerOffsets
    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import RequestContext

COORDINATED_SINCE = 1
TOPIC_IDS_SINCE = 10

TopicAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionAnswer = OffsetCommitResponse.OffsetCommitResponsePartition


async def handle(
    context: RequestContext,
    request: OffsetCommitRequest,
    *,
    metadata: MetadataStore,
    replicas: Replicas,
    group_coordinator: GroupCoordinator,
    consumer_offsets: ConsumerOffsets | None,
    budget: LoopBudget,
) -> OffsetCommitResponse:
    """Commit what can be committed; each partition has its own answer."""
    in_zookeeper = consumer_offsets if context.api_version < COORDINATED_SINCE else None
    if in_zookeeper is None:
        await check_size(
            request.group_id,
            request.topics,
            replicas=replicas,
            group_coordinator=group_coordinator,
            budget=budget,
        )
    commits = Commits(
        context,
        request.group_id,
        retention_ms=request.retention_time_ms,
        metadata=metadata,
        group_coordinator=group_coordinator,
        budget=budget,
    )
    response = OffsetCommitResponse()
    for topic in request.topics:
        name = topic.name
        if context.api_version >= TOPIC_IDS_SINCE:
            name = metadata.image.topic_name(topic.topic_id) or ""
        answers = await commits.take(name, topic.partitions, PartitionAnswer)
        response.topics.append(TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=answers))

    if in_zookeeper is not None:
        await commits.commit_in_zookeeper(in_zookeeper)
        return response

    async def commit(some: Sequence[RequestedCommit]) -> None:
        def check(shard: GroupShard, out: Decision) -> None:
            shard.check_commit(
                request.group_id,
                Committer(
                    request.member_id,
                    request.generation_id_or_member_epoch,
                    request.group_instance_id,
                    [one.commit[0] for one in some],
                    context.api_version,
                ),
                context.now_ms,
                out,
            )

        await commits.write(some, check)

    await commits.commit(commit)
    return response

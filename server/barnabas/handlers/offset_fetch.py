"""OffsetFetch v0-v10. The offsets that groups have committed; -1 for partitions without an offset.

v0 reads offsets in ZooKeeper if the cluster has one, and returns UNKNOWN_TOPIC_OR_PARTITION for missing ones, as
Kafka does. v2 returns all partitions for null topics; v5 adds leader epochs; v7 require_stable; v8 many groups; v9
member epochs (KIP-848); v10 topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from barnabas.coordinators.groups.shard import GroupShard
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.metadata.ports import ConsumerOffsets
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

COORDINATED_SINCE = 1
TOP_LEVEL_ERROR_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
PARTITIONS_PER_CHECKPOINT = 500

Topic = OffsetFetchResponse.OffsetFetchResponseTopic
Partition = OffsetFetchResponse.OffsetFetchResponsePartition
GroupTopic = OffsetFetchResponse.OffsetFetchResponseTopics
GroupPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
P = TypeVar("P", Partition, GroupPartition)
Offsets = tuple[dict["TopicPartition", "OffsetCommitValue"], set["TopicPartition"], "ClusterImage"]


@dataclass(eq=False)
class OffsetFetch:
    """Handler of OffsetFetch."""

    metadata: MetadataStore
    group_coordinator: GroupCoordinator
    consumer_offsets: ConsumerOffsets | None
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Return the offsets of one group, or of many."""
        checkpoint = self.budget.checkpoint
        if context.api_version >= MANY_GROUPS_SINCE:
            response = OffsetFetchResponse()
            for group in await self._each_once(request.groups):
                await checkpoint()
                response.groups.append(
                    await self._group(
                        context,
                        group,
                        request.require_stable,
                    )
                )
            return response
        failure, absent = 0, int(ErrorCode.NONE)
        unstable: set[TopicPartition] = set()
        try:
            context.require(Operation.DESCRIBE, ResourceType.GROUP, request.group_id)
            if context.api_version < COORDINATED_SINCE and self.consumer_offsets is not None:
                offsets = await self._in_zookeeper(request, self.consumer_offsets)
                absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets, unstable, _ = await self._offsets(request.group_id, request.require_stable)
        except RequestError as error:
            if context.api_version >= TOP_LEVEL_ERROR_SINCE:
                return OffsetFetchResponse(error_code=error.code)
            offsets, unstable, failure = {}, set(), error.code
        asked: Iterable[tuple[str, list[int]]]
        if request.topics is None:
            asked = (
                (name, indexes)
                for name, indexes in await self._everything(offsets)
                if context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name, is_asked_for=False)
            )
        else:
            asked = ((topic.name, topic.partition_indexes) for topic in request.topics)
        response = OffsetFetchResponse()
        for name, indexes in asked:
            await checkpoint()
            partitions = []
            seen, refusal = (offsets, unstable), failure
            if not failure and not context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name):
                seen, refusal = ({}, set()), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for index in indexes:
                code = refusal if refusal or (name, index) in offsets else absent
                partitions.append(_fill(Partition(error_code=code), *seen, name, index))
                await checkpoint()
            response.topics.append(Topic(name=name, partitions=partitions))
        return response

    async def _each_once(
        self, groups: Iterable[OffsetFetchRequest.OffsetFetchRequestGroup]
    ) -> list[OffsetFetchRequest.OffsetFetchRequestGroup]:
        """Return the requested groups; a group of which all offsets are requested appears once."""
        distinct = []
        whole: set[str] = set()
        for group in groups:
            if group.topics is not None:
                distinct.append(group)
            elif group.group_id not in whole:
                whole.add(group.group_id)
                distinct.append(group)
            await self.budget.checkpoint()
        return distinct

    async def _in_zookeeper(
        self, request: OffsetFetchRequest, store: ConsumerOffsets
    ) -> dict[TopicPartition, OffsetCommitValue]:
        """Return the offsets in ZooKeeper of those partitions that exist. Raises RequestError."""
        topics = self.metadata.image.topics
        partitions = [
            (topic.name, index)
            for topic in request.topics or ()
            for index in topic.partition_indexes
            if topic.name in topics and 0 <= index < len(topics[topic.name].partitions)
        ]
        offsets = await store.fetch(request.group_id, partitions)
        return {partition: OffsetCommitValue(offset=offset) for partition, offset in offsets.items()}

    async def _group(
        self, context: RequestContext, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id)
        try:
            context.require(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
            offsets, unstable, image = await self._offsets(
                group.group_id,
                require_stable,
                group.member_id,
                group.member_epoch,
            )
        except RequestError as error:
            answer.error_code = error.code
            return answer
        asked: Iterable[tuple[str, bytes, list[int]]]
        if group.topics is None:
            asked = (
                (name, image.topics[name].id if name in image.topics else bytes(16), indexes)
                for name, indexes in await self._everything(offsets)
                if (context.api_version < TOPIC_IDS_SINCE or name in image.topics)
                and context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name, is_asked_for=False)
            )
        elif context.api_version >= TOPIC_IDS_SINCE:
            asked = (
                (image.topic_name(topic.topic_id) or "", topic.topic_id, topic.partition_indexes)
                for topic in group.topics
            )
        else:
            asked = ((topic.name, bytes(16), topic.partition_indexes) for topic in group.topics)
        for name, topic_id, indexes in asked:
            await self.budget.checkpoint()
            partitions = []
            seen, refusal = (offsets, unstable), 0
            if not name and context.api_version >= TOPIC_IDS_SINCE:
                refusal = int(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name):
                seen, refusal = ({}, set()), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for index in indexes:
                partition = _fill(GroupPartition(error_code=refusal), *seen, name, index)
                partitions.append(partition)
                await self.budget.checkpoint()
            answer.topics.append(GroupTopic(name=name, topic_id=topic_id, partitions=partitions))
        return answer

    async def _offsets(
        self, group_id: str, require_stable: bool, member_id: str | None = None, member_epoch: int = -1
    ) -> Offsets:
        """Return a group's offsets with their topics, and where an open transaction may change them (KIP-447)."""

        def find(shard: GroupShard) -> Offsets:
            shard.check_fetch(group_id, member_id, member_epoch)
            unstable = shard.pending.topic_partitions(group_id) if require_stable else set()
            return dict(shard.offsets.get(group_id, {})), unstable, shard.metadata.image

        return await self.group_coordinator.read(group_id, find)

    async def _everything(
        self, offsets: dict[TopicPartition, OffsetCommitValue]
    ) -> list[tuple[str, list[int]]]:
        """Return all partitions by topic."""
        topics: dict[str, list[int]] = {}
        for number, (name, index) in enumerate(offsets, 1):
            topics.setdefault(name, []).append(index)
            if number % PARTITIONS_PER_CHECKPOINT == 0:
                await self.budget.checkpoint()
        return list(topics.items())


def _fill(
    answer: P,
    offsets: dict[TopicPartition, OffsetCommitValue],
    unstable: set[TopicPartition],
    name: str,
    index: int,
) -> P:
    value = offsets.get((name, index))
    if (name, index) in unstable:
        answer.error_code, value = ErrorCode.UNSTABLE_OFFSET_COMMIT, None
    answer.partition_index = index
    answer.metadata = ""
    answer.committed_offset = -1
    if value is not None:
        answer.committed_offset = value.offset
        answer.committed_leader_epoch = value.leader_epoch
        answer.metadata = value.metadata
    return answer

"""DescribeShareGroupOffsets v0-v1. Where share groups begin in their partitions (KIP-932); v1 adds the lag (KIP-1226).

The lag needs the high watermarks of the partitions, from their leaders on any broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.topics import by_topic
from barnabas.coordinators.share.records import UNKNOWN_OFFSET
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
Topic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
Partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
Delivered = list[tuple["TopicPartition", Partition, int]]
"""Partitions, their results, and the approximate offset up to which records are delivered."""

LAG_SINCE = 1


@dataclass(eq=False)
class DescribeShareGroupOffsets:
    """Handler of DescribeShareGroupOffsets."""

    metadata: MetadataStore
    group_coordinator: GroupCoordinator
    shares: Shares
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> DescribeShareGroupOffsetsResponse:
        """Describe each group on its own; without topics, all that it has a state of."""
        response = DescribeShareGroupOffsetsResponse()
        for asked in request.groups:
            answer = Group(group_id=asked.group_id)
            delivered: Delivered = []
            response.groups.append(answer)
            await self.budget.checkpoint()
            try:
                context.require(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
                if asked.topics is None:
                    topics = [
                        (name, partitions)
                        for name, partitions in await self._known(asked.group_id)
                        if context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name)
                    ]
                else:
                    topics = await self._once(asked.topics)
                for name, partitions in topics:
                    await self.budget.checkpoint()
                    if not context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name):
                        answer.topics.append(_refused(name, partitions))
                        continue
                    answer.topics.append(
                        await self._topic(
                            asked.group_id,
                            name,
                            partitions,
                            delivered,
                        )
                    )
                if delivered and context.api_version >= LAG_SINCE:
                    await self._add_lags(delivered)
            except RequestError as error:
                answer.topics = []
                answer.error_code, answer.error_message = error.code, error.message or None
        return response

    async def _once(
        self, asked: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic]
    ) -> list[tuple[str, list[int]]]:
        """Return topics and their partitions, each once."""
        named: dict[str, dict[int, None]] = {}
        for topic in asked:
            named.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
            await self.budget.checkpoint()
        return [(name, [*partitions]) for name, partitions in named.items()]

    async def _known(self, group_id: str) -> list[tuple[str, list[int]]]:
        def find(shard: GroupShard) -> list[tuple[bytes, list[int]]]:
            group = shard.find(group_id, ShareGroup)
            return by_topic(group.topic_states.topic_partitions) if group is not None else []

        image = self.metadata.image
        return [
            (name, partitions)
            for topic_id, partitions in await self.group_coordinator.read(group_id, find)
            if (name := image.topic_name(topic_id)) is not None
        ]

    async def _topic(self, group_id: str, name: str, partitions: list[int], delivered: Delivered) -> Topic:
        """Describe partitions of a topic; those that may have a lag are added to `delivered`."""
        info = self.metadata.image.topics.get(name)
        topic = Topic(topic_name=name, topic_id=info.id if info else bytes(16))
        for index in partitions:
            partition = Partition(partition_index=index, start_offset=UNKNOWN_OFFSET)
            topic.partitions.append(partition)
            await self.budget.checkpoint()
            try:
                if info is None:  # as in Kafka, it begins nowhere, which is no error
                    continue
                state = await self.shares.state_port.summary((group_id, info.id, index))
                if state is None:
                    continue
                partition.start_offset, partition.leader_epoch = state.start_offset, state.leader_epoch
                if UNKNOWN_OFFSET not in (state.start_offset, state.complete_count):
                    delivered.append(((name, index), partition, state.start_offset + state.complete_count))
            except RequestError as error:
                partition.error_code, partition.error_message = error.code, error.message or None
        return topic

    async def _add_lags(self, delivered: Delivered) -> None:
        ends = await self.shares.high_watermarks.of({topic_partition for topic_partition, _, _ in delivered})
        for topic_partition, partition, count in delivered:
            end = ends[topic_partition]
            if isinstance(end, RequestError):
                partition.error_code, partition.error_message = end.code, end.message or None
            else:
                partition.lag = end - count
            await self.budget.checkpoint()


def _refused(name: str, partitions: list[int]) -> Topic:
    return Topic(
        topic_name=name,
        partitions=[
            Partition(
                partition_index=index,
                start_offset=UNKNOWN_OFFSET,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=f"DESCRIBE on TOPIC {name!r} is denied",
            )
            for index in partitions
        ],
    )

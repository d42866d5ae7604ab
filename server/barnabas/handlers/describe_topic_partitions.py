"""DescribeTopicPartitions v0. Topics and their partitions in pages (KIP-966).

Topics are in the order of their names; a page ends after `response_partition_limit` partitions, and the cursor is the
start of the next page. A request without topics is for all topics. No topic is created by the request.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.image import PartitionInfo, TopicInfo
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.handlers.shared.partition_description import PartitionDescriber
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Threads
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

SORTED_INLINE_MAX = 10_000

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


@dataclass(eq=False)
class DescribeTopicPartitions:
    """Handler of DescribeTopicPartitions."""

    metadata: MetadataStore
    replicas: Replicas
    config: BrokerConfig
    budget: LoopBudget
    broker_id: int
    threads: Threads

    async def handle(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """Return one page, from the cursor on."""
        image = self.metadata.image
        topics = image.topics
        describer = PartitionDescriber(
            image, context.connection, replicas=self.replicas, broker_id=self.broker_id
        )
        asked: set[str] = set()
        for topic in request.topics:
            asked.add(topic.name)
            await self.budget.checkpoint()
        first_name = request.cursor.topic_name if request.cursor is not None else ""
        names = await self._sorted_from(asked or topics, first_name)
        first_partition = 0
        if request.cursor is not None:
            if request.cursor.partition_index < 0:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
            if asked and first_name not in asked:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, "the cursor's topic is none of those that are asked for"
                )
            if names and names[0] == first_name:
                first_partition = request.cursor.partition_index
        most = self.config.get(settings.MAX_REQUEST_PARTITION_SIZE_LIMIT)
        room = max(min(request.response_partition_limit, most), 1)
        response = DescribeTopicPartitionsResponse()
        refused: list[Topic] = []
        for name in names:
            if not context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name, is_asked_for=bool(asked)):
                if asked:
                    refused.append(Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
                first_partition = 0
                await self.budget.checkpoint()
                continue
            if room <= 0:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=0
                )
                break
            info = topics.get(name)
            await self.budget.checkpoint()
            if info is None:
                response.topics.append(_unknown(context, name))
                first_partition = 0
                continue
            last = first_partition + room
            response.topics.append(_page(context, info, first_partition, last, describer))
            if last < len(info.partitions):
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=last
                )
                break
            room -= len(info.partitions) - first_partition
            first_partition = 0
        response.topics += refused
        return response

    async def _sorted_from(self, names: Collection[str], first: str) -> list[str]:
        """The names from `first` on, sorted; many are sorted in a thread, since that takes longer than a switch to it."""
        rest = []
        for name in tuple(names):
            if name >= first:
                rest.append(name)
            await self.budget.checkpoint()
        if len(rest) > SORTED_INLINE_MAX:
            return await self.threads.run(lambda: sorted(rest))
        return sorted(rest)


def _unknown(context: RequestContext, name: str) -> Topic:
    try:
        topic_decisions.check_topic_name(name)
    except RequestError as error:
        return Topic(error_code=error.code, name=name)
    return Topic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
    )


def _page(
    context: RequestContext, info: TopicInfo, first: int, last: int, describer: PartitionDescriber
) -> Topic:
    def described(index: int, partition: PartitionInfo) -> Partition:
        make = partial(
            Partition,
            eligible_leader_replicas=list(partition.elr),
            last_known_elr=list(partition.last_known_elr),
        )
        description = describer.describe(info.name, index, partition, make)
        description.error_code = (
            ErrorCode.NONE
        )  # as Kafka has it: a leader that is not there is -1, and no error
        return description

    return Topic(
        name=info.name,
        topic_id=info.id,
        is_internal=info.internal,
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, info.name),
        partitions=[
            described(index, partition) for index, partition in enumerate(info.partitions[first:last], first)
        ],
    )

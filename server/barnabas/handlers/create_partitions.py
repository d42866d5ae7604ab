"""CreatePartitions v0-v3. Adds partitions to topics, or only checks whether that is possible (validate_only).

As Kafka 4.4 it refuses more than 10,000 new partitions as a whole, with POLICY_VIOLATION; before, a topic is refused.
Answers when the partitions have leaders, or REQUEST_TIMED_OUT after `timeout_ms`: then they are created nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.timed_change import change_within
from barnabas.config import releases
from barnabas.errors import RequestError, detached
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

QUOTA_ERROR_SINCE = 3

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


@dataclass(eq=False)
class CreatePartitions:
    """Handler of CreatePartitions."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        """Grow all topics in one change; a refused topic does not affect the others."""
        topics: dict[str, CreatePartitionsRequest.CreatePartitionsTopic] = {}
        twice: set[str] = set()
        for topic in request.topics:
            if topic.name in topics:
                twice.add(topic.name)
            topics[topic.name] = topic
            await self.budget.checkpoint()
        refused: dict[str, RequestError] = {}
        for name in topics:
            if name not in twice and not context.authorizes(Operation.ALTER, ResourceType.TOPIC, name):
                refused[name] = RequestError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"ALTER on TOPIC {name!r} is denied"
                )
            await self.budget.checkpoint()

        if releases.bounds_growth(self.config.release):
            _check_growth(
                self.metadata.image, [topic for name, topic in topics.items() if name not in refused]
            )
        mutations = context.mutations(refuses=context.api_version >= QUOTA_ERROR_SINCE)

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            room = topic_decisions.PARTITIONS_PER_REQUEST_MAX
            for name, topic in topics.items():
                if name in refused:
                    yield None
                    continue
                try:
                    if name in twice:
                        raise RequestError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named twice")
                    changes = _grow(image, topic, room)
                    added = topic.count - len(image.topics[name].partitions)
                    if mutations is not None:
                        mutations.charge(name, added)
                except RequestError as error:
                    refused[name] = detached(error)
                    yield None
                    continue
                room -= added
                yield from changes

        if request.validate_only:
            for _ in decide(self.metadata.image):
                await self.budget.checkpoint()
        elif not await change_within(self.metadata, decide, request.timeout_ms):
            late = RequestError(ErrorCode.REQUEST_TIMED_OUT)
            refused = {name: refused.get(name, late) for name in topics}
        response = CreatePartitionsResponse()
        for name in topics:
            result = Result(name=name)
            if name in refused:
                result.error_code, result.error_message = refused[name].code, refused[name].message or None
            response.results.append(result)
            await self.budget.checkpoint()
        return response


def _check_growth(
    image: ClusterImage, topics: Sequence[CreatePartitionsRequest.CreatePartitionsTopic]
) -> None:
    """Raise POLICY_VIOLATION if topics would grow by more than one request may ask for, as Kafka 4.4."""
    growths = (
        topic.count - len(image.topics[topic.name].partitions)
        for topic in topics
        if topic.name in image.topics
    )
    topic_decisions.check_partition_count(sum(growth for growth in growths if growth > 0))


def _grow(
    image: ClusterImage, topic: CreatePartitionsRequest.CreatePartitionsTopic, room: int
) -> list[Change]:
    assignments = None
    if topic.assignments is not None:
        assignments = [entry.broker_ids for entry in topic.assignments]
    return topic_decisions.add_partitions(image, topic.name, topic.count, assignments, count_max=room)

"""CreateTopics v0-v7. Creates topics, or only checks whether that is possible (v1 validate_only).

Answers when the topics have leaders, or REQUEST_TIMED_OUT after `timeout_ms`: then they are created nevertheless.
v4 accepts -1 for the broker's defaults of partitions and replicas; v5 returns the topic's settings; v7 its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.creation import NewTopic, create_topics
from barnabas.cluster.metadata.described_topic import TopicConfig, described_settings
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.timed_change import change_within
from barnabas.config import broker as settings
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError, detached
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.environment import Entropy
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

BROKER_DEFAULT = -1

CONFIGS_SINCE = 5
QUOTA_ERROR_SINCE = 6

Result = CreateTopicsResponse.CreatableTopicResult


@dataclass(eq=False)
class CreateTopics:
    """Handler of CreateTopics."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget
    entropy: Entropy

    async def handle(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create all topics in one change; a refused topic does not affect the others."""
        names = await self._counted(request)
        refused = await self._forbidden(context, names)
        try:
            topic_decisions.check_partition_count(await self._partition_count(request, refused))
        except RequestError as error:
            response = CreateTopicsResponse()
            for name in names:
                response.topics.append(_refused(name, refused.get(name, error)))
                await self.budget.checkpoint()
            return response
        topics = await self._new_topics(request, names, refused)

        mutations = context.mutations(refuses=context.api_version >= QUOTA_ERROR_SINCE)
        charge = mutations.charge if mutations is not None else None

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            # Kafka, too, checks each topic on its own where none is made.
            return create_topics(
                image,
                self.config,
                list(topics.values()),
                refused,
                with_each_other=not request.validate_only,
                charge=charge,
            )

        if request.validate_only:
            for _ in decide(self.metadata.image):
                await self.budget.checkpoint()
        elif not await change_within(self.metadata, decide, request.timeout_ms):
            late = RequestError(ErrorCode.REQUEST_TIMED_OUT)
            refused = {name: refused.get(name, late) for name in names}
        defaults = described_settings(self.config, {}) if topics else []
        response = CreateTopicsResponse()
        for name in names:
            if name in refused:
                response.topics.append(_refused(name, refused[name]))
            else:
                response.topics.append(self._made(context, topics[name], defaults))
            await self.budget.checkpoint()
        return response

    async def _counted(self, request: CreateTopicsRequest) -> Counter[str]:
        """Count how often each topic is named, in the order of their first places."""
        names: Counter[str] = Counter()
        for topic in request.topics:
            names[topic.name] += 1
            await self.budget.checkpoint()
        return names

    async def _forbidden(self, context: RequestContext, names: Counter[str]) -> dict[str, RequestError]:
        """Return the error for each topic that the requester may not create."""
        if context.authorizes(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False):
            return {}
        forbidden: dict[str, RequestError] = {}
        for name, count in names.items():
            if count == 1 and not context.authorizes(Operation.CREATE, ResourceType.TOPIC, name):
                forbidden[name] = RequestError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"CREATE on TOPIC {name!r} is denied"
                )
            await self.budget.checkpoint()
        return forbidden

    async def _partition_count(self, request: CreateTopicsRequest, refused: Container[str]) -> int:
        """Return the requested number of partitions at most, without topics that are already refused."""
        default = self.config.get(settings.NUM_PARTITIONS)
        count = 0
        for topic in request.topics:
            partition_count = (
                default if topic.num_partitions == BROKER_DEFAULT else max(topic.num_partitions, 0)
            )
            if topic.name not in refused:
                count += len(topic.assignments) or partition_count
            await self.budget.checkpoint()
        return count

    async def _new_topics(
        self, request: CreateTopicsRequest, names: Counter[str], refused: dict[str, RequestError]
    ) -> dict[str, NewTopic]:
        """Return the requested topics by name; adds the errors of invalid requests to `refused`."""
        topics: dict[str, NewTopic] = {}
        for topic in request.topics:
            await self.budget.checkpoint()
            name = topic.name
            if name in refused:
                continue
            try:
                if names[name] > 1:
                    raise RequestError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named twice")
                topics[name] = await self._new_topic(topic)
            except RequestError as error:
                refused[name] = detached(error)
        return topics

    async def _new_topic(self, topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
        overrides = await self._settings(topic)
        assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
        if len(assignments) < len(topic.assignments):
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
        if assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
            raise RequestError(
                ErrorCode.INVALID_REQUEST, "either counts or replica assignments can be given, not both"
            )
        partitions, replicas = topic.num_partitions, topic.replication_factor
        if partitions == BROKER_DEFAULT:
            partitions = self.config.get(settings.NUM_PARTITIONS)
        if replicas == BROKER_DEFAULT:
            replicas = self.config.get(settings.DEFAULT_REPLICATION_FACTOR)
        return NewTopic(topic.name, new_uuid(self.entropy), partitions, replicas, assignments, overrides)

    def _made(self, context: RequestContext, new: NewTopic, defaults: list[TopicConfig]) -> Result:
        """Return the result of a topic that was created, or could be; `defaults` are for a topic without own settings."""
        if not context.authorizes(
            Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, new.name, is_asked_for=False
        ):
            return Result(
                name=new.name,
                error_message=None,
                topic_id=new.topic_id,
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        assigned = new.assignments
        result = Result(
            name=new.name,
            error_message=None,
            num_partitions=len(assigned) or new.partitions,
            replication_factor=len(next(iter(assigned.values()))) if assigned else new.replication_factor,
            topic_id=new.topic_id,
        )
        if context.api_version >= CONFIGS_SINCE:
            result.configs = described_settings(self.config, new.settings) if new.settings else defaults
        return result

    async def _settings(self, topic: CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
        overrides: dict[str, str] = {}
        for entry in topic.configs:
            if entry.value is None:
                raise RequestError(ErrorCode.INVALID_CONFIG, f"setting {entry.name!r} has no value")
            overrides[entry.name] = entry.value
            await self.budget.checkpoint()
        return overrides


def _refused(name: str, error: RequestError) -> Result:
    return Result(name=name, error_code=error.code, error_message=error.message or None)

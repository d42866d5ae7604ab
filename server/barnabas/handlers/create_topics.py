"""CreateTopics v0-v7. Makes topics, or only says whether it could (v1 validate_only).

v4 takes -1 for the broker's defaults of partitions and replicas; v5 answers with the topic's settings; v7 with its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.cluster import controller
from barnabas.cluster.image import Change, ClusterImage
from barnabas.config import broker as settings
from barnabas.config import topic as topic_settings
from barnabas.config.loading import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, BrokerConfig
from barnabas.config.setting import Setting
from barnabas.errors import RequestError
from barnabas.ids import new_uuid
from barnabas.wire.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

BROKER_DEFAULT = -1

Result = CreateTopicsResponse.CreatableTopicResult


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Make each topic on its own: one that is refused does not keep the others back."""
    names = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if names[topic.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice")
            results.append(await _create(context, request, topic))
        except RequestError as error:
            results.append(
                Result(name=topic.name, error_code=error.code, error_message=error.message or None)
            )
    return CreateTopicsResponse(topics=results)


async def _create(
    context: RequestContext, request: CreateTopicsRequest, topic: CreateTopicsRequest.CreatableTopic
) -> Result:
    broker = context.broker
    overrides = _settings(topic)
    assignments = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    if len(assignments) < len(topic.assignments):
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    if assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "either counts or replica assignments can be given, not both"
        )
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if partitions == BROKER_DEFAULT:
        partitions = broker.config.get(settings.NUM_PARTITIONS)
    if replicas == BROKER_DEFAULT:
        replicas = broker.config.get(settings.DEFAULT_REPLICATION_FACTOR)
    topic_id = new_uuid()

    def decide(image: ClusterImage) -> list[Change]:
        return controller.create_topic(
            image, broker.config, topic.name, topic_id, partitions, replicas,
            assignments=assignments, settings=overrides,
        )  # fmt: skip

    if request.validate_only:
        decide(broker.metadata.image)
    else:
        await broker.metadata.change(decide)
    count = len(assignments) or partitions
    result = Result(
        name=topic.name,
        error_message=None,
        num_partitions=count,
        replication_factor=len(next(iter(assignments.values()))) if assignments else replicas,
        topic_id=topic_id,
    )
    result.configs = [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=row.name, value=text, read_only=False, config_source=source, is_sensitive=False
        )
        for row in topic_settings.ROWS
        for text, source in [_effective(broker.config, row, overrides)]
    ]
    return result


def _effective(config: BrokerConfig, row: Setting[Any], overrides: Mapping[str, str]) -> tuple[str, int]:
    """A new topic's setting as it was written where it is set, and the source of that."""
    if row.name in overrides:
        return overrides[row.name], DYNAMIC_TOPIC_CONFIG
    value, name = config.topic_default(row)
    if name is None:
        return row.format(value), DEFAULT_CONFIG
    in_other_unit = name.rpartition(".")[2] in topic_settings.UNIT_MS
    text = row.format(value) if in_other_unit else config.texts_of(name)[0][0]
    return text, config.sources[name]


def _settings(topic: CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for entry in topic.configs:
        if entry.value is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"setting {entry.name!r} has no value")
        overrides[entry.name] = entry.value
    return overrides

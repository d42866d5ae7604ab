"""Metadata v0-v13. Brokers and topics; makes a topic that is asked for by name, where that is allowed.

v0: an empty list means all topics; v1+: null means all, empty none. v1 adds the controller, v2 the cluster id, v4 lets the
client refuse automatic creation (before, it is always allowed), v8-v10 authorized operations, v10 topic ids, v12 asking by
id. A topic made here is told at once, with its leader: nothing has to be waited for in a cluster of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.cluster import controller
from barnabas.cluster.endpoints import advertised_endpoint
from barnabas.cluster.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.cluster.topic_creation import TopicCreation
    from barnabas.config.loading import BrokerConfig
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import RequestContext

log = logging.getLogger(__name__)

AUTO_CREATION_FLAG_SINCE = 4
ASKING_BY_ID_SINCE = 12
NOT_ASKED = -(2**31)
NO_LEADER = -1
RESERVED_SINCE = 100
"""Memory is reserved for answers about more topics than this."""
TOPIC_BYTES = 1000
"""About what a topic with a few partitions takes in memory until the answer has been sent."""

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition


async def handle(
    context: RequestContext,
    request: MetadataRequest,
    *,
    metadata: MetadataStore,
    replicas: Replicas,
    config: BrokerConfig,
    budget: LoopBudget,
    broker_id: int,
    topic_creation: TopicCreation,
) -> MetadataResponse:
    """Describe what was asked for, and make what may be made; with many topics others are served in between."""
    if not await _is_sound(context, request, budget=budget):
        return await _refused(request, budget=budget)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        image = metadata.image
        await _reserve(context, len(image.topics))
        topics = [
            await _describe(context, info, request, replicas=replicas, budget=budget, broker_id=broker_id)
            for info in image.topics.values()
            if context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, info.name)
        ]
    else:
        asked = await _asked(request.topics, budget=budget)
        await _reserve(context, len(asked))
        refused = await _create_missing(
            context,
            request,
            asked,
            metadata=metadata,
            config=config,
            budget=budget,
            topic_creation=topic_creation,
        )
        image = metadata.image
        topics = [
            await _one(
                context,
                image,
                request,
                name,
                topic_id,
                refused,
                replicas=replicas,
                budget=budget,
                broker_id=broker_id,
            )
            for name, topic_id in asked
        ]
    response = MetadataResponse(cluster_id=image.cluster_id, controller_id=image.controller_id, topics=topics)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    for node_id in image.brokers:
        host, port, rack = advertised_endpoint(metadata.image, node_id, context.connection)
        response.brokers.append(
            MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
        )
    return response


async def _reserve(context: RequestContext, topics: int) -> None:
    """Reserve memory for an answer about so many topics, unless it is small."""
    if topics > RESERVED_SINCE:
        await context.reserve(topics * TOPIC_BYTES)


async def _is_sound(context: RequestContext, request: MetadataRequest, *, budget: LoopBudget) -> bool:
    """Whether each topic is asked for by its name, or since v12 by its id."""
    by_id = context.api_version >= ASKING_BY_ID_SINCE
    for entry in request.topics or ():
        is_id = entry.topic_id != ZERO_UUID
        if (entry.name is None and not is_id) or (is_id and not by_id):
            return False
        await budget.checkpoint()
    return True


async def _refused(request: MetadataRequest, *, budget: LoopBudget) -> MetadataResponse:
    """INVALID_REQUEST for every topic, and nothing else: what is asked for cannot be known."""
    response = MetadataResponse(cluster_id=None, error_code=ErrorCode.INVALID_REQUEST)
    for entry in request.topics or ():
        response.topics.append(
            Topic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=entry.name or "",
                topic_id=entry.topic_id,
                topic_authorized_operations=NOT_ASKED,
            )
        )
        await budget.checkpoint()
    return response


async def _asked(
    topics: Sequence[MetadataRequest.MetadataRequestTopic], *, budget: LoopBudget
) -> dict[tuple[str | None, bytes], None]:
    """The (name, id) that are asked for, each once."""
    asked: dict[tuple[str | None, bytes], None] = {}
    for entry in topics:
        asked[entry.name, entry.topic_id] = None
        await budget.checkpoint()
    return asked


async def _create_missing(
    context: RequestContext,
    request: MetadataRequest,
    asked: Iterable[tuple[str | None, bytes]],
    *,
    metadata: MetadataStore,
    config: BrokerConfig,
    budget: LoopBudget,
    topic_creation: TopicCreation,
) -> dict[str, RequestError]:
    """Make the topics that are asked for by a name that nothing has; returns the error for those that are not made."""
    allowed = context.api_version < AUTO_CREATION_FLAG_SINCE or request.allow_auto_topic_creation
    allowed = allowed and config.get(settings.AUTO_CREATE_TOPICS_ENABLE)
    refused: dict[str, RequestError] = {}
    missing: list[str] = []
    for name, topic_id in asked:
        if topic_id == ZERO_UUID and name is not None and not _is_described(context, name):
            refused[name] = RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic_id == ZERO_UUID and name is not None and name not in metadata.image.topics:
            try:
                controller.check_topic_name(name)
                if not allowed:
                    raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
                if not context.authorizes(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
                    context.require(Operation.CREATE, ResourceType.TOPIC, name)
                missing.append(name)
            except RequestError as error:
                refused[name] = error
        await budget.checkpoint()
    if missing:
        not_made = await topic_creation.ensure_all(missing)
        if not_made:
            name, why = next(iter(not_made.items()))
            log.warning(
                "%d topics that client %r asks for are not made: %s: %s",
                len(not_made), context.client_id, name, why,
            )  # fmt: skip
        for name, why in not_made.items():
            # Kafka tells nothing but a name that cannot be; the reason is in the broker's log.
            is_name = why.code == ErrorCode.INVALID_TOPIC_EXCEPTION
            refused[name] = why if is_name else RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return refused


def _is_described(context: RequestContext, name: str) -> bool:
    return context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name)


async def _one(
    context: RequestContext,
    image: ClusterImage,
    request: MetadataRequest,
    name: str | None,
    topic_id: bytes,
    refused: Mapping[str, RequestError],
    *,
    replicas: Replicas,
    budget: LoopBudget,
    broker_id: int,
) -> Topic:
    if topic_id != ZERO_UUID:
        name = image.topic_name(topic_id)
        if name is None:
            return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not _is_described(context, name):
            return Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    error = refused.get(name or "")
    if error is not None and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Topic(error_code=error.code, name=name or "")
    info = image.topics.get(name or "")
    if info is not None:
        return await _describe(context, info, request, replicas=replicas, budget=budget, broker_id=broker_id)
    return Topic(  # there is no error where somebody else has deleted the topic meanwhile
        error_code=error.code if error else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name or "",
        topic_authorized_operations=_operations(context, request, name or ""),
    )


def _operations(context: RequestContext, request: MetadataRequest, topic: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return context.authorized_operations(ResourceType.TOPIC, topic)


async def _describe(
    context: RequestContext,
    info: TopicInfo,
    request: MetadataRequest,
    *,
    replicas: Replicas,
    budget: LoopBudget,
    broker_id: int,
) -> Topic:
    topic = Topic(
        name=info.name,
        topic_id=info.id,
        is_internal=info.internal,
        topic_authorized_operations=_operations(context, request, info.name),
    )
    for index, partition in enumerate(info.partitions):
        topic.partitions.append(
            describe_partition(info.name, index, partition, Partition, replicas=replicas, broker_id=broker_id)
        )
        await budget.checkpoint()
    return topic


class _Told(Protocol):
    """A partition as Metadata and DescribeTopicPartitions describe it."""

    error_code: int
    leader_id: int
    offline_replicas: list[int]


T = TypeVar("T", bound=_Told)


def describe_partition(
    topic: str,
    index: int,
    info: PartitionInfo,
    make: Callable[..., T],
    *,
    replicas: Replicas,
    broker_id: int,
) -> T:
    """What is told of a partition, which has no leader while its log is not there."""
    told = make(
        partition_index=index,
        leader_id=info.leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
    )
    if replicas.is_offline(topic, index, info):
        told.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        told.leader_id = NO_LEADER
        told.offline_replicas = [broker_id]
    return told

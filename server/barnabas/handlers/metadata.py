"""Metadata v0-v13. Brokers and topics; makes a topic that is asked for by name, where that is allowed.

v0: an empty list means all topics; v1+: null means all, empty none. v1 adds the controller, v2 the cluster id, v4 lets the
client refuse automatic creation (before, it is always allowed), v8-v10 authorized operations, v10 topic ids, v12 asking by
id. A topic made here is told at once, with its leader: nothing has to be waited for in a cluster of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.cluster import controller
from barnabas.cluster.image import PartitionInfo, TopicInfo
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.handlers.describe_cluster import CLUSTER_OPERATIONS
from barnabas.ids import new_uuid
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.context import RequestContext

AUTO_CREATION_FLAG_SINCE = 4
ASKING_BY_ID_SINCE = 12
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
"""Bits of the ACL operations on a topic: read, write, create, delete, alter, describe, describe and alter configs."""
NOT_ASKED = -(2**31)
NO_LEADER = -1

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Describe what was asked for."""
    broker = context.broker
    if not _is_sound(request, context.api_version):
        return _refused(request)
    topics = [topic async for topic in _described(context, request)]
    image = broker.metadata.image
    response = MetadataResponse(cluster_id=image.cluster_id, controller_id=image.controller_id, topics=topics)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    for broker_id in image.brokers:
        host, port, rack = context.endpoint_of(broker_id)
        response.brokers.append(
            MetadataResponse.MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=rack)
        )
    return response


async def _described(context: RequestContext, request: MetadataRequest) -> AsyncIterator[Topic]:
    image = context.broker.metadata.image
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        for info in image.topics.values():
            yield _describe(context.broker, info, request)
        return
    for name, topic_id in dict.fromkeys((entry.name, entry.topic_id) for entry in asked):
        try:
            if topic_id != ZERO_UUID:
                name = context.broker.metadata.image.topic_name(topic_id)
                if name is None:
                    yield Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
                    continue
            yield _describe(context.broker, await _find(context, request, name or ""), request)
        except RequestError as error:
            yield Topic(
                error_code=error.code, name=name or "", topic_authorized_operations=_operations(request)
            )


def _is_sound(request: MetadataRequest, version: int) -> bool:
    """Whether each topic is asked for by its name, or since v12 by its id."""
    if version < ASKING_BY_ID_SINCE:
        return all(entry.name is not None and entry.topic_id == ZERO_UUID for entry in request.topics or ())
    return all(entry.name is not None or entry.topic_id != ZERO_UUID for entry in request.topics or ())


def _refused(request: MetadataRequest) -> MetadataResponse:
    """INVALID_REQUEST for every topic, and nothing else: what is asked for cannot be known."""
    return MetadataResponse(
        cluster_id=None,
        error_code=ErrorCode.INVALID_REQUEST,
        topics=[
            Topic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=entry.name or "",
                topic_id=entry.topic_id,
                topic_authorized_operations=NOT_ASKED,
            )
            for entry in request.topics or ()
        ],
    )


def _operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED


async def _find(context: RequestContext, request: MetadataRequest, name: str) -> TopicInfo:
    """The topic, made if need be. Raises RequestError as the client must see it."""
    broker = context.broker
    info = broker.metadata.image.topics.get(name)
    if info is not None:
        return info
    controller.check_topic_name(name)
    allowed = context.api_version < AUTO_CREATION_FLAG_SINCE or request.allow_auto_topic_creation
    if not allowed or not broker.config.get(settings.AUTO_CREATE_TOPICS_ENABLE):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    await broker.ensure_topic(name, new_uuid())
    return broker.metadata.image.topics[name]


def _describe(broker: Broker, info: TopicInfo, request: MetadataRequest) -> Topic:
    return Topic(
        name=info.name,
        topic_id=info.id,
        is_internal=info.internal,
        topic_authorized_operations=_operations(request),
        partitions=[
            describe_partition(broker, info.name, index, partition, Partition)
            for index, partition in enumerate(info.partitions)
        ],
    )


class _Told(Protocol):
    """A partition as Metadata and DescribeTopicPartitions describe it."""

    error_code: int
    leader_id: int
    offline_replicas: list[int]


T = TypeVar("T", bound=_Told)


def describe_partition(
    broker: Broker, topic: str, index: int, info: PartitionInfo, make: Callable[..., T]
) -> T:
    """What is told of a partition, which has no leader while its log is not there."""
    told = make(
        partition_index=index,
        leader_id=info.leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
    )
    if broker.partitions.is_offline(topic, index, info):
        told.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        told.leader_id = NO_LEADER
        told.offline_replicas = [broker.broker_id]
    return told

"""Metadata v0-v13. Brokers and topics; creates a missing topic that is named, where that is allowed.

v0: an empty list means all topics; v1+: null means all, empty none. v1 adds the controller, v2 the cluster id, v4 lets the
client refuse automatic creation (before, it is always allowed), v5 offline replicas, v6 LISTENER_NOT_FOUND, v8-v10
authorized operations, v10 topic ids, v12 requests by id. v0 excludes replicas that the client cannot reach.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.image import ClusterImage, TopicInfo
from barnabas.config import broker as settings
from barnabas.config.keeper import is_clustered
from barnabas.errors import RequestError, detached
from barnabas.handlers.shared.partition_description import PartitionDescriber
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

AUTO_CREATION_FLAG_SINCE = 4
ASKING_BY_ID_SINCE = 12
NOT_ASKED = -(2**31)
LISTENER_NOT_FOUND_SINCE = 6
UNREACHABLE_REPLICAS_SINCE = 1
"""Since then replicas are described whether or not the client can reach them."""
RESERVED_SINCE = 100
"""Memory is reserved for answers about more topics than this."""
TOPIC_BYTES = 1000
"""Approximate memory of a topic with a few partitions until the response has been sent."""

_SHOWN = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE)
_SHOWN_IN_CLUSTER = (*_SHOWN, ErrorCode.INVALID_REPLICATION_FACTOR)
"""Why a topic is not made, as Kafka shows it to clients: 4.x, and with ZooKeeper."""

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition


@dataclass(eq=False)
class Metadata:
    """Handler of Metadata."""

    metadata: MetadataStore
    replicas: Replicas
    config: BrokerConfig
    budget: LoopBudget
    broker_id: int
    topic_creation: TopicCreation

    async def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        """Describe the requested topics, and create missing ones if allowed; yields to other tasks in between."""
        if not await self._is_sound(context, request):
            return await self._refused(request)
        if request.topics is None or (context.api_version == 0 and not request.topics):
            image = self.metadata.image
            describer = self._describer(context, image)
            await _reserve(context, len(image.topics))
            topics = []
            for info in image.topics.values():
                if context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, info.name, is_asked_for=False):
                    topics.append(await self._describe(context, info, request, describer))
                else:
                    await self.budget.checkpoint()
        else:
            asked = await self._asked(request.topics)
            await _reserve(context, len(asked))
            refused = await self._create_missing(
                context,
                request,
                asked,
            )
            image = self.metadata.image
            describer = self._describer(context, image)
            topics = []
            for name, topic_id in asked:
                topics.append(await self._one(context, image, request, name, topic_id, refused, describer))
                await self.budget.checkpoint()
        response = MetadataResponse(
            cluster_id=image.cluster_id, controller_id=image.controller_id, topics=topics
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = context.cluster_operations()
        response.brokers = [
            MetadataResponse.MetadataResponseBroker(
                node_id=node.id, host=node.host, port=node.port, rack=node.rack
            )
            for node in describer.nodes
        ]
        return response

    def _describer(self, context: RequestContext, image: ClusterImage) -> PartitionDescriber:
        return PartitionDescriber(
            image,
            context.connection,
            replicas=self.replicas,
            broker_id=self.broker_id,
            names_listeners=context.api_version >= LISTENER_NOT_FOUND_SINCE,
            reachable_only=context.api_version < UNREACHABLE_REPLICAS_SINCE,
        )

    async def _is_sound(self, context: RequestContext, request: MetadataRequest) -> bool:
        """Return whether each topic has a name, or since v12 an id."""
        by_id = context.api_version >= ASKING_BY_ID_SINCE
        for entry in request.topics or ():
            is_id = entry.topic_id != ZERO_UUID
            if (entry.name is None and not is_id) or (is_id and not by_id):
                return False
            await self.budget.checkpoint()
        return True

    async def _refused(self, request: MetadataRequest) -> MetadataResponse:
        """Return INVALID_REQUEST for every topic, and nothing else, as the requested topics are unknown."""
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
            await self.budget.checkpoint()
        return response

    async def _asked(
        self, topics: Sequence[MetadataRequest.MetadataRequestTopic]
    ) -> dict[tuple[str | None, bytes], None]:
        """Return the requested (name, id) pairs, each once."""
        asked: dict[tuple[str | None, bytes], None] = {}
        for entry in topics:
            asked[entry.name, entry.topic_id] = None
            await self.budget.checkpoint()
        return asked

    async def _create_missing(
        self, context: RequestContext, request: MetadataRequest, asked: Iterable[tuple[str | None, bytes]]
    ) -> dict[str, RequestError]:
        """Create the missing topics that are requested by name; returns the errors of those that are not created."""
        allowed = context.api_version < AUTO_CREATION_FLAG_SINCE or request.allow_auto_topic_creation
        allowed = allowed and self.config.get(settings.AUTO_CREATE_TOPICS_ENABLE)
        refused: dict[str, RequestError] = {}
        missing: list[str] = []
        for name, topic_id in asked:
            if topic_id == ZERO_UUID and name is not None and not _is_described(context, name):
                refused[name] = RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topic_id == ZERO_UUID and name is not None and name not in self.metadata.image.topics:
                try:
                    if allowed and not context.authorizes(
                        Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
                    ):
                        context.require(Operation.CREATE, ResourceType.TOPIC, name)
                    topic_decisions.check_topic_name(name)
                    if not allowed:
                        raise RequestError(
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
                        )
                    missing.append(name)
                except RequestError as error:
                    refused[name] = detached(error)
            await self.budget.checkpoint()
        if missing:
            not_made = await self.topic_creation.ensure_all(missing)
            mutations = context.mutations(refuses=False)
            for name in missing if mutations is not None else ():
                topic = self.metadata.image.topics.get(name) if name not in not_made else None
                if mutations is not None and topic is not None:
                    mutations.charge(name, len(topic.partitions))
                await self.budget.checkpoint()
            shown = _SHOWN_IN_CLUSTER if is_clustered(self.config) else _SHOWN
            unforeseen: list[tuple[str, RequestError]] = []
            for name, why in not_made.items():
                if why.code != ErrorCode.LEADER_NOT_AVAILABLE:
                    unforeseen.append((name, why))
                # The reason for all else is in the broker's log.
                refused[name] = (
                    why if why.code in shown else RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                )
                await self.budget.checkpoint()
            if unforeseen:
                context.log(
                    log, logging.WARNING, "requests for topics that cannot be made",
                    "%d topics that are asked for are not made: %s: %s", len(unforeseen), *unforeseen[0],
                )  # fmt: skip
        return refused

    async def _one(
        self,
        context: RequestContext,
        image: ClusterImage,
        request: MetadataRequest,
        name: str | None,
        topic_id: bytes,
        refused: Mapping[str, RequestError],
        describer: PartitionDescriber,
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
            return await self._describe(context, info, request, describer)
        return Topic(  # there is no error where another client has deleted the topic meanwhile
            error_code=error.code if error else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            name=name or "",
            topic_authorized_operations=_operations(context, request, name or ""),
        )

    async def _describe(
        self,
        context: RequestContext,
        info: TopicInfo,
        request: MetadataRequest,
        describer: PartitionDescriber,
    ) -> Topic:
        topic = Topic(
            name=info.name,
            topic_id=info.id,
            is_internal=info.internal,
            topic_authorized_operations=_operations(context, request, info.name),
        )
        for index, partition in enumerate(info.partitions):
            topic.partitions.append(describer.describe(info.name, index, partition, Partition))
            await self.budget.checkpoint()
        return topic


async def _reserve(context: RequestContext, topics: int) -> None:
    """Reserve memory for a response about this many topics, unless it is small."""
    if topics > RESERVED_SINCE:
        await context.reserve(topics * TOPIC_BYTES)


def _is_described(context: RequestContext, name: str) -> bool:
    return context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _operations(context: RequestContext, request: MetadataRequest, topic: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return context.authorized_operations(ResourceType.TOPIC, topic)

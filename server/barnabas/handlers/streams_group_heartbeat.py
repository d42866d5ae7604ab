"""StreamsGroupHeartbeat v0-v1. Joins, stays in or leaves a group of a Kafka Streams application (KIP-1071).

The internal topics that the application needs are created here, after the response has been decided: it reports them as
missing, and the member gets its tasks with a later heartbeat. v1 has the status of missing client tags (KIP-1357),
and can request a description of the topology (KIP-1331); this broker never does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.creation import NewTopic, create_topics
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.config import broker as settings
from barnabas.coordinators.groups.streams.membership import Heartbeat
from barnabas.coordinators.groups.streams.requests import check_heartbeat
from barnabas.coordinators.groups.streams.topology import InternalTopic, Status
from barnabas.coordinators.groups.topics import hash_size
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX
from barnabas.errors import RequestError, detached
from barnabas.handlers.shared.topic_sizes import size_of_topics
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.groups.shard import GroupShard
    from barnabas.environment import Entropy
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)


@dataclass(eq=False)
class StreamsGroupHeartbeat:
    """Handler of StreamsGroupHeartbeat."""

    metadata: MetadataStore
    group_coordinator: GroupCoordinator
    config: BrokerConfig
    budget: LoopBudget
    entropy: Entropy

    async def handle(
        self, context: RequestContext, request: StreamsGroupHeartbeatRequest
    ) -> StreamsGroupHeartbeatResponse:
        """Process the heartbeat in its group, create missing internal topics, and return the member's state."""
        beat = Heartbeat(
            request, context.client_id or "", context.connection.client_host, context.api_version
        )
        try:
            check_heartbeat(request)
            topics = list(_topics(request))
            await context.require_each(Operation.DESCRIBE, ResourceType.TOPIC, topics, self.budget)
            size_of_names = await size_of_topics(topics, hash_size, self.metadata, self.budget)
            reported = await self._reported(request)
            says_more = bool(topics) or reported > 0

            def is_large(shard: GroupShard) -> bool:
                of_group = shard.event_size(request.group_id, request.member_id, says_more=says_more)
                return size_of_names() + reported + of_group > EVENT_SIZE_MAX

            answer = await self.group_coordinator.write(
                request.group_id,
                lambda shard, out: shard.streams_heartbeat(beat, context.now_ms, out),
                is_large=is_large,
            )
        except RequestError as error:
            return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
        for _ in answer.add_endpoints():
            await self.budget.checkpoint()
        forbidden = await self._forbidden(context, answer.to_create)
        if forbidden:
            for status in answer.response.status or ():
                if status.status_code == Status.MISSING_INTERNAL_TOPICS:
                    status.status_detail += f"; Unauthorized to CREATE on topics {', '.join(forbidden)}."
            return answer.response
        failures = []
        for topic in answer.to_create:
            failure = await self._create(context, topic)
            if failure is not None:
                failures.append(f"; Creation of {topic.name} failed: {failure.message or failure}")
            await self.budget.checkpoint()
        if failures:
            for status in answer.response.status or ():
                status.status_detail += "".join(failures)
        return answer.response

    async def _reported(self, request: StreamsGroupHeartbeatRequest) -> int:
        """Return the number of tasks and partitions in a heartbeat, plus one if the member joins."""
        size = int(request.member_epoch <= 0)
        for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
            for task in tasks or ():
                size += 1 + len(task.partitions)
                await self.budget.checkpoint()
        return size + len(request.task_offsets or ()) + len(request.task_end_offsets or ())

    async def _forbidden(self, context: RequestContext, to_create: Sequence[InternalTopic]) -> list[str]:
        """Return the topics that the requester may not create; if there is one, no topic is created, as in Kafka."""
        if not to_create or context.authorizes(
            Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
        ):
            return []
        forbidden = []
        for topic in to_create:
            if not context.authorizes(Operation.CREATE, ResourceType.TOPIC, topic.name):
                forbidden.append(topic.name)
            await self.budget.checkpoint()
        return forbidden

    async def _create(self, context: RequestContext, topic: InternalTopic) -> RequestError | None:
        """Create a topic, unless it exists; returns the reason if that fails, for the application."""
        replicas = topic.replication_factor
        if replicas <= 0:
            replicas = self.config.get(settings.DEFAULT_REPLICATION_FACTOR)
        new = NewTopic(
            topic.name, new_uuid(self.entropy), topic.partitions, replicas, settings=dict(topic.settings)
        )
        refused: dict[str, RequestError] = {}

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            refused.clear()
            if topic.name not in image.topics:
                yield from create_topics(image, self.config, (new,), refused)

        try:
            await self.metadata.change(decide)
        except RequestError as error:
            refused[topic.name] = detached(error)
        for refusal in refused.values():
            context.log(
                log, logging.WARNING, "internal topics that cannot be made",
                "the internal topic %r of a streams group cannot be made: %s", topic.name, refusal,
            )  # fmt: skip
        return refused.get(topic.name)


def _topics(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    """Yield all topics of the application's topology."""
    for part in request.topology.subtopologies if request.topology is not None else ():
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topics in (part.repartition_source_topics, part.state_changelog_topics):
            yield from (topic.name for topic in topics)

"""ConsumerGroupHeartbeat v0-v1. Joins, stays in or leaves a group with partitions that the coordinator assigns (KIP-848).

In v0 the coordinator generates the member id; v1 requires one from the member (KIP-1082) and adds regular expressions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.store import MetadataStore
from barnabas.coordinators.groups.consumer.membership import Heartbeat, check_heartbeat
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.patterns import compile_pattern
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.topics import hash_size
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX
from barnabas.environment import Entropy
from barnabas.errors import RequestError
from barnabas.handlers.shared.expressions import ExpressionMatcher
from barnabas.handlers.shared.topic_sizes import NAMES_PER_CHECKPOINT, size_of_few, size_of_topics
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.deferred import Deferred
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.ids import new_uuid, uuid_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.serving.context import RequestContext


log = logging.getLogger(__name__)


@dataclass(eq=False)
class ConsumerGroupHeartbeat:
    """Handler of ConsumerGroupHeartbeat."""

    metadata: MetadataStore
    group_coordinator: GroupCoordinator
    budget: LoopBudget
    entropy: Entropy
    _matcher: ExpressionMatcher = field(init=False)

    def __post_init__(self) -> None:
        self._matcher = ExpressionMatcher(self.budget)

    def handle(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
        """Process the heartbeat in its group, and return the member's state. Raises RequestError."""
        beat = self._heartbeat(context, request)
        names = request.subscribed_topic_names or ()
        if request.subscribed_topic_regex or (
            names and (context.asks_authorizer or len(names) > NAMES_PER_CHECKPOINT)
        ):
            return Deferred(partial(self._take_note_of_topics, context, beat))
        check_heartbeat(request, context.api_version, self.group_coordinator.settings)
        now_ms = context.now_ms

        def is_large(shard: GroupShard) -> bool:
            if shard.is_up_to_date(beat, now_ms):
                return False
            says_more = _says_more(request)
            size = shard.event_size(request.group_id, request.member_id, says_more=says_more)
            if says_more:
                size += _reported(request) + size_of_few(names, hash_size, self.metadata)
            return size > EVENT_SIZE_MAX

        return self.group_coordinator.write_nowait(
            request.group_id,
            lambda shard, out: shard.consumer_heartbeat(beat, now_ms, out),
            is_large=is_large,
        )

    def _heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
        """Return the request, with facts about its sender."""
        may_describe = None
        if context.asks_authorizer:
            may_describe = partial(
                context.authorizes, Operation.DESCRIBE, ResourceType.TOPIC, is_asked_for=False
            )
        return Heartbeat(
            request,
            context.client_id or "",
            context.connection.client_host,
            "" if request.member_id else uuid_text(new_uuid(self.entropy)),
            may_describe,
            context.last_response,
        )

    async def _take_note_of_topics(
        self, context: RequestContext, beat: Heartbeat
    ) -> ConsumerGroupHeartbeatResponse:
        """Process a heartbeat with topics or expressions to look up, and topics that the requester may not describe."""
        request, coordinator = beat.request, self.group_coordinator
        names: Collection[str] = request.subscribed_topic_names or ()
        if names:
            await context.require_each(Operation.DESCRIBE, ResourceType.TOPIC, names, self.budget)
        check_heartbeat(request, context.api_version, coordinator.settings)
        if request.subscribed_topic_regex and request.member_epoch >= 0:
            names = await self._match(beat, names)
        size_of_names = await size_of_topics(names, hash_size, self.metadata, self.budget)
        return await coordinator.write(
            request.group_id,
            lambda shard, out: shard.consumer_heartbeat(beat, context.now_ms, out),
            is_large=lambda shard: (
                size_of_names() + _reported(request) + shard.event_size(request.group_id, request.member_id)
                > EVENT_SIZE_MAX
            ),
        )

    async def _match(self, beat: Heartbeat, names: Collection[str]) -> Collection[str]:
        """Return the topics of a subscription with an expression, matched before the group needs it.

        A group knows the topics of its own expressions already; it also refuses invalid expressions. Raises
        INVALID_REGULAR_EXPRESSION where matching takes too long.
        """
        request, image = beat.request, self.metadata.image
        expression = request.subscribed_topic_regex or ""
        try:
            compile_pattern(expression)
        except RequestError as error:
            log.debug("%r: %s", expression, error)
            return names

        async def is_known() -> bool:
            return await self.group_coordinator.read(
                request.group_id, lambda shard: shard.has_matched(request.group_id, expression)
            )

        if await is_known():
            return names
        matches = await self._matcher.match(
            request.group_id, is_known, expression, image.topics, beat.may_describe
        )
        if matches is None:
            return names
        beat.may_describe = matches.may_describe
        return matches.topics.union(names)


def _says_more(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a heartbeat has more content than that its member is alive."""
    return (
        request.member_epoch <= 0
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.topic_partitions is not None
    )


def _reported(request: ConsumerGroupHeartbeatRequest) -> int:
    """Return how many topics and partitions a heartbeat reports."""
    return sum([1 + len(topic.partitions) for topic in request.topic_partitions or ()])

"""ConsumerGroupHeartbeat v0-v1. Joins, stays in or leaves a group whose partitions the coordinator assigns (KIP-848).

v0 lets the coordinator make the member id; v1 wants one from the member (KIP-1082) and adds regular expressions.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.consumer.membership import Heartbeat, check_heartbeat
from barnabas.groups.consumer.regex import match_in_steps, matching
from barnabas.groups.topics import hash_size
from barnabas.handlers.beating import beat_at_once, beat_of, reported
from barnabas.handlers.heartbeats import NAMES_PER_CHECKPOINT, size_of_topics
from barnabas.later import Later
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.statemachine.decision import EVENT_SIZE_MAX
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.environment import Entropy
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

log = logging.getLogger(__name__)


def handle(
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    *,
    metadata: MetadataStore,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
    entropy: Entropy,
) -> ConsumerGroupHeartbeatResponse | Later[ConsumerGroupHeartbeatResponse]:
    """Let the group take note, and tell the member where it stands."""
    beat = beat_of(context, request, entropy)
    names = request.subscribed_topic_names or ()
    if request.subscribed_topic_regex or (
        names and (context.asks_authorizer or len(names) > NAMES_PER_CHECKPOINT)
    ):
        return Later(partial(_take_note, context, beat, metadata, group_coordinator, budget))
    return beat_at_once(context, beat, metadata, group_coordinator)


async def _take_note(
    context: RequestContext,
    beat: Heartbeat,
    metadata: MetadataStore,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> ConsumerGroupHeartbeatResponse:
    """Let the group take note of a heartbeat with topics to be looked for, and others that may not be described."""
    request = beat.request
    names: Collection[str] = request.subscribed_topic_names or ()
    if names:
        await context.require_each(Operation.DESCRIBE, ResourceType.TOPIC, names, budget)
    check_heartbeat(request, context.api_version, group_coordinator.settings)
    names = await _matched(names, request.subscribed_topic_regex, metadata=metadata, budget=budget)
    size_of_names = await size_of_topics(names, hash_size, metadata, budget)
    return await group_coordinator.perform(
        request.group_id,
        lambda shard, out: shard.consumer_heartbeat(beat, context.now_ms, out),
        is_large=lambda shard: (
            size_of_names() + reported(request) + shard.event_size(request.group_id, request.member_id)
            > EVENT_SIZE_MAX
        ),
    )


async def _matched(
    names: Collection[str], regex: str | None, *, metadata: MetadataStore, budget: LoopBudget
) -> Collection[str]:
    """Return the topics of a subscription; an expression is matched with all topics before the group asks for it.

    An expression that is wrong is the group's to refuse.
    """
    image = metadata.image
    if regex:
        try:
            for _ in match_in_steps(regex, image.topics):
                await budget.checkpoint()
            return frozenset(names) | matching(regex, image.topics)
        except RequestError as error:
            log.debug("%r: %s", regex, error)
    return names

"""What a ConsumerGroupHeartbeat goes through that waits for nothing: checks, how much it has to go through, the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groups.consumer.membership import Heartbeat, check_heartbeat
from barnabas.groups.shard import GroupShard
from barnabas.groups.topics import hash_size
from barnabas.handlers.heartbeats import size_of_few
from barnabas.later import Later
from barnabas.statemachine.decision import EVENT_SIZE_MAX
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.requests.context import RequestContext


def beat_at_once(
    context: RequestContext, beat: Heartbeat, metadata: MetadataStore, group_coordinator: GroupCoordinator
) -> ConsumerGroupHeartbeatResponse | Later[ConsumerGroupHeartbeatResponse]:
    """Let the group take note. Raises RequestError."""
    request = beat.request
    check_heartbeat(request, context.api_version, group_coordinator.settings)

    def is_large(shard: GroupShard) -> bool:
        if shard.finds_content(beat, context.now_ms):
            return False
        says_more = _says_more(request)
        size = shard.event_size(request.group_id, request.member_id, says_more=says_more)
        if says_more:
            size += reported(request) + size_of_few(request.subscribed_topic_names or (), hash_size, metadata)
        return size > EVENT_SIZE_MAX

    return group_coordinator.perform_at_once(
        request.group_id,
        lambda shard, out: shard.consumer_heartbeat(beat, context.now_ms, out),
        is_large=is_large,
    )


def _says_more(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a heartbeat says more than that its member is still there."""
    return (
        request.member_epoch <= 0
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.topic_partitions is not None
    )


def reported(request: ConsumerGroupHeartbeatRequest) -> int:
    """Return how many topics and partitions a heartbeat reports."""
    return sum([1 + len(topic.partitions) for topic in request.topic_partitions or ()])

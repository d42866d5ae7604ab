"""What a Heartbeat and a ConsumerGroupHeartbeat go through that wait for nothing: checks, how much it is, the group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.consumer.membership import Heartbeat, check_heartbeat
from barnabas.groups.shard import GroupShard
from barnabas.groups.topics import hash_size
from barnabas.handlers.heartbeats import size_of_few
from barnabas.ids import new_uuid, uuid_text
from barnabas.later import Later
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.statemachine.decision import EVENT_SIZE_MAX, Decision
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.environment import Entropy
    from barnabas.requests.context import RequestContext


def classic_beat_at_once(
    context: RequestContext, request: HeartbeatRequest, group_coordinator: GroupCoordinator
) -> HeartbeatResponse | Later[HeartbeatResponse]:
    """Note that a member of a classic group is alive. Raises RequestError."""
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")

    def beat(shard: GroupShard, out: Decision) -> HeartbeatResponse:
        must_join = shard.heartbeat(request, context.now_ms, out)
        code = ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE
        last: HeartbeatResponse | None = context.last_response
        return last if last is not None and last.error_code == code else HeartbeatResponse(error_code=code)

    return group_coordinator.perform_at_once(request.group_id, beat)


def beat_of(context: RequestContext, request: ConsumerGroupHeartbeatRequest, entropy: Entropy) -> Heartbeat:
    """Return a ConsumerGroupHeartbeat with what is known of who sends it."""
    may_describe = None
    if context.asks_authorizer:
        may_describe = partial(context.authorizes, Operation.DESCRIBE, ResourceType.TOPIC, is_asked_for=False)
    return Heartbeat(
        request,
        context.client_id or "",
        context.connection.client_host,
        "" if request.member_id else uuid_text(new_uuid(entropy)),
        may_describe,
        context.last_response,
    )


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

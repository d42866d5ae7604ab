"""ConsumerGroupHeartbeat v0-v1. Joins, stays in or leaves a group whose partitions the coordinator assigns (KIP-848).

v0 lets the coordinator make the member id; v1 wants one from the member (KIP-1082) and adds regular expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.consumer.membership import Heartbeat, check_heartbeat
from barnabas.ids import new_uuid, uuid_text
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext


async def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Let the group take note, and tell the member where it stands."""
    groups = context.broker.groups
    beat = Heartbeat(request, context.client_id or "", context.connection.client_host, uuid_text(new_uuid()))
    try:
        check_heartbeat(request, context.api_version, groups.settings)
        return await groups.perform(
            request.group_id, lambda shard, out: shard.consumer_heartbeat(beat, context.now_ms, out)
        )
    except RequestError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)

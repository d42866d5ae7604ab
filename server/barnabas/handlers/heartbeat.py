"""Heartbeat v0-v4. A member is alive; REBALANCE_IN_PROGRESS tells it to join again. v3 adds static members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.beating import classic_beat_at_once
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.later import Later
    from barnabas.requests.context import RequestContext


def handle(
    context: RequestContext, request: HeartbeatRequest, *, group_coordinator: GroupCoordinator
) -> HeartbeatResponse | Later[HeartbeatResponse]:
    """Note that the member is alive."""
    return classic_beat_at_once(context, request, group_coordinator)

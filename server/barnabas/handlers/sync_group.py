"""SyncGroup v0-v5. A member asks for its assignment; the leader brings everybody's.

v3 adds static members; v5 says which protocol the member believes in (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.joining import sync_at_once
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.later import Later
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext


def handle(
    context: RequestContext,
    request: SyncGroupRequest,
    *,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> SyncGroupResponse | Later[SyncGroupResponse]:
    """Sync; answered when the leader has synced."""
    return sync_at_once(context, request, group_coordinator, budget)

"""JoinGroup v0-v9. Joins a group, or joins it again; answered when the rebalance has gathered all members.

v0 has no rebalance timeout (the session timeout counts); v4 must join a second time with the member id that the first
answer gives (KIP-394); v5 adds static members (KIP-345); v9 tells a static leader not to assign again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.joining import join_at_once
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.environment import Entropy
    from barnabas.later import Later
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext


def handle(
    context: RequestContext,
    request: JoinGroupRequest,
    *,
    group_coordinator: GroupCoordinator,
    entropy: Entropy,
    budget: LoopBudget,
) -> JoinGroupResponse | Later[JoinGroupResponse]:
    """Join; errors answer with the member id that was sent."""
    return join_at_once(context, request, group_coordinator, entropy, budget)

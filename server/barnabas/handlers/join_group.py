"""JoinGroup v0-v9. Joins a group, or joins it again; answered when the rebalance has gathered all members.

v0 has no rebalance timeout (the session timeout counts); v4 must join a second time with the member id that the first
answer gives (KIP-394); v5 adds static members (KIP-345); v9 tells a static leader not to assign again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.member import Joining
from barnabas.ids import new_member_id
from barnabas.later import Later
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.environment import Entropy
    from barnabas.groups.generation import LeadersAnswer
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

REBALANCE_TIMEOUT_SINCE = 1
KNOWN_ID_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
NULL_PROTOCOL_SINCE = 7


def handle(
    context: RequestContext,
    request: JoinGroupRequest,
    *,
    group_coordinator: GroupCoordinator,
    entropy: Entropy,
    budget: LoopBudget,
) -> JoinGroupResponse | Later[JoinGroupResponse]:
    """Join; errors answer with the member id that was sent."""
    now_ms = context.now_ms
    instance_id, client_id = request.group_instance_id, context.client_id or ""
    new_id = ""
    if not request.member_id:
        new_id = new_member_id(client_id if instance_id is None else instance_id, entropy)
    if context.api_version < REBALANCE_TIMEOUT_SINCE:
        request.rebalance_timeout_ms = request.session_timeout_ms

    def respond(
        outcome: JoinGroupResponse | LeadersAnswer | RequestError,
    ) -> JoinGroupResponse | Later[JoinGroupResponse]:
        if isinstance(outcome, RequestError):
            outcome = JoinGroupResponse(error_code=outcome.code, member_id=request.member_id)
        elif not isinstance(outcome, JoinGroupResponse):
            return Later(partial(_complete, outcome, budget))
        if outcome.error_code:
            outcome.protocol_name = None
        if outcome.protocol_name is None and context.api_version < NULL_PROTOCOL_SINCE:
            outcome.protocol_name = ""
        return outcome

    try:
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return group_coordinator.perform_and_announce(
            request.group_id,
            lambda shard, out, waiter: shard.join(
                Joining(
                    request,
                    client_id,
                    context.connection.client_host,
                    waiter,
                    new_id,
                    known_id_required=context.api_version >= KNOWN_ID_SINCE,
                    can_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
                ),
                now_ms,
                out,
            ),
            respond,
        )
    except RequestError as error:
        return respond(error)


async def _complete(answer: LeadersAnswer, budget: LoopBudget) -> JoinGroupResponse:
    """Make the list of very many members, in slices. Their leader's answer is never an error."""
    response = answer.response
    for entry in answer.entries():
        response.members.append(entry)
        await budget.checkpoint()
    return response

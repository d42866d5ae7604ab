"""What JoinGroup and SyncGroup go through that waits for nothing: checks, ids of new members, the group, its answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.errors import RequestError
from barnabas.groups.member import Joining
from barnabas.groups.shard import GroupShard
from barnabas.ids import new_member_id
from barnabas.later import Later
from barnabas.statemachine.decision import Decision, slices
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.environment import Entropy
    from barnabas.groups.generation import LeadersAnswer
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

REBALANCE_TIMEOUT_SINCE: Final = 1
"""Before this version of JoinGroup the session timeout is the rebalance timeout, too."""
KNOWN_ID_SINCE: Final = 4
"""From this version on a member without an id is only told one (KIP-394)."""
NULL_PROTOCOL_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9
SYNC_NAMES_PROTOCOL_SINCE: Final = 5
"""From this version of SyncGroup on a member says which protocol it believes in (KIP-559)."""
ASSIGNMENTS_AT_ONCE: Final = 500


def join_at_once(
    context: RequestContext,
    request: JoinGroupRequest,
    group_coordinator: GroupCoordinator,
    entropy: Entropy,
    budget: LoopBudget,
) -> JoinGroupResponse | Later[JoinGroupResponse]:
    """Let a member join; errors answer with the member id that was sent."""
    now_ms, version = context.now_ms, context.api_version
    instance_id, client_id = request.group_instance_id, context.client_id or ""
    client_host = context.connection.client_host
    new_id = ""
    if not request.member_id:
        new_id = new_member_id(client_id if instance_id is None else instance_id, entropy)
    if version < REBALANCE_TIMEOUT_SINCE:
        request.rebalance_timeout_ms = request.session_timeout_ms

    def join(shard: GroupShard, out: Decision, waiter: int) -> None:
        joining = Joining(
            request,
            client_id,
            client_host,
            waiter,
            new_id,
            known_id_required=version >= KNOWN_ID_SINCE,
            can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
        )
        shard.join(joining, now_ms, out)

    def respond(
        outcome: JoinGroupResponse | LeadersAnswer | RequestError,
    ) -> JoinGroupResponse | Later[JoinGroupResponse]:
        if isinstance(outcome, RequestError):
            outcome = JoinGroupResponse(error_code=outcome.code, member_id=request.member_id)
        elif not isinstance(outcome, JoinGroupResponse):
            return Later(partial(_complete, outcome, budget))
        if outcome.error_code:
            outcome.protocol_name = None
        if outcome.protocol_name is None and version < NULL_PROTOCOL_SINCE:
            outcome.protocol_name = ""
        return outcome

    try:
        if not request.group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return group_coordinator.perform_and_announce(request.group_id, join, respond)
    except RequestError as error:
        return respond(error)


async def _complete(answer: LeadersAnswer, budget: LoopBudget) -> JoinGroupResponse:
    """Make the list of very many members, in slices. Their leader's answer is never an error."""
    response = answer.response
    for entry in answer.entries():
        response.members.append(entry)
        await budget.checkpoint()
    return response


def sync_at_once(
    context: RequestContext,
    request: SyncGroupRequest,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> SyncGroupResponse | Later[SyncGroupResponse]:
    """Let a member ask for its assignment. Raises RequestError."""
    if context.api_version >= SYNC_NAMES_PROTOCOL_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "v5 needs the protocol's type and name")
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if len(request.assignments) > ASSIGNMENTS_AT_ONCE:
        return Later(partial(_sync_many, context, request, group_coordinator, budget))
    now_ms = context.now_ms
    return group_coordinator.perform_and_announce(
        request.group_id,
        lambda shard, out, waiter: shard.sync(request, waiter, now_ms, out),
        _synced,
    )


def _synced(outcome: SyncGroupResponse | RequestError) -> SyncGroupResponse:
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome


async def _sync_many(
    context: RequestContext,
    request: SyncGroupRequest,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> SyncGroupResponse:
    """Sync as the leader of very many members."""
    assigned: dict[str, bytes] = {}
    for some in slices(request.assignments, ASSIGNMENTS_AT_ONCE):
        assigned.update({entry.member_id: entry.assignment for entry in some})
        await budget.checkpoint()
    response: SyncGroupResponse = await group_coordinator.perform_and_wait(
        request.group_id,
        lambda shard, out, waiter: shard.sync(request, waiter, context.now_ms, out, assigned),
    )
    return response

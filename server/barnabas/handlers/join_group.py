"""JoinGroup v0-v9. Joins a group, or joins it again; answered when the rebalance has gathered all members.

v0 has no rebalance timeout (the session timeout counts); in v4 a new member must join a second time with the member id of
the first response (KIP-394); v5 adds static members (KIP-345); in v9 a static leader can be asked to skip the assignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.member import Joining
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.environment import Entropy
from barnabas.errors import RequestError
from barnabas.serving.deferred import Deferred
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.ids import new_member_id

if TYPE_CHECKING:
    from barnabas.coordinators.groups.generation import LeadersAnswer
    from barnabas.serving.context import RequestContext


REBALANCE_TIMEOUT_SINCE: Final = 1
"""Before this version the session timeout is the rebalance timeout, too."""
KNOWN_ID_SINCE: Final = 4
"""From this version on a member without an id is only told one (KIP-394)."""
NULL_PROTOCOL_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9


@dataclass(eq=False)
class JoinGroup:
    """Handler of JoinGroup."""

    group_coordinator: GroupCoordinator
    entropy: Entropy
    budget: LoopBudget

    def handle(
        self, context: RequestContext, request: JoinGroupRequest
    ) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
        """Join; errors answer with the member id that was sent."""
        now_ms, version = context.now_ms, context.api_version
        instance_id, client_id = request.group_instance_id, context.client_id or ""
        client_host = context.connection.client_host
        new_id = ""
        if not request.member_id:
            new_id = new_member_id(client_id if instance_id is None else instance_id, self.entropy)
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
        ) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
            if isinstance(outcome, RequestError):
                outcome = JoinGroupResponse(error_code=outcome.code, member_id=request.member_id)
            elif not isinstance(outcome, JoinGroupResponse):
                return Deferred(partial(self._with_all_members, outcome))
            if outcome.error_code:
                outcome.protocol_name = None
            if outcome.protocol_name is None and version < NULL_PROTOCOL_SINCE:
                outcome.protocol_name = ""
            return outcome

        try:
            if not request.group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            return self.group_coordinator.write_for_reply(request.group_id, join, respond)
        except RequestError as error:
            return respond(error)

    async def _with_all_members(self, answer: LeadersAnswer) -> JoinGroupResponse:
        """Make the list of very many members, in slices. Their leader's answer is never an error."""
        response = answer.response
        for entry in answer.entries():
            response.members.append(entry)
            await self.budget.checkpoint()
        return response

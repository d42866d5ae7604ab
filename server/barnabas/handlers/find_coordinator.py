"""FindCoordinator v0-v6. Which broker coordinates a group or a transactional id; with one broker, always this one.

v1 adds the key type (0 group, 1 transaction, 2 share partition), v4 asks for many keys at once, v6 knows type 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

MANY_KEYS_SINCE = 4
GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_SINCE = 6

Coordinator = FindCoordinatorResponse.Coordinator


async def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer every key on its own."""
    if context.api_version >= MANY_KEYS_SINCE:
        response = FindCoordinatorResponse()
        for key in request.coordinator_keys:
            response.coordinators.append(await _find(context, request.key_type, key))
            await context.broker.budget.checkpoint()
        return response
    found = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    answer = Coordinator(key=key, node_id=-1, port=-1, error_message=ErrorCode.NONE.name)
    try:
        if key_type == GROUP:
            await context.broker.groups.partition_of(key)
        elif key_type == TRANSACTION:
            await context.broker.transactions.partition_of(key)
        elif key_type == SHARE and context.api_version >= SHARE_SINCE:
            from barnabas.coordination.share_state import key_of, name_of

            await context.broker.shares.state.partition_of(name_of(key_of(key)))
        else:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type} here"
            )
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message or None
        return answer
    answer.node_id = context.broker.broker_id
    answer.host, answer.port, _ = context.endpoint_of(answer.node_id)
    return answer

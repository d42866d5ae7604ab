"""FindCoordinator v0-v6. Which broker coordinates a group or a transactional id; with one broker, always this one.

v1 adds the key type (0 group, 1 transaction, 2 share partition), v4 asks for many keys at once, v6 knows type 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.endpoints import advertised_endpoint
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.coordination.shares import Shares
    from barnabas.coordination.transactions import TransactionCoordinator
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

MANY_KEYS_SINCE = 4
GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_SINCE = 6

Coordinator = FindCoordinatorResponse.Coordinator


async def handle(
    context: RequestContext,
    request: FindCoordinatorRequest,
    *,
    metadata: MetadataStore,
    group_coordinator: GroupCoordinator,
    transaction_coordinator: TransactionCoordinator,
    shares: Shares,
    budget: LoopBudget,
    broker_id: int,
) -> FindCoordinatorResponse:
    """Answer every key on its own."""
    if context.api_version >= MANY_KEYS_SINCE:
        response = FindCoordinatorResponse()
        for key in request.coordinator_keys:
            response.coordinators.append(
                await _find(
                    context,
                    request.key_type,
                    key,
                    metadata=metadata,
                    group_coordinator=group_coordinator,
                    transaction_coordinator=transaction_coordinator,
                    shares=shares,
                    broker_id=broker_id,
                )
            )
            await budget.checkpoint()
        return response
    found = await _find(
        context,
        request.key_type,
        request.key,
        metadata=metadata,
        group_coordinator=group_coordinator,
        transaction_coordinator=transaction_coordinator,
        shares=shares,
        broker_id=broker_id,
    )
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(
    context: RequestContext,
    key_type: int,
    key: str,
    *,
    metadata: MetadataStore,
    group_coordinator: GroupCoordinator,
    transaction_coordinator: TransactionCoordinator,
    shares: Shares,
    broker_id: int,
) -> Coordinator:
    answer = Coordinator(key=key, node_id=-1, port=-1, error_message=ErrorCode.NONE.name)
    try:
        if key_type == GROUP:
            await group_coordinator.partition_of(key)
        elif key_type == TRANSACTION:
            await transaction_coordinator.partition_of(key)
        elif key_type == SHARE and context.api_version >= SHARE_SINCE:
            from barnabas.coordination.share_state import key_of, name_of

            await shares.state.partition_of(name_of(key_of(key)))
        else:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type} here"
            )
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message or None
        return answer
    answer.node_id = broker_id
    answer.host, answer.port, _ = advertised_endpoint(metadata.image, answer.node_id, context.connection)
    return answer

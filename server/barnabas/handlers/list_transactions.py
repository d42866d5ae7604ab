"""ListTransactions v0-v2. The transactional ids that this broker coordinates (KIP-664).

Filters: states, producer ids, v1 how long a transaction has been open, v2 a pattern for the id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.transactions.transaction import State
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from barnabas.coordination.transactions import TransactionCoordinator
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

_STATES = {state.title for state in State}


async def handle(
    context: RequestContext,
    request: ListTransactionsRequest,
    *,
    transaction_coordinator: TransactionCoordinator,
    budget: LoopBudget,
) -> ListTransactionsResponse:
    """Those that pass every filter."""
    asked = set(request.state_filters)
    states = asked & _STATES
    response = ListTransactionsResponse(unknown_state_filters=sorted(asked - states))
    if asked and not states:
        return response
    pattern = _compiled(request.transactional_id_pattern)
    producer_ids = set(request.producer_id_filters)
    for machine in await transaction_coordinator.machines():
        for transaction in tuple(machine.transactions.values()):
            await budget.checkpoint()
            if not transaction.matches(states, producer_ids, request.duration_filter, context.now_ms):
                continue
            if pattern is not None and not pattern.fullmatch(transaction.id):
                continue
            if context.authorizes(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.id):
                response.transaction_states.append(
                    ListTransactionsResponse.TransactionState(
                        transactional_id=transaction.id,
                        producer_id=transaction.producer_id,
                        transaction_state=transaction.state.title,
                    )
                )
    return response


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise RequestError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r}: {error}") from error

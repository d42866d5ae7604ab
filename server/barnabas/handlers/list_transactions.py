"""ListTransactions v0-v2. The transactional ids that this broker coordinates (KIP-664).

Filters: states, producer ids, v1 the time since a transaction began, whatever its state is now, v2 a pattern for the id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.patterns import compile_pattern
from barnabas.coordinators.transactions.transaction import State, Transaction
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.coordinators.transactions.shard import TransactionShard
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

_STATES = {state.title for state in State}


@dataclass(eq=False)
class ListTransactions:
    """Handler of ListTransactions."""

    transaction_coordinator: TransactionCoordinator
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """Return the transactions that pass every filter."""
        asked = dict.fromkeys(request.state_filters)
        states = _STATES & asked.keys()
        response = ListTransactionsResponse()
        for name in asked:
            if name not in states:
                response.unknown_state_filters.append(name)
            await self.budget.checkpoint()
        if asked and not states:
            return response
        text = request.transactional_id_pattern
        pattern = compile_pattern(text) if text else None
        producer_ids = set(request.producer_id_filters)

        def matches(transaction: Transaction) -> bool:
            return (
                transaction.matches(states, producer_ids, request.duration_filter, context.now_ms)
                and (pattern is None or pattern.fullmatch(transaction.id) is not None)
                and context.authorizes(
                    Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.id, is_asked_for=False
                )
            )

        def look(machine: TransactionShard) -> Iterator[ListTransactionsResponse.TransactionState | None]:
            for transaction in tuple(machine.transactions.values()):
                yield _listed(transaction) if matches(transaction) else None

        response.transaction_states = list(filter(None, await self.transaction_coordinator.read_all(look)))
        return response


def _listed(transaction: Transaction) -> ListTransactionsResponse.TransactionState:
    return ListTransactionsResponse.TransactionState(
        transactional_id=transaction.id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.title,
    )

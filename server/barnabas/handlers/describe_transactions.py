"""DescribeTransactions v0. The state of transactional ids, with the partitions of open transactions (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.transactions.transaction import State
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

PARTITIONS_PER_CHECKPOINT = 500

Described = DescribeTransactionsResponse.TransactionState


@dataclass(eq=False)
class DescribeTransactions:
    """Handler of DescribeTransactions."""

    transaction_coordinator: TransactionCoordinator
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """Answer each id on its own."""
        response = DescribeTransactionsResponse()
        for transactional_id in request.transactional_ids:
            try:
                described = await self._describe(
                    context,
                    transactional_id,
                )
            except RequestError as error:
                described = Described(transactional_id=transactional_id, error_code=error.code)
            response.transaction_states.append(described)
            await self.budget.checkpoint()
        return response

    async def _describe(self, context: RequestContext, transactional_id: str) -> Described:
        context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        transaction = await self.transaction_coordinator.read(
            transactional_id, lambda machine: machine.transactions.get(transactional_id)
        )
        if transaction is None or transaction.state is State.DEAD:
            raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        topics: dict[str, list[int]] = {}
        for number, (topic, partition) in enumerate(transaction.partitions, 1):
            if topic in topics or context.authorizes(
                Operation.DESCRIBE, ResourceType.TOPIC, topic, is_asked_for=False
            ):
                topics.setdefault(topic, []).append(partition)
            if number % PARTITIONS_PER_CHECKPOINT == 0:
                await self.budget.checkpoint()
        described = Described(
            transactional_id=transactional_id,
            transaction_state=transaction.state.title,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
        )
        for topic in sorted(topics):
            described.topics.append(
                DescribeTransactionsResponse.TopicData(topic=topic, partitions=sorted(topics[topic]))
            )
            await self.budget.checkpoint()
        return described

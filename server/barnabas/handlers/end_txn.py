"""EndTxn v0-v5. Commits or aborts a transaction.

From v2 on PRODUCER_FENCED may be returned; v5 (transaction version 2, KIP-890) bumps the epoch and returns the
producer's next id and epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.serving.context import RequestContext

FENCED_KNOWN_SINCE = 2
EPOCH_BUMPED_SINCE = 5


@dataclass(eq=False)
class EndTxn:
    """Handler of EndTxn."""

    transaction_coordinator: TransactionCoordinator

    async def handle(self, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
        """End it."""
        if not request.transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        bumps = context.api_version >= EPOCH_BUMPED_SINCE
        try:
            producer = await self.transaction_coordinator.end(
                request.transactional_id,
                Producer(request.producer_id, request.producer_epoch),
                commit=request.committed,
                client_version=2 if bumps else 0,
            )
        except RequestError as error:
            if error.code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_KNOWN_SINCE:
                raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
            raise
        if not bumps:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=producer.id, producer_epoch=producer.epoch)

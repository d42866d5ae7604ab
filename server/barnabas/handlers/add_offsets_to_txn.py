"""AddOffsetsToTxn v0-v4. The group's partition of __consumer_offsets becomes part of a transaction.

From v2 on the error PRODUCER_FENCED may be returned. Producers of transaction version 2 do not send it (KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.serving.context import RequestContext

FENCED_KNOWN_SINCE = 2


@dataclass(eq=False)
class AddOffsetsToTxn:
    """Handler of AddOffsetsToTxn."""

    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator

    async def handle(
        self, context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        """Add it."""
        if not request.transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        partition = await self.group_coordinator.partition_of(request.group_id)
        try:
            await self.transaction_coordinator.add_partitions(
                request.transactional_id,
                Producer(request.producer_id, request.producer_epoch),
                frozenset({(OFFSETS_TOPIC, partition)}),
                client_version=0,
            )
        except RequestError as error:
            if error.code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_KNOWN_SINCE:
                raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
            raise
        return AddOffsetsToTxnResponse()

"""InitProducerId v0-v6. A producer id for an idempotent producer, or the next epoch of a transactional one.

Without a transactional id each request gets a new id with epoch 0. With one, the producer's epoch is bumped, so that
older instances are fenced and their open transaction is aborted; v3 lets a producer keep its id and epoch (KIP-360); from
v4 on PRODUCER_FENCED may be returned, in older versions INVALID_PRODUCER_EPOCH. v6 is not stable, as in Kafka, and is
served with `unstable.api.versions.enable`: transactions of two-phase commit have no timeout (KIP-939). An open and
prepared transaction cannot be kept over an InitProducerId yet, as in Kafka 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Producer
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.coordinators.transactions.ports import ProducerIds
    from barnabas.serving.context import RequestContext

FENCED_KNOWN_SINCE = 4


@dataclass(eq=False)
class InitProducerId:
    """Handler of InitProducerId."""

    transaction_coordinator: TransactionCoordinator
    producer_ids: ProducerIds
    config: BrokerConfig

    async def handle(self, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """The producer's id and epoch; none with an error."""
        try:
            return await self._handle(
                context,
                request,
            )
        except RequestError as error:
            return InitProducerIdResponse(
                error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
            )

    async def _handle(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            if request.enable2_pc:
                context.require(
                    Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, request.transactional_id
                )
        elif not context.authorizes(
            Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
        ) and not context.authorizes_on_any(Operation.WRITE, ResourceType.TOPIC):
            raise RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        expected = Producer(request.producer_id, request.producer_epoch)
        if (expected.id == NO_PRODUCER_ID) is not (expected.epoch == NO_EPOCH):
            raise RequestError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch go together")
        if request.transactional_id is None:
            producer_id = await self.producer_ids.next()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        if not request.transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        self._check_two_phases(request)
        try:
            producer = await self.transaction_coordinator.init_producer(
                request.transactional_id,
                None if request.enable2_pc else request.transaction_timeout_ms,
                expected if expected.id != NO_PRODUCER_ID else None,
            )
        except RequestError as error:
            if error.code == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_KNOWN_SINCE:
                raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
            raise
        return InitProducerIdResponse(producer_id=producer.id, producer_epoch=producer.epoch)

    def _check_two_phases(self, request: InitProducerIdRequest) -> None:
        """Raise TRANSACTIONAL_ID_AUTHORIZATION_FAILED or UNSUPPORTED_VERSION if KIP-939 is not allowed."""
        if request.enable2_pc and not self.config.get(settings.TRANSACTION_TWO_PHASE_COMMIT_ENABLE):
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transaction.two.phase.commit.enable=false: this broker has no transactions without a timeout",
            )
        if request.keep_prepared_txn:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "a prepared transaction cannot be kept yet")

"""AllocateProducerIds v0: a broker gets the next block of producer ids. Pure.

The rule: no id is in two blocks, even if the answer is lost.
"""

from __future__ import annotations

from typing import Final

from barnabas.cluster.kraft.controller.conditions import check_epoch
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.producer_ids import ProducerIdsRecord

BLOCK_SIZE: Final = 1_000
_ID_MAX: Final = 2**63 - 1


def allocate(state: ControllerState, request: AllocateProducerIdsRequest, caller: Caller) -> Outcome:
    """Allocate a block. Raises STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR when all ids are used."""
    caller.require_on_cluster(Operation.CLUSTER_ACTION)
    check_epoch(state.image, request.broker_id, request.broker_epoch)
    first = state.image.producer_ids or 0
    if first > _ID_MAX - BLOCK_SIZE:
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Outcome(
        AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE), (record,)
    )


HANDLERS: Handlers = {67: allocate}

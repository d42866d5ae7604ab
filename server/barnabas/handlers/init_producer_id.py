"""InitProducerId v0-v5. A producer id for an idempotent producer; ids are handed out once, over restarts too.

A producer without a transactional id gets a new id with epoch 0 each time, whatever id it had before (KIP-360 matters
to transactional producers only). Transactional ids are refused: there is no transaction coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """The next producer id."""
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        raise RequestError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "there is no transaction coordinator on this broker",
        )
    producer_id = await context.broker.producer_ids.next()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

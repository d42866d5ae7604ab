"""AllocateProducerIds v0. A broker requests a block of producer ids from the controller (KIP-730), on ZooKeeper only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.wire.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import Controller
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class AllocateProducerIds:
    """Handler of AllocateProducerIds."""

    controller: Controller

    async def handle(
        self, _context: RequestContext, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Give a block. Raises NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH."""
        first, count = await self.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)

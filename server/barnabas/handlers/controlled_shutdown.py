"""ControlledShutdown v0-v3. A broker that stops asks the controller to move its leaders; in clusters on ZooKeeper.

The response has the partitions that the broker still leads though others have replicas, so that it asks again. A broker
that is not the controller answers STALE_CONTROLLER_EPOCH. v2 adds the broker epoch; v0 has a header without a client id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.wire.generated.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import Controller
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class ControlledShutdown:
    """Handler of ControlledShutdown."""

    controller: Controller

    async def handle(
        self, _context: RequestContext, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Move the leaders. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE."""
        try:
            remaining = await self.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        except RequestError as error:
            if error.code == ErrorCode.NOT_CONTROLLER:
                raise RequestError(ErrorCode.STALE_CONTROLLER_EPOCH, error.message) from error
            raise
        return ControlledShutdownResponse(
            remaining_partitions=[
                ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=index)
                for topic, index in remaining
            ]
        )

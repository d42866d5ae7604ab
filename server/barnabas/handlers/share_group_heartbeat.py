"""ShareGroupHeartbeat v0-v1. Joins, stays in or leaves a share group (KIP-932); both versions are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.share.membership import Heartbeat, check_heartbeat
from barnabas.errors import RequestError
from barnabas.handlers.shared.topic_sizes import size_of_topics
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage, TopicInfo
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget


@dataclass(eq=False)
class ShareGroupHeartbeat:
    """Handler of ShareGroupHeartbeat."""

    metadata: MetadataStore
    shares: Shares
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        """Process the heartbeat in its group, and return the member's state."""
        beat = Heartbeat(request, context.client_id or "", context.connection.client_host)
        try:
            names = request.subscribed_topic_names or ()
            await context.require_each(Operation.DESCRIBE, ResourceType.TOPIC, names, self.budget)
            check_heartbeat(request)
            size = await size_of_topics(names, _partitions, self.metadata, self.budget)
            return await self.shares.groups.heartbeat(beat, size())
        except RequestError as error:
            return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)


def _partitions(topic: TopicInfo, image: ClusterImage) -> int:  # noqa: ARG001
    """Each partition of a new topic must have a state."""
    return len(topic.partitions)

"""UpdateMetadata v0-v8. The controller's updates of brokers and partition states; in clusters on ZooKeeper.

The request names the controller, the live brokers, and the states of partitions. v0 has one address for each broker, v1 all
of them, v2 the rack, v3 the names of listeners, v4 offline replicas, v5 topics and the broker epoch, v7 topic ids; v8
belongs to the migration to KRaft. A leader of -2 means that the topic is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.control_requests import of_update_metadata
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.cluster.metadata.ports import Member
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class UpdateMetadata:
    """Handler of UpdateMetadata."""

    member: Member
    replicas: Replicas
    broker_id: int

    async def handle(
        self, _context: RequestContext, request: UpdateMetadataRequest
    ) -> UpdateMetadataResponse:
        """Apply the metadata in the request. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""

        def decide(image: ClusterImage) -> Iterable[Change]:
            self.member.check_controller(
                request.controller_id, request.controller_epoch, request.broker_epoch
            )
            learned = of_update_metadata(image, request, self.broker_id, self.member.broker_epoch)
            self.replicas.own_logs.note_deletions(learned.deleted)
            return learned.changes

        await self.member.follow(decide)
        return UpdateMetadataResponse()

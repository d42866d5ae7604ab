"""A member of a share group. Pure.

The rule: a member is immutable; the replay of its record replaces it by a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartitions


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member: its subscription, and its partitions, which other members may have too."""

    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: TopicIdPartitions = NO_PARTITIONS

    def after_heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> ShareMember:
        """Return the member with the fields of a heartbeat; null leaves a field unchanged."""
        names = request.subscribed_topic_names
        return replace(
            self,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            topics=self.topics if names is None else frozenset(names),
            client_id=client_id,
            client_host=client_host,
        )

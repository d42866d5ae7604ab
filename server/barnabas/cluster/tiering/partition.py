"""A partition with tiered storage that this broker leads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.tiered.segment import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.tiered.lineage import PartitionSegments


@dataclass(eq=False, slots=True)
class TieredPartition:
    """State of the tasks of a partition, for one leader epoch.

    Attributes:
        key: the partition, with the topic's id.
        replica: the leader's replica.
        leader_epoch: the epoch in which this broker leads.
        segments: the remote segments.
        led_since_s: monotonic time since which this broker leads it.
        is_copying: whether a task copies its segments.
        is_expiring: whether a task deletes its segments.
        is_stopped: whether copying has stopped for this leader epoch.
        is_seen: whether log start and highest remote offset are determined.
        lag_bytes: bytes of closed segments that are to be copied.
        lag_segments: number of these segments.

    """

    key: TopicIdPartition
    replica: Replica
    leader_epoch: int
    segments: PartitionSegments
    led_since_s: float
    is_copying: bool = False
    is_expiring: bool = False
    is_stopped: bool = False
    is_seen: bool = False
    lag_bytes: int = 0
    lag_segments: int = 0

    @property
    def is_led(self) -> bool:
        """True as long as this broker leads the partition in the same epoch, and its topic has tiered storage."""
        replica = self.replica
        return replica.is_leader and replica.leader_epoch == self.leader_epoch and replica.log.is_tiered

    @property
    def only_local_bytes(self) -> int:
        """Bytes of the segments that are not stored remotely."""
        log = self.replica.log
        return sum(
            segment.size for segment in log.segments if segment.base_offset > log.highest_remote_offset
        )


def raise_log_start(replica: Replica, offset: int) -> None:
    """Raise a log's start to at least `offset`: records before it are no longer stored. Raises StorageError."""
    replica.log.raise_start(offset)
    replica.subscribers.changed()


def key_of(replica: Replica) -> TopicIdPartition:
    """Return a replica's partition with the topic's id."""
    return TopicIdPartition(replica.topic, replica.index, UUID(bytes=replica.log.topic_id or bytes(16)))

"""A snapshot of the metadata log that is being fetched, piece by piece (KIP-630). Pure.

The rule: all pieces come from one leader of one epoch; with another leader the download starts over.
"""

from __future__ import annotations

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.replica_values import Identity, Leader
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotRequest


class Download:
    """A snapshot that is being fetched from one leader; `size` is -1 before its first piece."""

    def __init__(self, snapshot_id: SnapshotId, leader: Leader) -> None:
        self.id = snapshot_id
        self.source = (leader.id, leader.epoch)
        self.position = 0
        self.size = -1
        self.is_whole = False

    def request(self, identity: Identity, leader_epoch: int, bytes_max: int) -> FetchSnapshotRequest:
        """Return the request for the next piece."""
        assert not self.is_whole, "a snapshot waits to be installed"
        partition = FetchSnapshotRequest.PartitionSnapshot(
            partition=0,
            current_leader_epoch=leader_epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(*self.id),
            position=self.position,
            replica_directory_id=identity.directory_id,
        )
        topic = FetchSnapshotRequest.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[partition])
        return FetchSnapshotRequest(
            cluster_id=identity.cluster_id,
            replica_id=identity.node_id,
            max_bytes=bytes_max,
            topics=[topic],
        )

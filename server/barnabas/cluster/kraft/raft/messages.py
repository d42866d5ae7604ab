"""Requests between voters, and the common parts of their responses. Pure.

The rule: a request names the cluster, the metadata partition, and the voter to which it is addressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.raft.values import ReplicaKey
from barnabas.cluster.kraft.values import LevelRange, Voter
from barnabas.config.quorum import Address
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.wire.generated.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.generated.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.wire.generated.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.wire.generated.update_raft_voter import UpdateRaftVoterRequest
from barnabas.wire.generated.vote import VoteRequest

JOIN_TIMEOUT_MS: Final = 2_000


class LeaderNews(NamedTuple):
    """Leader according to a response: error of the partition, leader (-1 none), epoch, and its address if present."""

    error: int
    leader_id: int
    epoch: int
    address: Address | None


def only_partition(
    message: Any, name_field: str = "topic_name", partition_field: str = "partition_index"
) -> Any:
    """Return the only partition of a message, None if it is not the metadata log."""
    topics = message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic = topics[0]
    partition = topic.partitions[0]
    is_metadata = (
        getattr(topic, name_field) == CLUSTER_METADATA_TOPIC and getattr(partition, partition_field) == 0
    )
    return partition if is_metadata else None


def news_of(response: Any) -> LeaderNews | None:
    """Return the leader in a response to Vote, BeginQuorumEpoch or EndQuorumEpoch; None if it has none."""
    partition = only_partition(response)
    if response.error_code or partition is None:
        return None
    address = next(
        ((node.host, node.port) for node in response.node_endpoints if node.node_id == partition.leader_id),
        None,
    )
    return LeaderNews(partition.error_code, partition.leader_id, partition.leader_epoch, address)


class Asker(NamedTuple):
    """The sender of requests to voters."""

    cluster_id: str | None
    key: ReplicaKey
    endpoints: Sequence[tuple[str, str, int]]

    def vote(
        self, voter: Voter, epoch: int, last_epoch: int, end_offset: int, *, pre_vote: bool
    ) -> VoteRequest:
        """Return a request for a vote in an epoch, or for a pre-vote."""
        partition = VoteRequest.PartitionData(
            0, epoch, *self.key, voter.directory_id, last_epoch, end_offset, pre_vote
        )
        topic = VoteRequest.TopicData(CLUSTER_METADATA_TOPIC, [partition])
        return VoteRequest(self.cluster_id, voter.id, [topic])

    def begin(self, voter: Voter, epoch: int) -> BeginQuorumEpochRequest:
        """Return a request that announces the sender as the leader of an epoch."""
        partition = BeginQuorumEpochRequest.PartitionData(0, voter.directory_id, self.key.id, epoch)
        topic = BeginQuorumEpochRequest.TopicData(CLUSTER_METADATA_TOPIC, [partition])
        endpoints = [BeginQuorumEpochRequest.LeaderEndpoint(*endpoint) for endpoint in self.endpoints]
        return BeginQuorumEpochRequest(self.cluster_id, voter.id, [topic], endpoints)

    def end(self, epoch: int, successors: Iterable[Voter]) -> EndQuorumEpochRequest:
        """Return a request that announces the leader's resignation, and its preferred successors."""
        voters = tuple(successors)
        partition = EndQuorumEpochRequest.PartitionData(
            0,
            self.key.id,
            epoch,
            [voter.id for voter in voters],
            [EndQuorumEpochRequest.ReplicaInfo(voter.id, voter.directory_id) for voter in voters],
        )
        topic = EndQuorumEpochRequest.TopicData(CLUSTER_METADATA_TOPIC, [partition])
        endpoints = [EndQuorumEpochRequest.LeaderEndpoint(*endpoint) for endpoint in self.endpoints]
        return EndQuorumEpochRequest(self.cluster_id, [topic], endpoints)

    def join(self) -> AddRaftVoterRequest:
        """Return a request to make the sender a voter, which leaders that support only v0 accept, too."""
        listeners = [AddRaftVoterRequest.Listener(*endpoint) for endpoint in self.endpoints]
        return AddRaftVoterRequest(self.cluster_id, JOIN_TIMEOUT_MS, *self.key, listeners)

    def remove(self, voter: Voter) -> RemoveRaftVoterRequest:
        """Return a request to remove a voter."""
        return RemoveRaftVoterRequest(self.cluster_id, voter.id, voter.directory_id)

    def update(self, epoch: int, kraft_versions: LevelRange) -> UpdateRaftVoterRequest:
        """Return a request to update the sender's endpoints and levels."""
        return UpdateRaftVoterRequest(
            self.cluster_id,
            epoch,
            *self.key,
            [UpdateRaftVoterRequest.Listener(*endpoint) for endpoint in self.endpoints],
            UpdateRaftVoterRequest.KRaftVersionFeature(*kraft_versions),
        )

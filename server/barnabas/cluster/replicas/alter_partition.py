"""Proposals of in-sync replicas to the controller on another broker (AlterPartition v0-v3, KIP-497).

The rule: the outcome of a proposal may stay unknown for long; until it is known, or newer metadata arrives, the leader
counts the replicas that it would add. So a proposal is sent until it is answered, and dropped only after an answer that
it has not taken effect and never will.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.client.errors import describe
from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest
from barnabas.cluster.replication.roles import Role
from barnabas.wire.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.replicas.in_sync import Proposal
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.replication.leader import IsrChange
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

ALTER_PARTITION = 56
TOPIC_IDS_SINCE, EPOCHS_SINCE = 2, 3
CHANGES_PER_BATCH = 1_000
RETRY_SECONDS = 0.05
"""Pause after an answer without results of the proposals, as in Kafka."""
UNSUPPORTED_SECONDS = 10.0
TIMEOUT_SECONDS = 30.0

NOT_DONE = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
"""The state that the leader knows is the newest, and the proposal was refused: it is taken back."""
OUTDATED = frozenset((
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
))  # fmt: skip
"""The leader has old metadata, and hears soon of newer: until then the proposal may have been accepted."""

PartitionAnswer = AlterPartitionResponse.PartitionData


class RemoteAlterPartition:
    """Implements `ports.AlterPartition`. Lifecycle: `run` in a task. One request is under way at a time."""

    def __init__(self, broker_id: int, peers: Peers, own_epoch: Callable[[], int]) -> None:
        """`own_epoch` is the epoch of this broker's registration."""
        self._broker_id = broker_id
        self._peers = peers
        self._own_epoch = own_epoch
        self._waiting: dict[Replica, Proposal] = {}
        self._wake = trio.Event()

    def propose(self, replica: Replica, change: IsrChange) -> None:
        """Start to change the ISR of a replica."""
        self._waiting[replica] = replica, change
        self._wake.set()

    async def run(self) -> None:
        """Send proposals until cancelled, those that arrived meanwhile together."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            proposals = [proposal for proposal in self._waiting.values() if is_current(proposal)]
            self._waiting.clear()
            for at in range(0, len(proposals), CHANGES_PER_BATCH):
                unwritten = await self._carry_out(proposals[at : at + CHANGES_PER_BATCH])
                for replica, change in unwritten:
                    # A newer proposal of the same replica belongs to a newer epoch.
                    self._waiting.setdefault(replica, (replica, change))
            if self._waiting:
                self._wake.set()
                await trio.sleep(RETRY_SECONDS)

    async def _carry_out(self, proposals: list[Proposal]) -> list[Proposal]:
        """Send proposals once; returns those that must be sent again."""
        has_ids = all(replica.log.topic_id for replica, _ in proposals)
        sent_version = 0

        def make(version: int) -> AlterPartitionRequest:
            nonlocal sent_version
            sent_version = version
            return self._request(proposals, version)

        try:
            response: AlterPartitionResponse = await self._peers.ask_controller(
                VersionedRequest(ALTER_PARTITION, make),
                version_max=None if has_ids else TOPIC_IDS_SINCE - 1,
                timeout_s=TIMEOUT_SECONDS,
            )
        except PeerUnavailableError as error:
            if error.lacks_version:
                log.error(
                    "in-sync replicas cannot be changed: the controller does not know AlterPartition (Apache Kafka 2.7 "
                    "or newer does): %s", error,
                )  # fmt: skip
                await trio.sleep(UNSUPPORTED_SECONDS)
            else:
                log.warning(
                    "the controller has not decided on %d in-sync replicas: %s", len(proposals), error
                )
            return proposals
        if response.error_code:
            log.warning(
                "the controller refuses changes of in-sync replicas: %s; asking again",
                describe(response.error_code),
            )
            return proposals
        answers = _answers(response, proposals, by_id=sent_version >= TOPIC_IDS_SINCE)
        return [proposal for proposal in proposals if not self._settle(proposal, answers)]

    def _request(self, proposals: list[Proposal], version: int) -> AlterPartitionRequest:
        topics: dict[str, AlterPartitionRequest.TopicData] = {}
        for replica, change in proposals:
            if replica.topic not in topics:
                topics[replica.topic] = AlterPartitionRequest.TopicData(
                    topic_name=replica.topic, topic_id=replica.log.topic_id or bytes(16)
                )
            partition = AlterPartitionRequest.PartitionData(
                partition_index=replica.index,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            if version >= EPOCHS_SINCE:
                partition.new_isr_with_epochs = [
                    AlterPartitionRequest.BrokerState(
                        member,
                        self._own_epoch() if member == self._broker_id else replica.follower_epoch(member),
                    )
                    for member in sorted(change.isr)
                ]
            else:
                partition.new_isr = sorted(change.isr)
            topics[replica.topic].partitions.append(partition)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._own_epoch(), topics=list(topics.values())
        )

    def _settle(self, proposal: Proposal, answers: dict[TopicPartition, PartitionAnswer]) -> bool:
        """Pass the outcome of a proposal to the leader; False if it must be sent again."""
        replica, change = proposal
        if not is_current(proposal):
            return True
        answer = answers.get((replica.topic, replica.index))
        if answer is None:
            log.warning("%s-%d: the controller says nothing of its ISR", replica.topic, replica.index)
            return False
        code = answer.error_code
        if not code:
            if answer.leader_epoch == change.leader_epoch:
                replica.isr_settled(change, partition_epoch=answer.partition_epoch, isr=answer.isr)
                log.info("%s-%d: in sync are now %s", replica.topic, replica.index, answer.isr)
            return True
        log.info("%s-%d: the ISR stays as it is: %s", replica.topic, replica.index, describe(code))
        if code in NOT_DONE:
            replica.isr_settled(change, partition_epoch=None)
        return code in NOT_DONE or code in OUTDATED


def is_current(proposal: Proposal) -> bool:
    """Return whether the replica still leads in the epoch in which it made a proposal."""
    replica, change = proposal
    return replica.role is Role.LEADER and replica.leader_epoch == change.leader_epoch


def _answers(
    response: AlterPartitionResponse, proposals: list[Proposal], *, by_id: bool
) -> dict[TopicPartition, PartitionAnswer]:
    names = {replica.log.topic_id: replica.topic for replica, _ in proposals}
    answers = {}
    for topic in response.topics:
        name = names.get(topic.topic_id) if by_id else topic.topic_name
        if name is not None:
            answers.update({(name, answer.partition_index): answer for answer in topic.partitions})
    return answers

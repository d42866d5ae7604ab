"""Markers that end transactions, written by the leaders of the partitions: locally, or with WriteTxnMarkers.

The rules: only the metadata shows that a partition was deleted: a leader that does not know it may not have the newest
metadata. And late partitions, with replicas that do not follow or a leader that does not answer, wait together: their
next markers use a separate connection to the leader, until one of them is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.transactions.broker_batches import BrokerBatches
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.transactions.ports import MarkerWriter
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition

CHANNEL = "markers"
LATE_CHANNEL = "late markers"

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic


class _MarkerToWrite(NamedTuple):
    """A marker in one partition."""

    topic_partition: TopicPartition
    producer: Producer
    coordinator_epoch: int
    commit: bool
    transaction_version: int


class ClusterMarkers:
    """Implements `ports.MarkerWriter`. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self, metadata: MetadataStore, broker_id: int, *, local: MarkerWriter, peers: Peers, timeout_ms: int
    ) -> None:
        """`timeout_ms` is the timeout of requests to other brokers."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._timeout_s = timeout_ms / 1000
        self._batches = self._batches_on(CHANNEL)
        self._late_batches = self._batches_on(LATE_CHANNEL)
        self._late: set[TopicPartition] = set()

    def _batches_on(self, channel: str) -> BrokerBatches[_MarkerToWrite, int]:
        return BrokerBatches(
            partial(self._send, channel), lambda pending: (pending.producer.id, pending.topic_partition)
        )

    async def run(self) -> None:
        """Send markers, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._batches.run)
            nursery.start_soon(self._late_batches.run)

    def is_at_hand(self, topic_partition: TopicPartition) -> bool:
        """Return whether the partition has its only replica here."""
        info = self._metadata.image.partition(*topic_partition)
        return info is not None and info.replicas == (self._broker_id,)

    async def write(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in a partition; returns once the marker is committed.

        Raises RequestError with UNKNOWN_TOPIC_OR_PARTITION if the partition was deleted, or the leader's error;
        NETWORK_EXCEPTION or LEADER_NOT_AVAILABLE without an answer. StorageError.
        """
        name, index = topic_partition
        info = self._metadata.image.partition(name, index)
        if info is None:
            self._late.discard(topic_partition)
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        leader = info.leader
        if leader == self._broker_id:
            await self._local.write(topic_partition, producer, coordinator_epoch, commit, transaction_version)
            return
        if leader not in self._metadata.image.brokers:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader now")
        code = await self._ask(
            leader, _MarkerToWrite(topic_partition, producer, coordinator_epoch, commit, transaction_version)
        )
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {leader} does not know {name}-{index} yet"
            )
        if code == ErrorCode.REQUEST_TIMED_OUT:
            raise RequestError(code, f"broker {leader} has the marker, and replicas in sync do not follow it")
        if code:
            raise RequestError(code, f"broker {leader} refuses the marker")

    async def _ask(self, leader: int, marker: _MarkerToWrite) -> int:
        """Return the answer of a partition's leader. Raises RequestError with NETWORK_EXCEPTION without an answer."""
        topic_partition = marker.topic_partition
        batches = self._late_batches if topic_partition in self._late else self._batches
        try:
            code = await batches.ask(leader, marker)
        except PeerUnavailableError as error:
            self._late.add(topic_partition)
            raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        if code == ErrorCode.REQUEST_TIMED_OUT:
            self._late.add(topic_partition)
        else:
            self._late.discard(topic_partition)
        return code

    async def _send(self, channel: str, broker_id: int, pending: Sequence[_MarkerToWrite]) -> list[int]:
        """Send markers to a broker; returns the error codes. Raises PeerUnavailableError."""
        response: WriteTxnMarkersResponse = await self._peers.ask(
            broker_id,
            WriteTxnMarkersRequest(markers=_grouped(pending)),
            timeout_s=self._timeout_s,
            channel=channel,
        )
        codes = {
            (marker.producer_id, (topic.name, partition.partition_index)): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        return [
            codes.get((marker.producer.id, marker.topic_partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            for marker in pending
        ]


def _grouped(pending: Sequence[_MarkerToWrite]) -> list[Marker]:
    """Return the markers of a request, each with all of its partitions."""
    markers: dict[tuple[Producer, int, bool], Marker] = {}
    topics: dict[tuple[Producer, int, bool, str], Topic] = {}
    for (name, index), producer, epoch, commit, version in pending:
        marker = markers.get((producer, epoch, commit))
        if marker is None:
            marker = markers[producer, epoch, commit] = Marker(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                transaction_result=commit,
                coordinator_epoch=epoch,
                transaction_version=version,
            )
        topic = topics.get((producer, epoch, commit, name))
        if topic is None:
            topic = topics[producer, epoch, commit, name] = Topic(name=name)
            marker.topics.append(topic)
        topic.partition_indexes.append(index)
    return list(markers.values())

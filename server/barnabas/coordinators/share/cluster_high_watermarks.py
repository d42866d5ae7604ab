"""High watermarks of partitions, asked of their leaders, whichever brokers they are.

The rule: a leader that has moved, or cannot be reached, is asked again a few times, after it has been looked up again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.share.attempts import PAUSES
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.high_watermarks import LocalHighWatermarks
    from barnabas.wire.topic_partitions import TopicPartition

CHANNEL = "high-watermarks"
CONSUMER = -1
LATEST = -1
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
)

Watermarks = dict["TopicPartition", int | RequestError]


class ClusterHighWatermarks:
    """Implements `ports.HighWatermarks`."""

    def __init__(
        self,
        metadata: MetadataStore,
        broker_id: int,
        *,
        local: LocalHighWatermarks,
        peers: Peers,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is how long another broker may take to answer."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._timeout_s = timeout_ms / 1000

    async def of(self, topic_partitions: Iterable[TopicPartition]) -> Watermarks:
        """Return the high watermark of each partition, or why it is not known."""
        results: Watermarks = {}
        remaining = list(topic_partitions)
        for pause in PAUSES:
            await trio.sleep(pause)
            await self._ask_leaders(remaining, results)
            remaining = [partition for partition in remaining if _has_moved(results[partition])]
            if not remaining:
                break
        return results

    async def _ask_leaders(self, topic_partitions: Iterable[TopicPartition], results: Watermarks) -> None:
        """Ask the leaders that the image names now, all at once; what they answer is added to `results`."""
        image = self._metadata.image
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for topic_partition in topic_partitions:
            info = image.partition(*topic_partition)
            if info is None:
                results[topic_partition] = RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no partition {topic_partition[0]}-{topic_partition[1]}",
                )
            elif info.leader not in image.brokers:
                results[topic_partition] = RequestError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"{topic_partition[0]}-{topic_partition[1]} has no leader now",
                )
            else:
                by_leader[info.leader].append(topic_partition)
        async with trio.open_nursery() as nursery:
            for leader, of_leader in by_leader.items():
                nursery.start_soon(self._ask, leader, of_leader, results)

    async def _ask(self, leader: int, topic_partitions: list[TopicPartition], results: Watermarks) -> None:
        if leader == self._broker_id:
            results |= await self._local.of(topic_partitions)
            return
        try:
            response: ListOffsetsResponse = await self._peers.ask(
                leader, _request(topic_partitions), timeout_s=self._timeout_s, channel=CHANNEL
            )
        except PeerUnavailableError as error:
            results |= dict.fromkeys(topic_partitions, RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)))
            return
        unanswered = RequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} does not answer what was asked"
        )
        results |= dict.fromkeys(topic_partitions, unanswered)
        for topic in response.topics:
            for partition in topic.partitions:
                results[topic.name, partition.partition_index] = (
                    RequestError(
                        partition.error_code, f"broker {leader} refuses to say where {topic.name} ends"
                    )
                    if partition.error_code
                    else partition.offset
                )


def _has_moved(result: int | RequestError) -> bool:
    return isinstance(result, RequestError) and result.code in _MOVED


def _request(topic_partitions: Iterable[TopicPartition]) -> ListOffsetsRequest:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for name, index in topic_partitions:
        indexes[name].append(index)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                    for index in partitions
                ],
            )
            for name, partitions in indexes.items()
        ],
    )

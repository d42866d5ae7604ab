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

Found = dict["TopicPartition", int | RequestError]


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

    async def of(self, topic_partitions: Iterable[TopicPartition]) -> Found:
        """Return the high watermark of each partition, or why it is not known."""
        found: Found = {}
        left = list(topic_partitions)
        for pause in PAUSES:
            await trio.sleep(pause)
            await self._ask_leaders(left, found)
            left = [one for one in left if _has_moved(found[one])]
            if not left:
                break
        return found

    async def _ask_leaders(self, wanted: Iterable[TopicPartition], found: Found) -> None:
        """Ask the leaders that the image names now, all at once; what they answer is added to `found`."""
        image = self._metadata.image
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for one in wanted:
            info = image.partition(*one)
            if info is None:
                found[one] = RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {one[0]}-{one[1]}"
                )
            elif info.leader not in image.brokers:
                found[one] = RequestError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"nobody leads {one[0]}-{one[1]} now"
                )
            else:
                by_leader[info.leader].append(one)
        async with trio.open_nursery() as nursery:
            for leader, of_leader in by_leader.items():
                nursery.start_soon(self._ask, leader, of_leader, found)

    async def _ask(self, leader: int, wanted: list[TopicPartition], found: Found) -> None:
        if leader == self._broker_id:
            found |= await self._local.of(wanted)
            return
        try:
            response: ListOffsetsResponse = await self._peers.ask(
                leader, _request(wanted), timeout_s=self._timeout_s, channel=CHANNEL
            )
        except PeerUnavailableError as error:
            found |= dict.fromkeys(wanted, RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)))
            return
        unanswered = RequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} does not answer what was asked"
        )
        found |= dict.fromkeys(wanted, unanswered)
        for topic in response.topics:
            for one in topic.partitions:
                found[topic.name, one.partition_index] = (
                    RequestError(one.error_code, f"broker {leader} refuses to say where {topic.name} ends")
                    if one.error_code
                    else one.offset
                )


def _has_moved(found: int | RequestError) -> bool:
    return isinstance(found, RequestError) and found.code in _MOVED


def _request(wanted: Iterable[TopicPartition]) -> ListOffsetsRequest:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for name, index in wanted:
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

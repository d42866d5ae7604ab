"""High watermarks of partitions, requested from their leaders on any broker.

The rule: if a leader has moved, or cannot be reached, the leader is looked up and asked again a few times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.replicas.offsets_elsewhere import LATEST, offsets_elsewhere
from barnabas.coordinators.share.attempts import PAUSES
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.high_watermarks import LocalHighWatermarks
    from barnabas.wire.topic_partitions import TopicPartition

CHANNEL = "high-watermarks"
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
        """`timeout_ms` is the timeout of requests to other brokers."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._timeout_s = timeout_ms / 1000

    async def of(self, topic_partitions: Iterable[TopicPartition]) -> Watermarks:
        """Return the high watermark of each partition, or the error."""
        results: Watermarks = {}
        remaining = list(topic_partitions)
        for pause in PAUSES:
            await trio.sleep(pause)
            await self._ask_leaders(remaining, results)
            remaining = [
                partition for partition in remaining if self._is_transient(partition, results[partition])
            ]
            if not remaining:
                break
        return results

    async def _ask_leaders(self, topic_partitions: Iterable[TopicPartition], results: Watermarks) -> None:
        """Ask the leaders in the present image, all in parallel; adds their answers to `results`."""
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
        results |= await offsets_elsewhere(
            self._peers, leader, dict.fromkeys(topic_partitions, -1), LATEST, timeout_s=self._timeout_s, channel=CHANNEL
        )  # fmt: skip

    def _is_transient(self, topic_partition: TopicPartition, result: int | RequestError) -> bool:
        """Return whether a leader may answer otherwise soon: it has moved, or has not read of a new partition yet."""
        if not isinstance(result, RequestError):
            return False
        is_new = result.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result.code in _MOVED or (
            is_new and self._metadata.image.partition(*topic_partition) is not None
        )

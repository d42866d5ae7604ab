"""Requests to the brokers that lead partitions of `__remote_log_metadata`: Fetch and ListOffsets as a consumer, Produce.

The rule: values in, values out; a request goes to the leader in the image, and `metadata_log` handles the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.cluster.metadata.image import NO_TOPIC_ID
from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest
from barnabas.cluster.replicas.appends_elsewhere import append_elsewhere
from barnabas.cluster.replicas.offsets_elsewhere import offsets_elsewhere
from barnabas.errors import RequestError
from barnabas.tiered.metadata import METADATA_TOPIC
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage, TopicInfo
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore

FETCH: Final = 1
TOPIC_IDS_SINCE: Final = 13
FETCH_WAIT_MS: Final = 500
PARTITION_BYTES: Final = 1 << 20
FETCH_BYTES: Final = 8 << 20
TIMEOUT_SECONDS: Final = 30.0
READS, LOOK_UPS, WRITES = "remote-metadata", "remote-metadata-offsets", "remote-metadata-writes"


class Position(NamedTuple):
    """Position from which a partition is read: an offset, and the leader epoch of the record before it, -1 for none."""

    offset: int
    epoch: int


class MetadataLeaders:
    """Client of the leaders of the metadata topic's partitions, over the connections between brokers."""

    def __init__(self, metadata: MetadataStore, peers: Peers) -> None:
        self._metadata = metadata
        self._peers = peers

    def _topic(self) -> TopicInfo:
        topic = self._metadata.image.topics.get(METADATA_TOPIC)
        if topic is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {METADATA_TOPIC} yet"
            )
        return topic

    async def fetch(
        self, leader: int, positions: Mapping[int, Position]
    ) -> dict[int, FetchResponse.PartitionData]:
        """Fetch partitions from their leader, which waits for records for a while; returns its responses by partition.

        Raises RequestError.
        """
        topic = self._topic()

        def make(version: int) -> FetchRequest:
            partitions = [
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.epoch,
                    partition_max_bytes=PARTITION_BYTES,
                )
                for index, position in positions.items()
            ]
            named: dict[str, Any] = (
                {"topic_id": topic.id} if version >= TOPIC_IDS_SINCE else {"topic": topic.name}
            )
            return FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                session_epoch=-1,
                topics=[FetchRequest.FetchTopic(partitions=partitions, **named)],
            )

        try:
            response: FetchResponse = await self._peers.ask(
                leader,
                VersionedRequest(FETCH, make),
                version_max=TOPIC_IDS_SINCE - 1 if topic.id == NO_TOPIC_ID else None,
                timeout_s=TIMEOUT_SECONDS,
                channel=READS,
            )
        except PeerUnavailableError as error:
            raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        if response.error_code:
            raise RequestError(response.error_code, f"broker {leader} refuses to be read")
        return {data.partition_index: data for each in response.responses for data in each.partitions}

    async def offset(self, index: int, timestamp: int) -> int:
        """Return the first offset (EARLIEST) or the high watermark (LATEST) of a partition. Raises RequestError."""
        place, info = (METADATA_TOPIC, index), self._topic().partitions[index]
        offsets = await offsets_elsewhere(
            self._peers,
            self.leader_of(index),
            {place: info.leader_epoch},
            timestamp,
            timeout_s=TIMEOUT_SECONDS,
            channel=LOOK_UPS,
        )
        offset = offsets[place]
        if isinstance(offset, RequestError):
            raise offset
        return offset

    async def append(self, index: int, batch: bytearray) -> int:
        """Append a batch at the leader, with acks=all; returns its first offset. Raises RequestError."""
        return await append_elsewhere(
            self._peers,
            self.leader_of(index),
            self._topic(),
            index,
            batch,
            timeout_s=TIMEOUT_SECONDS,
            channel=WRITES,
        )

    def leader_of(self, index: int) -> int:
        """Return the broker that leads a partition. Raises LEADER_NOT_AVAILABLE."""
        leader = live_leader(self._metadata.image, index)
        if leader is None:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{METADATA_TOPIC}-{index} has no leader now")
        return leader


def live_leader(image: ClusterImage, index: int) -> int | None:
    """Return the live broker that leads a partition of the metadata topic, None without a live leader."""
    info = image.partition(METADATA_TOPIC, index)
    return info.leader if info is not None and info.leader in image.brokers else None

"""Start and end offsets of partitions that another broker leads, requested as a consumer (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.wire.topic_partitions import TopicPartition

CONSUMER: Final = -1
LATEST, EARLIEST = -1, -2


async def offsets_elsewhere(
    peers: Peers,
    leader: int,
    leader_epochs: Mapping[TopicPartition, int],
    timestamp: int,
    *,
    timeout_s: float,
    channel: str,
) -> dict[TopicPartition, int | RequestError]:
    """Ask the broker that leads partitions for an offset of each: the log start (EARLIEST) or high watermark (LATEST).

    `leader_epochs` maps the partitions to the leader epoch in which they are led, -1 for any. A partition without an
    offset has its error: NETWORK_EXCEPTION where the broker does not answer.
    """
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for (name, index), epoch in leader_epochs.items():
        topic = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name))
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=list(topics.values()))
    try:
        response: ListOffsetsResponse = await peers.ask(leader, request, timeout_s=timeout_s, channel=channel)
    except PeerUnavailableError as error:
        return dict.fromkeys(leader_epochs, RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)))
    unanswered = RequestError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} does not answer what was asked"
    )
    results: dict[TopicPartition, int | RequestError] = dict.fromkeys(leader_epochs, unanswered)
    for answered in response.topics:
        for partition in answered.partitions:
            results[answered.name, partition.partition_index] = (
                RequestError(
                    partition.error_code, f"broker {leader} refuses to say where {answered.name} ends"
                )
                if partition.error_code
                else partition.offset
            )
    return results

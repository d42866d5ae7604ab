"""Appends of this broker's own records to a partition that another broker leads (Produce)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cluster.metadata.image import NO_TOPIC_ID
from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest
from barnabas.cluster.replicas.replica import ACKS_ALL
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import TopicInfo
    from barnabas.cluster.metadata.peers import Peers

PRODUCE = 0
TOPIC_IDS_SINCE = 13
TRANSIENT: Final = (
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip
"""Errors after which a batch can be appended again, and may then be in the log twice.

A leader that has not read of a new topic yet answers UNKNOWN_TOPIC_ID, of a new partition UNKNOWN_TOPIC_OR_PARTITION.
"""


async def append_elsewhere(
    peers: Peers,
    leader: int,
    topic: TopicInfo,
    partition: int,
    batch: bytes | bytearray,
    *,
    timeout_s: float,
    channel: str,
) -> int:
    """Append a batch at the broker that leads a partition, with acks=all; returns the batch's first offset.

    Raises RequestError: NETWORK_EXCEPTION where no answer came, and the batch may be in the log all the same.
    """
    topic_id = topic.id

    def make(version: int) -> ProduceRequest:
        data = ProduceRequest.PartitionProduceData(index=partition, records=memoryview(batch))
        named: dict[str, Any] = {"topic_id": topic_id} if version >= TOPIC_IDS_SINCE else {"name": topic.name}
        return ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=int(timeout_s * 1000),
            topic_data=[ProduceRequest.TopicProduceData(partition_data=[data], **named)],
        )

    try:
        response: ProduceResponse = await peers.ask(
            leader,
            VersionedRequest(PRODUCE, make),
            version_max=TOPIC_IDS_SINCE - 1 if topic_id == NO_TOPIC_ID else None,
            timeout_s=timeout_s,
            channel=channel,
        )
    except PeerUnavailableError as error:
        raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
    answers = [answer for of_topic in response.responses for answer in of_topic.partition_responses]
    if not answers:
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {leader} does not answer the append")
    if answers[0].error_code:
        raise RequestError(
            answers[0].error_code, answers[0].error_message or f"broker {leader} refuses the append"
        )
    return answers[0].base_offset

"""Appends to dead letter queues at the leaders of their partitions: this broker, or another one (Produce)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest
from barnabas.cluster.replicas.replica import ACKS_ALL
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.step_runner import StepRunner

PRODUCE = 0
TOPIC_IDS_SINCE = 13
NEWEST_BY_NAME = 12
TIMEOUT_SECONDS = 30.0
CHANNEL = "dead-letters"


@dataclass(frozen=True, slots=True)
class LocalLetterWriter:
    """Implements `ports.LetterWriter` for partitions that this broker leads."""

    replicas: Replicas
    step_runner: StepRunner
    now_ms: Callable[[], int]

    async def append(self, topic: str, partition: int, batch: bytearray) -> None:
        """Append a batch, and wait until it is committed. Raises RequestError."""
        replica, now_ms = self.replicas.leader(topic, partition), self.now_ms()
        steps = replica.validation(
            memoryview(batch), acks=ACKS_ALL, api_version=NEWEST_BY_NAME, now_ms=now_ms
        )
        valid = await self.step_runner.run(steps)
        end_offset = replica.append(valid, acks=ACKS_ALL, now_ms=now_ms).last_offset + 1
        with trio.move_on_after(TIMEOUT_SECONDS) as timeout:
            await replica.wait_committed(end_offset)
        if timeout.cancelled_caught:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"{topic}-{partition} is not committed in time")


@dataclass(frozen=True, slots=True)
class ClusterLetterWriter:
    """Implements `ports.LetterWriter` for partitions that any broker leads."""

    metadata: MetadataStore
    broker_id: int
    local: LocalLetterWriter
    peers: Peers

    async def append(self, topic: str, partition: int, batch: bytearray) -> None:
        """Append a batch at the leader that the image names. Raises RequestError."""
        image = self.metadata.image
        info = image.partition(topic, partition)
        if info is None or info.leader not in image.brokers:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now")
        if info.leader == self.broker_id:
            await self.local.append(topic, partition, batch)
            return
        topic_id = image.topics[topic].id

        def make(version: int) -> ProduceRequest:
            by_id = version >= TOPIC_IDS_SINCE
            data = ProduceRequest.PartitionProduceData(index=partition, records=memoryview(batch))
            named: dict[str, Any] = {"topic_id": topic_id} if by_id else {"name": topic}
            return ProduceRequest(
                acks=ACKS_ALL,
                timeout_ms=int(TIMEOUT_SECONDS * 1000),
                topic_data=[ProduceRequest.TopicProduceData(partition_data=[data], **named)],
            )

        try:
            response: ProduceResponse = await self.peers.ask(
                info.leader, VersionedRequest(PRODUCE, make), timeout_s=TIMEOUT_SECONDS, channel=CHANNEL
            )
        except PeerUnavailableError as error:
            raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        answers = [answer for of_topic in response.responses for answer in of_topic.partition_responses]
        if not answers:
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {info.leader} does not answer the append"
            )
        if answers[0].error_code:
            raise RequestError(
                answers[0].error_code, answers[0].error_message or f"broker {info.leader} refuses it"
            )

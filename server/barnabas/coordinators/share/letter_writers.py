"""Appends to dead letter queues at the leaders of their partitions: this broker, or another one (Produce)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.replicas.appends_elsewhere import append_elsewhere
from barnabas.cluster.replicas.replica import ACKS_ALL
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.serving.step_runner import StepRunner

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
        """Append a batch at the leader in the image. Raises RequestError."""
        image = self.metadata.image
        info = image.partition(topic, partition)
        if info is None or info.leader not in image.brokers:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now")
        if info.leader == self.broker_id:
            await self.local.append(topic, partition, batch)
            return
        await append_elsewhere(
            self.peers, info.leader, image.topics[topic], partition, batch,
            timeout_s=TIMEOUT_SECONDS, channel=CHANNEL,
        )  # fmt: skip

"""Ports of share groups: the state of share partitions, and high watermarks.

The rule: share groups ask through these. Their local implementations answer from this broker; in a cluster, others send the
same calls to the share coordinator, or to the leaders of the partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinators.share.records import ShareState, StateKey
    from barnabas.coordinators.share.state import StateWrite
    from barnabas.errors import RequestError
    from barnabas.wire.topic_partitions import TopicPartition


class ShareStatePort(Protocol):
    """Keeps the state of share partitions; raises the RequestErrors of `coordinators.share.state.ShareStateShard`."""

    async def initialize(self, key: StateKey, state_epoch: int, start_offset: int) -> None:
        """Initialize a state."""

    async def read_state(self, key: StateKey, leader_epoch: int) -> ShareState:
        """Return the state, for a new leader of the partition."""

    async def write_state(self, key: StateKey, write: StateWrite) -> None:
        """Write the states of records."""

    async def summary(self, key: StateKey) -> ShareState | None:
        """Return the state, None if it does not exist."""

    async def delete(self, key: StateKey) -> None:
        """Delete a state."""


class LetterWriter(Protocol):
    """Appends to partitions of dead letter queues, on any broker."""

    async def append(self, topic: str, partition: int, batch: bytearray) -> None:
        """Append a batch of records as with acks=all. Raises the RequestErrors of Produce, NETWORK_EXCEPTION."""


class HighWatermarks(Protocol):
    """High watermarks of partitions, on any broker."""

    async def of(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | RequestError]:
        """Return the high watermark of each partition, or the error."""

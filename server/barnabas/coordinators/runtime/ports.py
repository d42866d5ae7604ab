"""Ports of the coordinators: what they ask of a broker that leads a partition, here or elsewhere.

The rule: whoever needs a coordinator, a marker or the state of a share partition asks through these. Their local
implementations answer from this broker; in a cluster, others send the same calls to the leader.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinators.share.records import ShareState, StateKey
    from barnabas.coordinators.share.state import StateWrite
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.errors import RequestError
    from barnabas.wire.topic_partitions import TopicPartition


class CoordinatorType(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class CoordinatorLocator(Protocol):
    """Finds the broker that coordinates an id."""

    async def locate(self, kind: CoordinatorType, key: str) -> int:
        """Return the id of the broker that coordinates `key`; makes the internal topic if need be.

        Raises COORDINATOR_NOT_AVAILABLE; INVALID_REQUEST for a share key of another form than group:topic id:partition.
        """


class MarkerWriter(Protocol):
    """Ends transactions in partitions."""

    def is_at_hand(self, topic_partition: TopicPartition) -> bool:
        """Say whether a marker is committed as soon as it is written: here, without replicas on other brokers."""

    async def write(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in a partition; returns once the marker is committed.

        From `transaction_version` 2 on the next transaction of the producer is not ended by a marker that comes late.

        Raises RequestError with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION or what
        else the partition's leader answers; StorageError.
        """


class TransactionVerifier(Protocol):
    """Says whether partitions are in a transaction (KIP-890)."""

    async def verify(
        self,
        transactional_id: str,
        producer: Producer,
        topic_partitions: frozenset[TopicPartition],
        *,
        implicit: bool,
    ) -> dict[TopicPartition, int]:
        """Return the error codes of the partitions that are not in the producer's open transaction; `implicit` adds them.

        TRANSACTION_ABORTABLE where one is missing. Raises RequestError for all of them: as the transaction coordinator
        does, or NETWORK_EXCEPTION if it cannot be asked.
        """


class ProducerIds(Protocol):
    """Hands out producer ids."""

    async def next(self) -> int:
        """Return a producer id that nobody has had.

        Raises StorageError, or COORDINATOR_LOAD_IN_PROGRESS if the controller gives none now.
        """


class HighWatermarks(Protocol):
    """Says how far partitions are committed, whoever leads them."""

    async def of(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | RequestError]:
        """Return the high watermark of each partition, or why it is not known."""


class ShareStatePort(Protocol):
    """Keeps the state of share partitions; raises the RequestErrors of `share.state.ShareStateShard`."""

    async def initialize(self, key: StateKey, state_epoch: int, start_offset: int) -> None:
        """Begin a state."""

    async def read_state(self, key: StateKey, leader_epoch: int) -> ShareState:
        """Return the state, for a new leader of the partition."""

    async def write_state(self, key: StateKey, write: StateWrite) -> None:
        """Write what has become of records."""

    async def summary(self, key: StateKey) -> ShareState | None:
        """Return the state, None if there is none."""

    async def delete(self, key: StateKey) -> None:
        """End a state."""

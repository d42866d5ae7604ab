"""Ports of a broker to the cluster's controller, which may be the broker itself.

The rule: handlers use only this port; the assembly of the broker decides whether the broker is a cluster by itself, one of
several, or the controller of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.cluster.metadata.store import Decide
from barnabas.errors import RequestError
from barnabas.wire.topic_partitions import TopicPartition


class ElectionType(IntEnum):
    """Elections that ElectLeaders may ask for (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


Results = dict[TopicPartition, RequestError | None]
"""Outcome for each partition: an error; None if the request was carried out, or has begun to be."""


class Reassignment(NamedTuple):
    """A reassignment in progress: all replicas, the added ones, and the removed ones (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ProposedState:
    """Proposal of a leader for a partition (KIP-497).

    `topic` is None if only the id is known, `topic_id` if only the name is. `isr` has broker ids with their epochs, -1
    if unknown (KIP-903).
    """

    __slots__ = ("index", "isr", "leader_epoch", "partition_epoch", "recovering", "topic", "topic_id")

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes | None,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[tuple[int, int], ...],
        recovering: bool = False,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.recovering = recovering


class AcceptedState(NamedTuple):
    """The state of a partition after a proposal that was accepted."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    recovering: bool = False


class ConsumerOffsets(Protocol):
    """Offsets of OffsetCommit v0 and OffsetFetch v0: outside of the group coordinator, in ZooKeeper."""

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RequestError]:
        """Keep offsets of a group; returns why not, by partition. Raises RequestError."""

    async def fetch(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of a group that are kept. Raises RequestError."""


class FeatureLevels(Protocol):
    """The finalized levels of the cluster's features (KIP-584); the image has them."""

    async def supported(self) -> Mapping[int, Mapping[str, tuple[int, int]]]:
        """Return the lowest and the highest level of each feature that a broker supports, by broker.

        Raises RequestError.
        """

    async def finalize(self, levels: Mapping[str, int]) -> None:
        """Finalize features at these levels, 0 for no longer; returns when this broker knows. Raises RequestError."""


class Member(Protocol):
    """Duties of a broker of a cluster towards the controller that sends it requests."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 before the first (KIP-380)."""

    def check_controller(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> None:
        """Check that a request is from the newest known controller, and for this registration.

        `broker_epoch` is -1 if the request has none. Raises STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
        """

    async def follow(self, decide: Decide) -> ClusterImage:
        """Apply the changes that `decide` returns for the newest image, and return when all subscribers have followed.

        Nothing is written to ZooKeeper. Raises the errors of `decide`.
        """

    async def restore_topic_ids(self, topic_ids: Mapping[str, bytes]) -> None:
        """Write these ids into ZooKeeper, for the topics that lack an id there."""


class Controller(Protocol):
    """The controller of the cluster, if it is here. Every method but the properties raises NOT_CONTROLLER if it is not."""

    @property
    def is_active(self) -> bool:
        """True if this broker is the controller now."""

    @property
    def epoch(self) -> int:
        """The epoch of the controller that is here, 0 if it is not."""

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None, timeout_ms: int
    ) -> Results:
        """Elect leaders for these partitions, for all if None, and wait until this broker's metadata has them.

        The errors: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (being deleted), REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.
        """

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool
    ) -> Results:
        """Begin to give each partition to these replicas, or cancel the reassignment in progress (None).

        `keeps_factor` refuses another number of replicas (KIP-860). The errors: UNKNOWN_TOPIC_OR_PARTITION,
        NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
        """

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress, of these partitions or of all."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[ProposedState]
    ) -> list[AcceptedState | RequestError]:
        """Decide on a leader's proposals, one answer for each.

        Raises STALE_BROKER_EPOCH. The errors: NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
        FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA.
        """

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """Return the first and the number of producer ids that no other broker gets.

        Raises BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaders away from a broker that shuts down; return the partitions that it still leads though others have
        replicas. `broker_epoch` is -1 if the broker does not know it. Raises STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
        """

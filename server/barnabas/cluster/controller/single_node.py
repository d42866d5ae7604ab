"""The controller of a broker that is a cluster by itself.

The rule: with one replica of each partition there is no other replica to elect, or to reassign a partition to. A
partition has its leader unless its log is offline; an unclean election discards records only in a log dir that is
permanently lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.cluster.metadata.ports import AcceptedState, ElectionType, ProposedState, Reassignment, Results
from barnabas.cluster.metadata.topic_decisions import check_reassignment
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition


class LocalReplicas(Protocol):
    """The replicas of this broker, as an election needs them."""

    def leader(self, topic: str, index: int) -> object:
        """Return the leader of a partition. Raises RequestError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR."""


class LostLogs(Protocol):
    """Logs that this broker had in log dirs that are lost."""

    async def begin_again(self, topic: str, index: int) -> bool:
        """Begin a partition with an empty log; False if that is impossible."""


class EmbeddedController:
    """Implements `cluster.metadata.ports.Controller`."""

    def __init__(
        self, metadata: MetadataStore, replicas: LocalReplicas, lost_dirs: LostLogs, budget: LoopBudget
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._lost_dirs = lost_dirs
        self._budget = budget

    @property
    def is_active(self) -> bool:
        """Always."""
        return True

    @property
    def epoch(self) -> int:
        """The epoch that the image has."""
        return self._metadata.image.controller_epoch

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None, timeout_ms: int
    ) -> Results:
        """See Controller; there is nothing to wait for."""
        del timeout_ms
        if partitions is None:
            topics = self._metadata.image.topics.items()
            partitions = ((name, index) for name, info in topics for index in range(len(info.partitions)))
        results: Results = {}
        for topic_partition in partitions:
            results[topic_partition] = await self._elect(election_type, *topic_partition)
            await self._budget.checkpoint()
        return results

    async def _elect(self, election_type: ElectionType, topic: str, index: int) -> RequestError | None:
        try:
            self._replicas.leader(topic, index)
        except RequestError as error:
            if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                return detached(error)
            if election_type is ElectionType.PREFERRED:
                return RequestError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, error.message)
            if await self._lost_dirs.begin_again(topic, index):
                return None
            return RequestError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, error.message)
        return _NOT_NEEDED

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool
    ) -> Results:
        """See Controller; replicas that are as they should be need no move, others are refused."""
        image, results = self._metadata.image, Results()
        for (topic, index), replicas in targets.items():
            results[topic, index] = None
            try:
                check_reassignment(image, topic, index, replicas, keeps_factor=keeps_factor)
            except RequestError as error:
                results[topic, index] = detached(error)
            await self._budget.checkpoint()
        return results

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Reassignment]:
        """None: no partition is being reassigned."""
        del partitions
        return {}

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[ProposedState]
    ) -> list[AcceptedState | RequestError]:
        """Refused: there is no other broker."""
        raise _alone(broker_id, broker_epoch, proposals)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """Refused: there is no other broker."""
        raise _alone(broker_id, broker_epoch)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Refused: there is no other broker."""
        raise _alone(broker_id, broker_epoch)


_NOT_NEEDED = RequestError(ErrorCode.ELECTION_NOT_NEEDED, "the partition has the leader that it should have")


def _alone(*_: object) -> RequestError:
    return RequestError(ErrorCode.UNSUPPORTED_VERSION, "this broker is a cluster by itself")

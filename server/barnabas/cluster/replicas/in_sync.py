"""The in-sync replicas of partitions that this broker leads: proposals of changes, and local decisions on them.

The rule: a leader only proposes; the ISR is that in the metadata (KIP-497). A proposal that is refused, or fails, is
repeated if its reason still holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.image import Change, ClusterImage, PartitionInfo
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.replication.leader import IsrChange
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

CHANGES_PER_BATCH = 500
INTERVAL_MS_MIN = 10
SHRINKS_PER_LAG = 10
SHRINKS_PER_FULL_ROUND = 5
REPLICAS_PER_TURN = 100
RETRY_SECONDS = 1.0

Proposal = tuple["Replica", "IsrChange"]


class LocalAlterPartition:
    """Decides on changes of the ISR where the metadata store is this broker's own. Lifecycle: `run` in a task.

    Implements `ports.AlterPartition`. Each replica has at most one proposal under way.
    """

    def __init__(self, broker_id: int, metadata: MetadataStore) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._waiting: list[Proposal] = []
        self._wake = trio.Event()

    def propose(self, replica: Replica, change: IsrChange) -> None:
        """Start to change the ISR of a replica."""
        self._waiting.append((replica, change))
        self._wake.set()

    async def run(self) -> None:
        """Decide on proposals until cancelled; simultaneous ones together."""
        while True:
            await self._wake.wait()
            proposals, self._waiting = self._waiting[:CHANGES_PER_BATCH], self._waiting[CHANGES_PER_BATCH:]
            if not self._waiting:
                self._wake = trio.Event()
            await self._carry_out(proposals)

    async def _carry_out(self, proposals: list[Proposal]) -> None:
        accepted: dict[int, int] = {}

        def decide(image: ClusterImage) -> list[Change]:
            accepted.clear()
            changes: list[Change] = []
            for number, (replica, change) in enumerate(proposals):
                try:
                    info = changed_isr(image, self._broker_id, replica, change)
                except RequestError as error:
                    log.info("%s-%d: the ISR stays as it is: %s", replica.topic, replica.index, error)
                else:
                    accepted[number] = info.partition_epoch
                    changes.append(PartitionChanged(replica.topic, replica.index, info))
            return changes

        try:
            await self._metadata.change(decide)
        except StorageError as error:
            log.error("%d changes of in-sync replicas could not be kept: %s", len(proposals), error)
            accepted.clear()
            await trio.sleep(RETRY_SECONDS)
        for number, (replica, change) in enumerate(proposals):
            replica.isr_settled(change, partition_epoch=accepted.get(number))


def changed_isr(image: ClusterImage, broker_id: int, replica: Replica, change: IsrChange) -> PartitionInfo:
    """Return a partition's state with the proposed ISR.

    Raises RequestError with Kafka's codes for AlterPartition: UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
    FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA.
    """
    topic = image.topics.get(replica.topic)
    if topic is None or topic.id != replica.log.topic_id or replica.index >= len(topic.partitions):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic any more")
    info = topic.partitions[replica.index]
    if change.leader_epoch != info.leader_epoch:
        raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {info.leader_epoch}")
    if info.leader != broker_id:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {info.leader} leads")
    if change.partition_epoch != info.partition_epoch:
        raise RequestError(ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {info.partition_epoch}")
    if broker_id not in change.isr or not change.isr <= frozenset(info.replicas):
        raise RequestError(ErrorCode.INVALID_REQUEST, "the ISR has the leader, and only replicas")
    if any(replica not in image.brokers for replica in change.isr - frozenset(info.isr)):
        raise RequestError(ErrorCode.INELIGIBLE_REPLICA, "only a broker that lives may join")
    isr = tuple(replica for replica in info.replicas if replica in change.isr)
    log.info("%s-%d: in sync are now %s, were %s", replica.topic, replica.index, list(isr), list(info.isr))
    return info._replace(isr=isr, partition_epoch=info.partition_epoch + 1)


async def shrink_periodically(replicas: Replicas, budget: LoopBudget, lag_max_ms: Callable[[], int]) -> None:
    """Propose that lagging followers leave the ISR, until cancelled.

    Every half of `replica.lag.time.max.ms` for all partitions, as in Kafka, and every tenth for those in which records wait
    for followers: these wait for a tenth more than the allowed lag, rather than half as much again.
    """
    for turn in count(1):
        await trio.sleep(max(lag_max_ms() // SHRINKS_PER_LAG, INTERVAL_MS_MIN) / 1000)
        is_for_all = turn % SHRINKS_PER_FULL_ROUND == 0
        for number, replica in enumerate(replicas.replicated(), 1):
            if is_for_all or replica.log.high_watermark < replica.log.log_end_offset:
                replica.shrink_isr()
            if number % REPLICAS_PER_TURN == 0:
                await budget.checkpoint()

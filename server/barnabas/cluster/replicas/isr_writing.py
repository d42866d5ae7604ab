"""In-sync replicas that their leader writes into ZooKeeper itself, as brokers did before AlterPartition (Apache Kafka 2.7).

The rule: a state is written on the condition that its znode has the version that the leader knows, and belongs to the
leader's own epoch; so a leader that was replaced writes nothing. The controller is informed afterwards, by a notification.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.replicas.alter_partition import is_current
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import until_answered
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    ConnectionLostError,
    NoNodeError,
    SessionExpiredError,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)

if TYPE_CHECKING:
    from barnabas.cluster.replicas.in_sync import Proposal
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.replication.leader import IsrChange
    from barnabas.cluster.zookeeper.znodes import PartitionState
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

CHANGES_PER_BATCH = 500
RETRY_SECONDS = 1.0
NOTIFICATION_INTERVAL_SECONDS = 2.5
QUIET_SECONDS = 5.0
DELAY_SECONDS_MAX = 60.0
"""The controller is notified when nothing has changed for a while, or after this time; all three are Apache Kafka's."""


class WrittenIsrs:
    """Implements `ports.AlterPartition` for `inter.broker.protocol.version` below 2.7. Lifecycle: `run` in a task."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper, budget: LoopBudget) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._budget = budget
        self._waiting: dict[Replica, Proposal] = {}
        self._wake = trio.Event()
        self._changed: dict[TopicPartition, None] = {}
        """Partitions with a changed ISR that the controller has not been notified of."""
        self._last_change = self._last_notification = trio.current_time()

    def propose(self, replica: Replica, change: IsrChange) -> None:
        """Start to change the ISR of a replica."""
        self._waiting[replica] = replica, change
        self._wake.set()

    async def run(self) -> None:
        """Write proposals until cancelled, and notify the controller."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notify_periodically)
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                proposals = [proposal for proposal in self._waiting.values() if is_current(proposal)]
                self._waiting.clear()
                for at in range(0, len(proposals), CHANGES_PER_BATCH):
                    await self._carry_out(proposals[at : at + CHANGES_PER_BATCH])

    async def _carry_out(self, proposals: list[Proposal]) -> None:
        """Write the states of these partitions; after a write with an unknown outcome the state is read again first."""
        paths = [znodes.state_path(replica.topic, replica.index) for replica, _ in proposals]
        try:
            nodes = await until_answered(self._zookeeper, lambda: self._zookeeper.get_many(paths))
            for proposal, path, znode in zip(proposals, paths, nodes, strict=True):
                if znode is not None and is_current(proposal):
                    await self._write(proposal, path, *znode)
                await self._budget.checkpoint()
        except ZooKeeperError as error:
            if self._zookeeper.is_closed:
                return
            log.warning(
                "in-sync replicas cannot be written, trying again: %s: %s", type(error).__name__, error
            )
            await trio.sleep(RETRY_SECONDS)
            for proposal in proposals:  # states that are written already change nothing
                self._waiting.setdefault(proposal[0], proposal)
            self._wake.set()

    async def _write(self, proposal: Proposal, path: str, data: bytes, stat: Stat) -> None:
        """Write one state, and retry until the outcome is known. Raises ZooKeeperError."""
        replica, change = proposal
        while True:
            try:
                state = znodes.decode_state(replica.topic, replica.index, data)
            except ZnodeError as error:
                log.error("the ISR of %s-%d cannot be changed: %s", replica.topic, replica.index, error)
                return
            if (state.leader, state.leader_epoch) != (self._broker_id, change.leader_epoch):
                return  # newer metadata will arrive; until then the proposal may have been accepted
            if stat.version != change.partition_epoch:
                # Within an epoch only the leader writes: this is an earlier write of ours; its answer was lost.
                self._written(proposal, state, stat.version)
                return
            proposed = replace(state, isr=_ordered(state.isr, change.isr))
            try:
                written = await self._zookeeper.set(path, znodes.encode_state(proposed), stat.version)
            except NoNodeError:
                return
            except (BadVersionError, ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    raise
                (node,) = await until_answered(self._zookeeper, lambda: self._zookeeper.get_many([path]))
                if node is None:
                    return
                data, stat = node
            else:
                self._written(proposal, proposed, written.version)
                return

    def _written(self, proposal: Proposal, state: PartitionState, version: int) -> None:
        """Pass the present content of its znode to the leader."""
        replica, change = proposal
        if not is_current(proposal):
            return
        replica.isr_settled(change, partition_epoch=version, isr=state.isr)
        log.info("%s-%d: in sync are now %s", replica.topic, replica.index, list(state.isr))
        self._changed[replica.topic, replica.index] = None
        self._last_change = trio.current_time()

    async def _notify_periodically(self) -> None:
        while True:
            await trio.sleep(NOTIFICATION_INTERVAL_SECONDS)
            now = trio.current_time()
            is_due = (
                now - self._last_change > QUIET_SECONDS or now - self._last_notification > DELAY_SECONDS_MAX
            )
            if not self._changed or not is_due:
                continue
            changed, self._changed = self._changed, {}
            try:
                await self._zookeeper.create(
                    f"{znodes.ISR_CHANGES}/{znodes.ISR_CHANGE_PREFIX}",
                    znodes.encode_isr_change(changed),
                    sequence=True,
                )
                self._last_notification = now
            except ZooKeeperError as error:
                if self._zookeeper.is_closed:
                    return
                log.warning("the controller is not notified yet of changed in-sync replicas: %s", error)
                self._changed = changed | self._changed


def _ordered(isr_before: Iterable[int], isr: frozenset[int]) -> tuple[int, ...]:
    """Return the ISR: remaining replicas in their former order, then the new ones."""
    stay = [replica for replica in isr_before if replica in isr]
    return (*stay, *sorted(isr.difference(stay)))

"""Reads and writes of ZooKeeper by one controller, in one epoch.

The rule: every write is a transaction that begins with a check of the controller epoch's znode, so that an outdated
controller changes nothing. A request without an answer is repeated in the same session; if it had taken effect, the
repetition fails with a conflict. A lost session ends the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import trio

from barnabas.cluster.controller.state import Assignment, Broker, PartitionState
from barnabas.cluster.controller.steps import Written
from barnabas.cluster.controller.znode_values import broker_of, encoded_state, state_of
from barnabas.cluster.metadata.protocol_version import V2_7_IV0, V3_3_IV0, ProtocolVersion
from barnabas.cluster.zookeeper import resource_znodes, znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    Watch,
    ZooKeeper,
    ZooKeeperError,
)

if TYPE_CHECKING:
    from barnabas.cluster.controller.topics import TopicFound
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

STATES_PER_WRITE = 100
"""States written by one transaction."""
READS_PER_BATCH = 1_000
WRITES_CONCURRENT = 4
WATCHED_READS_CONCURRENT = 200


class ControllerMovedError(Exception):
    """There is a newer controller, or the session is over: nothing more can be written."""


class ControllerZnodes:
    """The znodes, for the controller of one epoch. Methods raise ControllerMovedError, ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper, budget: LoopBudget, epoch_version: int) -> None:
        """`epoch_version` is the version of the znode of the epoch since this controller was elected."""
        self._zookeeper = zookeeper
        self._budget = budget
        self._session_id = zookeeper.session_id
        self.epoch_version = epoch_version

    # --- asking ---------------------------------------------------------------------------------------------

    async def ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """Make a request until it is answered, in this session."""
        while True:
            if self._zookeeper.session_id != self._session_id:
                raise ControllerMovedError("the session is over")
            try:
                return await request()
            except SessionExpiredError as error:
                raise ControllerMovedError("the session is over") from error
            except ConnectionLostError:
                await self._zookeeper.wait_connected()

    async def write(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Carry out all operations if this controller is the newest. Raises as ZooKeeper.multi, with their indexes."""
        check = Check(znodes.CONTROLLER_EPOCH, self.epoch_version)
        try:
            stats = await self.ask(lambda: self._zookeeper.multi([check, *operations]))
        except ZooKeeperError as error:
            index = getattr(error, "operation_index", 0)
            if index == 0 and isinstance(error, BadVersionError | NoNodeError):
                raise ControllerMovedError("another controller has been elected") from error
            error.operation_index = index - 1  # type: ignore[attr-defined]
            raise
        return stats[len(stats) - len(operations) :]

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes, None for missing ones."""
        nodes: list[tuple[bytes, Stat] | None] = []
        for start in range(0, len(paths), READS_PER_BATCH):
            part = paths[start : start + READS_PER_BATCH]
            nodes += await self.ask(lambda part=part: self._zookeeper.get_many(part))  # type: ignore[misc]
            await self._budget.checkpoint()
        return nodes

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return a znode's children, none if it is not there."""
        try:
            return await self.ask(lambda: self._zookeeper.children(path, watch))
        except NoNodeError:
            await self.ask(lambda: self._zookeeper.exists(path, watch))
            return []

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Read a znode; None if it is not there, then the watch waits for it."""
        while True:
            try:
                return await self.ask(lambda: self._zookeeper.get(path, watch))
            except NoNodeError:
                if await self.ask(lambda: self._zookeeper.exists(path, watch)) is None:
                    return None

    async def get_watched(
        self, paths: Sequence[str], watch: Callable[[str], Watch]
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes, and watch each existing one."""
        nodes: list[tuple[bytes, Stat] | None] = [None] * len(paths)

        async def read(number: int) -> None:
            path = paths[number]
            try:
                nodes[number] = await self.ask(lambda: self._zookeeper.get(path, watch(path)))
            except NoNodeError:
                nodes[number] = None

        await self._in_parallel(read, range(len(paths)), WATCHED_READS_CONCURRENT)
        return nodes

    async def _in_parallel(
        self, do: Callable[[T], Awaitable[None]], items: Sequence[T], at_once: int
    ) -> None:
        """Apply a function to all items, some in parallel; raises the first error unchanged."""
        waiting = iter(items)
        errors: list[Exception] = []

        async def work() -> None:
            for item in waiting:
                try:
                    await do(item)
                except (ControllerMovedError, ZooKeeperError) as error:
                    errors.append(error)
                    nursery.cancel_scope.cancel()
                    return
                await self._budget.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(min(at_once, len(items))):
                nursery.start_soon(work)
        if errors:
            raise errors[0]

    # --- brokers and topics ---------------------------------------------------------------------------------

    async def brokers(self, watch: Watch) -> dict[int, Broker]:
        """Read the registered brokers; the watch is called when a broker is registered, removed or changed."""
        names = [name for name in await self.children(znodes.BROKER_IDS, watch) if name.isdecimal()]
        nodes = await self.get_watched([znodes.broker_path(int(name)) for name in names], lambda _: watch)
        brokers = {}
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                try:
                    brokers[int(name)] = broker_of(int(name), *node)
                except ZnodeError as error:
                    log.error("broker %s is left out, its registration cannot be read: %s", name, error)
        return brokers

    async def topics(self, names: Sequence[str], watch: Callable[[str], Watch]) -> dict[str, TopicFound]:
        """Read topics; `watch` gives the watch for a path."""
        nodes = await self.get_watched([znodes.topic_path(name) for name in names], watch)
        topics = {}
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                continue
            try:
                topic = znodes.decode_topic(name, node[0])
            except ZnodeError as error:
                log.error("topic %s is left out, its znode cannot be read: %s", name, error)
                continue
            topics[name] = (
                topic.topic_id,
                {
                    index: Assignment(replicas.replicas, replicas.adding, replicas.removing)
                    for index, replicas in topic.partitions.items()
                    if replicas.replicas
                },
            )
            await self._budget.checkpoint()
        return topics

    async def write_topic(
        self, topic: str, topic_id: bytes | None, assignments: Mapping[int, Assignment]
    ) -> bool:
        """Write a topic's replicas, and its id, None for the present one; returns False if the topic no longer exists."""
        parts = {
            index: znodes.ReplicaAssignment(assignment.replicas, assignment.adding, assignment.removing)
            for index, assignment in sorted(assignments.items())
        }
        written = await self._rewrite_topic(
            topic, lambda current: znodes.TopicAssignment(parts, topic_id or current.topic_id)
        )
        return written is not None

    async def give_topic_id(self, topic: str, topic_id: bytes) -> bytes | None:
        """Write a topic's id if it has none; return the resulting id, None if the topic does not exist."""
        written = await self._rewrite_topic(
            topic,
            lambda current: replace(current, topic_id=topic_id) if current.topic_id is None else current,
        )
        return written.topic_id if written is not None else None

    async def _rewrite_topic(
        self, topic: str, change: Callable[[znodes.TopicAssignment], znodes.TopicAssignment]
    ) -> znodes.TopicAssignment | None:
        """Change a topic's znode, which others may change at the same time; None if there is no such topic."""
        path = znodes.topic_path(topic)
        while True:
            node = await self.get(path)
            if node is None:
                return None
            current = znodes.decode_topic(topic, node[0])
            changed = change(current)
            if changed == current:
                return current
            try:
                await self.write([SetData(path, znodes.encode_topic(changed), node[1].version)])
            except BadVersionError:
                continue
            except NoNodeError:
                return None
            return changed

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic: its partitions first, then at once its znode, its settings and its deletion request."""
        indexes = await self.children(znodes.partitions_path(topic))
        for start in range(0, len(indexes), STATES_PER_WRITE):
            paths = []
            for index in indexes[start : start + STATES_PER_WRITE]:
                parent = f"{znodes.partitions_path(topic)}/{index}"
                paths += [f"{parent}/state", parent]
            await self._delete_present(paths)
        await self._delete_present(
            [
                znodes.partitions_path(topic),
                znodes.topic_path(topic),
                resource_znodes.config_path(resource_znodes.TOPICS, topic),
                znodes.delete_topic_path(topic),
            ]
        )

    async def _delete_present(self, paths: Sequence[str]) -> None:
        """Remove those of these znodes that exist, in one transaction."""
        while True:
            nodes = await self.get_many(paths)
            there = [path for path, node in zip(paths, nodes, strict=True) if node is not None]
            if not there:
                return
            try:
                await self.write([Delete(path) for path in there])
            except NoNodeError:
                continue  # another writer was quicker, or it was this request, and its answer was lost
            except NotEmptyError as error:
                await self._delete_below(there[error.operation_index])  # type: ignore[attr-defined]
                continue
            return

    async def _delete_below(self, path: str) -> None:
        for name in await self.children(path):
            child = f"{path}/{name}"
            await self._delete_below(child)
            await self._delete_present([child])

    async def remove_deletions(self, topics: Collection[str]) -> None:
        """Remove requests to delete topics, below /admin/delete_topics."""
        await self._delete_present([znodes.delete_topic_path(topic) for topic in topics])

    async def topic_settings(self, topics: Sequence[str]) -> list[dict[str, str]]:
        """Read the settings of topics."""
        paths = [resource_znodes.config_path(resource_znodes.TOPICS, topic) for topic in topics]
        settings = []
        for path, node in zip(paths, await self.get_many(paths), strict=True):
            try:
                settings.append(resource_znodes.decode_config(path, node[0]) if node is not None else {})
            except ZnodeError as error:
                log.error("the settings of a topic cannot be read: %s", error)
                settings.append({})
        return settings

    # --- states ---------------------------------------------------------------------------------------------

    async def states(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Read the states of partitions, those that exist."""
        asked = list(partitions)
        states = {}
        for start in range(0, len(asked), READS_PER_BATCH):
            part = asked[start : start + READS_PER_BATCH]
            nodes = await self.get_many([znodes.state_path(*partition) for partition in part])
            for partition, node in zip(part, nodes, strict=True):
                if node is None:
                    continue
                try:
                    states[partition] = state_of(partition, *node)
                except ZnodeError as error:
                    log.error("a partition is left out, its state cannot be read: %s", error)
                await self._budget.checkpoint()
        return states

    async def watch_state(self, partition: TopicPartition, watch: Watch) -> None:
        """Call the watch when the state of a partition changes."""
        await self.ask(lambda: self._zookeeper.exists(znodes.state_path(*partition), watch))

    async def write_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        """Write states, each if its znode has the state's version still."""
        return await self._in_parts(states, self._write_part)

    async def create_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        """Make the znodes of states, with their parents."""
        parents = [znodes.partitions_path(topic) for topic in dict.fromkeys(topic for topic, _ in states)]
        for start in range(0, len(parents), STATES_PER_WRITE):
            await self._create_missing(parents[start : start + STATES_PER_WRITE])
        return await self._in_parts(states, self._create_part)

    async def _in_parts(
        self,
        states: Mapping[TopicPartition, PartitionState],
        write: Callable[[dict[TopicPartition, PartitionState], Written], Awaitable[None]],
    ) -> Written:
        written, items = Written(), list(states.items())
        parts = [
            dict(items[start : start + STATES_PER_WRITE]) for start in range(0, len(items), STATES_PER_WRITE)
        ]
        await self._in_parallel(lambda part: write(part, written), parts, WRITES_CONCURRENT)
        return written

    async def _write_part(self, states: dict[TopicPartition, PartitionState], written: Written) -> None:
        """Write some states in one transaction, without those that have changed or were removed."""
        while states:
            try:
                stats = await self.write(
                    [
                        SetData(znodes.state_path(*partition), encoded_state(state), state.version)
                        for partition, state in states.items()
                    ]
                )
            except (BadVersionError, NoNodeError):
                nodes = await self.get_many([znodes.state_path(*partition) for partition in states])
                for (partition, state), node in zip(list(states.items()), nodes, strict=True):
                    if node is None:
                        written.failed[partition] = "the partition is gone"
                        del states[partition]
                    elif node[1].version != state.version:
                        written.conflicts.append(partition)
                        del states[partition]
                continue
            for (partition, state), stat in zip(states.items(), stats, strict=True):
                assert stat is not None
                written.done[partition] = replace(state, version=stat.version, written=stat.modified)
            return

    async def _create_part(self, states: dict[TopicPartition, PartitionState], written: Written) -> None:
        there: set[str] = set()
        while states:
            operations: list[Operation] = []
            for partition, state in states.items():
                if znodes.partition_path(*partition) not in there:
                    operations.append(Create(znodes.partition_path(*partition), b""))
                operations.append(Create(znodes.state_path(*partition), encoded_state(state)))
            try:
                await self.write(operations)
            except (NodeExistsError, NoNodeError):
                gone = await self._missing({znodes.partitions_path(topic) for topic, _ in states})
                there = await self._present([znodes.partition_path(*partition) for partition in states])
                begun = await self._present([znodes.state_path(*partition) for partition in states])
                for partition in list(states):
                    if znodes.partitions_path(partition[0]) in gone:
                        written.failed[partition] = "the topic is gone"
                        del states[partition]
                    elif znodes.state_path(*partition) in begun:
                        written.conflicts.append(partition)
                        del states[partition]
                continue
            written.done.update(states)
            return

    async def _create_missing(self, paths: Sequence[str], data: bytes = b"") -> None:
        """Create those of these znodes that are missing and have a parent."""
        missing = list(paths)
        while missing:
            try:
                await self.write([Create(path, data) for path in missing])
            except NodeExistsError:
                missing = sorted(await self._missing(missing))
            except NoNodeError as error:
                del missing[error.operation_index]  # type: ignore[attr-defined]
            else:
                return

    async def _present(self, paths: Collection[str]) -> set[str]:
        nodes = await self.get_many(list(paths))
        return {path for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def _missing(self, paths: Collection[str]) -> set[str]:
        return set(paths) - await self._present(paths)

    # --- orders and notifications ---------------------------------------------------------------------------

    async def reassignments(self, watch: Watch | None = None) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Read /admin/reassign_partitions, None if it is missing; invalid content counts as no request."""
        node = await self.get(znodes.REASSIGN_PARTITIONS, watch)
        if node is None:
            return None
        try:
            return znodes.decode_reassignment(node[0])
        except ZnodeError as error:
            log.error("the reassignment is removed, it cannot be read: %s", error)
            return {}

    async def write_reassignments(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Write /admin/reassign_partitions, or remove it."""
        if not targets:
            await self._delete_present([znodes.REASSIGN_PARTITIONS])
            return
        try:
            await self.write([SetData(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(targets))])
        except NoNodeError:
            log.info("the reassignment was removed by another program")

    async def preferred_election(self, watch: Watch) -> list[TopicPartition] | None:
        """Read /admin/preferred_replica_election, None if it is not there."""
        node = await self.get(znodes.PREFERRED_REPLICA_ELECTION, watch)
        if node is None:
            return None
        try:
            return znodes.decode_preferred_election(node[0])
        except ZnodeError as error:
            log.error("the order to elect preferred leaders is removed, it cannot be read: %s", error)
            return []

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove znodes that were dealt with."""
        for start in range(0, len(paths), STATES_PER_WRITE):
            await self._delete_present(paths[start : start + STATES_PER_WRITE])

    async def notifications(self, parent: str, watch: Watch) -> dict[str, bytes]:
        """Read the notifications below a znode, by path."""
        paths = [f"{parent}/{name}" for name in await self.children(parent, watch)]
        nodes = await self.get_many(paths)
        return {path: node[0] for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def make_features(self, protocol: ProtocolVersion) -> None:
        """Create the znode of finalized features, if it is missing; brokers on ZooKeeper finalize no feature (KIP-584)."""
        if await self.get(resource_znodes.FEATURE) is None:
            features = resource_znodes.FinalizedFeatures(protocol >= V2_7_IV0, {})
            data = resource_znodes.encode_features(features, 2 if protocol >= V3_3_IV0 else 1)
            await self._create_missing([resource_znodes.FEATURE], data)

    async def allocate_producer_ids(self, broker_id: int, count: int) -> int:
        """Allocate the next block of producer ids; a lost answer wastes a block, but never allocates it twice."""
        while True:
            node = await self.get(znodes.PRODUCER_IDS)
            first = 0
            if node is not None and node[0]:
                block = znodes.decode_producer_ids(node[0])
                first = block.first + block.count
            data = znodes.encode_producer_ids(znodes.ProducerIdBlock(broker_id, first, count))
            operation: Operation = Create(znodes.PRODUCER_IDS, data)
            if node is not None:
                operation = SetData(znodes.PRODUCER_IDS, data, node[1].version)
            try:
                await self.write([operation])
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return first

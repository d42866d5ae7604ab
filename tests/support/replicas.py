"""Brokers that consist of replicas: logs on a memory disk, metadata set by tests, fetches by calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.cluster.metadata.changes import BrokerRegistered, PartitionChanged, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, Change, ClusterImage, Delta, PartitionInfo, TopicInfo
from barnabas.cluster.replicas.context import ReplicaContext
from barnabas.cluster.replicas.epoch_ends import diverging_epoch
from barnabas.cluster.replicas.following import Fetched, FetchPosition, FollowerLog
from barnabas.cluster.replicas.manager import Replicas
from barnabas.cluster.replicas.replica import ACKS_ALL, Replica
from barnabas.cluster.replication.leader import IsrChange
from barnabas.config.keeper import Keeper
from barnabas.environment import Threads
from barnabas.environment.real import OsThreads
from barnabas.errors import RequestError, StorageError
from barnabas.log.config import LogConfig
from barnabas.log.manager import LogManager
from barnabas.records.steps import run
from barnabas.serving.loop_budget import LoopBudget
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, TOPIC_ID, batch

LAG_MAX_MS = 100
TOPIC = "t"
LED = PartitionInfo(1, (1, 2, 3), (1, 2), 5, 7)
FOLLOWED = LED._replace(leader=2, leader_epoch=6, partition_epoch=8)


class Node:
    """One broker with a replica of `t-0`; its disk works, tests set its clock."""

    def __init__(
        self,
        broker_id: int,
        *,
        dirs: Sequence[str] = ("/d",),
        keeper: Keeper = Keeper.ITSELF,
        threads: Threads | None = None,
        budget: LoopBudget | None = None,
        **settings: Any,
    ) -> None:
        self.broker_id = broker_id
        self.dirs = list(dirs)
        self.keeper = keeper
        self.threads = threads or OsThreads()
        self.budget = budget or LoopBudget()
        self.disk = MemoryDisk()
        for path in dirs:
            self.disk.make_dirs(path)
        self.config = LogConfig(**settings)  # type: ignore[arg-type]
        self.now_ms = 0
        self.proposals: list[tuple[Replica, IsrChange]] = []
        self.image = ClusterImage("c")
        self.flushes: list[Replica] = []
        self.fetched: list[tuple[str, Replica]] = []
        """Replicas for which fetching was started or stopped, in this order."""
        self.live: frozenset[int] | None = None
        self.start()

    def start(self) -> None:
        """Open the logs; the metadata are empty."""
        self.logs = LogManager(self.dirs, config_for=lambda topic: self.config, disk=self.disk)
        self.logs.open(NOW_MS)
        context = ReplicaContext(
            broker_id=self.broker_id,
            storage_failed=self.storage_failed,
            request_flush=self.flushes.append,
            alter_partition=self,
            clock_ms=lambda: self.now_ms,
            lag_max_ms=lambda: LAG_MAX_MS,
            live_brokers=lambda: self.image.brokers if self.live is None else self.live,
            fetchers=self._Fetchers(self),
            keeper=self.keeper,
        )
        self.replicas = Replicas(self.logs, context, self.budget, self.threads)

    class _Fetchers:
        """Records the partitions that would be fetched."""

        def __init__(self, node: Node) -> None:
            self.node = node

        def start(self, replica: Replica) -> None:
            self.node.fetched.append(("start", replica))

        def stop(self, replica: Replica) -> None:
            self.node.fetched.append(("stop", replica))

    def storage_failed(self, error: StorageError) -> RequestError:
        self.replicas.lose(self.logs.take_offline(error.log_dir, error))
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR)

    def propose(self, replica: Replica, change: IsrChange) -> None:
        """Implement `AlterPartition`."""
        self.proposals.append((replica, change))

    async def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes of the metadata."""
        changes = list(changes)
        new = self.image.apply(changes)
        delta = Delta.of(self.image, new, changes)
        await self.replicas.prepare(delta, lambda topic: self.config, NOW_MS)
        self.image = new
        self.replicas.publish(delta)
        await self.replicas.clean_up(delta, NOW_MS)

    async def create(self, info: PartitionInfo) -> None:
        """Apply the creation of topic `t`, and the registration of three brokers."""
        brokers = [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in (1, 2, 3)]
        await self.apply([*brokers, TopicCreated(TopicInfo(TOPIC, TOPIC_ID, (info,)))])

    async def change(self, info: PartitionInfo) -> None:
        """Apply another state of `t-0`."""
        await self.apply([PartitionChanged(TOPIC, 0, info)])

    @property
    def replica(self) -> Replica:
        """The replica of `t-0`."""
        return self.replicas.local(TOPIC, 0)

    def produce(self, *values: bytes, acks: int = ACKS_ALL) -> int:
        """Append as the leader; returns the offset after the records."""
        leader = self.replicas.leader(TOPIC, 0)
        arguments = {"acks": acks, "now_ms": NOW_MS}
        valid = run(leader.validation(memoryview(batch(*values)), api_version=11, **arguments))
        return leader.append(valid, **arguments).last_offset + 1

    def answer(self, replica_id: int, asked: FetchPosition, max_bytes: int = 1 << 20) -> Fetched:
        """Answer a follower's fetch, as the handler of Fetch does. Raises RequestError."""
        leader = self.replicas.leader(TOPIC, 0, asked.current_leader_epoch)
        leader.check_follower(replica_id, asked.current_leader_epoch)
        log = leader.log
        high_watermark, start = log.high_watermark, log.log_start_offset
        if asked.last_fetched_epoch >= 0:
            diverging = diverging_epoch(leader, asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is not None:
                return Fetched(b"", high_watermark, start, diverging)
        read = log.read(asked.fetch_offset, max_bytes=max_bytes, upper_offset=log.log_end_offset)
        leader.follower_fetched(replica_id, asked.fetch_offset, log_start_offset=asked.log_start_offset)
        return Fetched(read.to_bytes(), high_watermark, start)


def fetch_once(follower: FollowerLog, broker_id: int, leader: Node, max_bytes: int = 1 << 20) -> bool:
    """Let a follower fetch once; returns whether it could use the response."""
    asked = follower.position
    try:
        answer = leader.answer(broker_id, asked, max_bytes)
    except RequestError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return False
        log = leader.replica.log
        return follower.out_of_range(
            leader_start_offset=log.log_start_offset, leader_end_offset=log.log_end_offset
        )
    return follower.fetched(asked, answer)


async def leader(info: PartitionInfo = LED, **settings: Any) -> Node:
    """Broker 1, which leads t-0 unless `info` says otherwise."""
    node = Node(1, **settings)
    await node.create(info)
    return node


def fetched(node: Node, broker: int, offset: int, start: int = 0) -> None:
    """Note that a follower with its current broker epoch fetched from `offset`."""
    node.replica.follower_fetched(broker, offset, log_start_offset=start, broker_epoch=10 * broker)


class Seen:
    """A listener that counts the advances and changes of a replica."""

    def __init__(self, replica: Replica, *, to_log_end: bool = False) -> None:
        self.count = self.changes = 0
        replica.subscribers.subscribe(self, to_log_end=to_log_end)
        self.replica = replica
        replica.subscribers.watch(self)

    def partition_advanced(self, replica: Replica) -> None:
        assert replica is self.replica
        self.count += 1

    def changed(self) -> None:
        self.changes += 1
        self.replica.subscribers.watch(self)

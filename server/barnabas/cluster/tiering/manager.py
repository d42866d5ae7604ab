"""Tiered storage of a broker: the tasks of all partitions that it leads, and remote reads of requests.

The rule: no decision about a partition is made before its metadata were read; a new leader reads all records of former
leaders. A failed store is tried again in the next round; no fault here ends the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.metadata.image import TOPIC
from barnabas.cluster.tiering.counts import TierCounts
from barnabas.cluster.tiering.deletions import Deletions, deleted_partitions
from barnabas.cluster.tiering.followers import FollowerTiers
from barnabas.cluster.tiering.metadata import RemoteMetadata
from barnabas.cluster.tiering.partition import TieredPartition, key_of, raise_log_start
from barnabas.cluster.tiering.reading import RemoteIndexes
from barnabas.cluster.tiering.reads import RemoteReads
from barnabas.cluster.tiering.tasks import SegmentTasks
from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError
from barnabas.log.format.names import LOCAL_TOPICS
from barnabas.tiered.metadata import METADATA_TOPIC
from barnabas.tiered.segment import TopicIdPartition
from barnabas.tiered.storage import RemoteStorageError

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.tiered.storage import RemoteStorage

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 30.0
RETRY_WARN_SECONDS: Final = 5.0


class TieredStorage:
    """Tiered storage of a broker, a `cluster.metadata.store.Subscriber`. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: RemoteStorage,
        store: MetadataStore,
        creation: TopicCreation,
        peers: Peers | None,
        replicas: Replicas,
        failures: LogDirFailures,
        budget: LoopBudget,
        environment: Environment,
        broker_id: int,
        background: trio.Nursery,
    ) -> None:
        """`peers` is None for a single broker."""
        self._config = config
        self._storage = storage
        self._store = store
        self._replicas = replicas
        self._failures = failures
        self._budget = budget
        self._environment = environment
        self._broker_id = broker_id
        self.counts = TierCounts()
        self._indexes = RemoteIndexes(
            storage, config.get(settings.REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES)
        )
        self.metadata = RemoteMetadata(store, creation, replicas, peers, budget, environment, broker_id)
        self.tasks = SegmentTasks(
            config,
            storage,
            self._indexes,
            self.metadata,
            self.counts,
            environment,
            broker_id,
            lambda: store.image.brokers,
        )
        self.reads = RemoteReads(
            config, storage, self._indexes, self.metadata, self.counts, environment, budget, background
        )  # fmt: skip
        self.metadata.on_restart = self._unlearn
        self.followers = FollowerTiers(
            config, storage, self.metadata, self.counts, environment, budget, background
        )
        self._partitions: dict[TopicIdPartition, TieredPartition] = {}
        self.deletions = Deletions(self.metadata, self.tasks, store, failures, environment, broker_id)
        self._new_leaders: set[Replica] = set()
        self._has_work = trio.Event()
        self._is_open = False

    def __iter__(self) -> Iterator[TieredPartition]:
        return iter(tuple(self._partitions.values()))

    @property
    def is_ready(self) -> bool:
        """True once the metadata of the remote segments of all local replicas were read."""
        return self._is_open and self.metadata.is_ready

    # --- the image --------------------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing: no preparation is needed."""

    def publish(self, delta: Delta) -> None:
        """Delete the remote segments of deleted topics, if this broker is responsible."""
        if delta.topics or delta.deleted:
            self._delete_all(deleted_partitions(delta, self._broker_id, self.metadata.partitions))
            self.metadata.look()

    async def clean_up(self, delta: Delta) -> None:
        """Follow changed settings and new partitions; without tiered storage logs begin at their local start (KIP-950)."""
        self.tasks.follow_settings()
        self.reads.follow_settings()
        self.followers.follow_settings()
        for name in delta.topics:
            await self._follow_topic(name, delta)
        for resource_type, name in delta.configs:
            if resource_type == TOPIC:
                await self._follow_topic(name, delta, switch_off=True)

    async def _follow_topic(self, name: str, delta: Delta, *, switch_off: bool = False) -> None:
        topic = delta.new.topics.get(name)
        for index in range(len(topic.partitions) if topic is not None else 0):
            replica = self._replicas.find(name, index)
            if replica is not None:
                self._follow_replica(replica, switch_off=switch_off)
            await self._budget.checkpoint()

    def _follow_replica(self, replica: Replica, *, switch_off: bool) -> None:
        if _is_stored(replica):
            self.metadata.follow(key_of(replica))
        if switch_off and not replica.log.is_tiered:
            self._switch_off(replica)
        elif replica.is_leader and replica.log.is_tiered:
            self._new_leaders.add(replica)
            self._has_work.set()

    def _unlearn(self, key: TopicIdPartition) -> None:
        """Reset the state that depends on a partition's remote segments, until their metadata are read again."""
        replica = self._replicas.find(key.topic, key.partition)
        if replica is not None and key_of(replica) == key:
            replica.log.highest_remote_offset = -1
        partition = self._partitions.get(key)
        if partition is not None:
            partition.is_seen = False

    def _switch_off(self, replica: Replica) -> None:
        try:
            raise_log_start(replica, replica.log.local_log_start_offset)
        except StorageError as error:
            self._failures.failed(error)
            return
        replica.log.highest_remote_offset = -1
        self._delete_switched_off(replica)

    def _delete_switched_off(self, replica: Replica) -> None:
        """Delete the remote segments of a topic without tiered storage, if that is configured and this broker leads it."""
        if (
            replica.is_leader
            and not replica.log.is_tiered
            and replica.log.config.remote_log_delete_on_disable
        ):
            key = key_of(replica)
            if key not in self.deletions and len(self.metadata.of(key)):
                self._delete_all([key])

    def _delete_all(self, keys: list[TopicIdPartition]) -> None:
        for key in keys:
            self._partitions.pop(key, None)
        self.deletions.add(keys)

    # --- tasks ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy, expire and delete, round by round."""
        try:
            await self._ensure_topic()
            async with trio.open_nursery() as nursery:
                self._retain()
                self._is_open = True
                nursery.start_soon(self.metadata.run)
                nursery.start_soon(self.deletions.run)
                nursery.start_soon(self._lead_forever, nursery)
                nursery.start_soon(self._tell_unknown)
                while True:
                    await self._begin_round(nursery)
                    await trio.sleep(self._config.get(settings.REMOTE_LOG_MANAGER_TASK_INTERVAL_MS) / 1000)
        finally:
            with trio.CancelScope(shield=True):
                await self._environment.threads.run(self._storage.close)

    async def _ensure_topic(self) -> None:
        wait_s = RETRY_SECONDS
        while True:
            try:
                await self.metadata.ensure_topic()
                return
            except (RequestError, StorageError) as error:
                log.log(
                    logging.WARNING if wait_s > RETRY_WARN_SECONDS else logging.INFO,
                    "%s cannot be made yet: %s", METADATA_TOPIC, error,
                )  # fmt: skip
                await trio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_SECONDS_MAX)

    async def _tell_unknown(self) -> None:
        """Log remote segments of unknown topics, when that is certain; they stay unless a record deletes them."""
        while not self.is_ready:
            await trio.sleep(RETRY_SECONDS)
        for key, segments in tuple(self.metadata.partitions.items()):
            is_known = self._store.image.topic_name(key.topic_id.bytes) is not None
            if is_known or key in self.deletions or key in self.metadata.deleting or not len(segments):
                continue
            log.warning(
                "%d segments of %s-%d with the topic id %s are stored remotely, and there is no such topic",
                len(segments), key.topic, key.partition, key.topic_id,
            )  # fmt: skip

    async def _lead_forever(self, nursery: trio.Nursery) -> None:
        """Begin the tasks of partitions as soon as this broker leads them."""
        while True:
            await self._has_work.wait()
            self._has_work = trio.Event()
            replicas, self._new_leaders = self._new_leaders, set()
            for replica in replicas:
                if replica.is_leader and replica.log.is_tiered and replica.log.topic_id is not None:
                    partition = self._partition(replica)
                    if partition is not None and not partition.is_seen:
                        self._begin_tasks(nursery, partition)
                await self._budget.checkpoint()

    async def _begin_round(self, nursery: trio.Nursery) -> None:
        self._retain()
        await self.followers.look(self._replicas)
        self.deletions.take_over()
        for replica in self._replicas:
            if replica.is_leader and not replica.log.is_tiered:
                self._delete_switched_off(replica)
            await self._budget.checkpoint()
        for partition in self.seen():
            self._begin_tasks(nursery, partition)
            await self._budget.checkpoint()
        for key, partition in tuple(self._partitions.items()):
            if not partition.is_led:
                self._partitions.pop(key, None)

    def _retain(self) -> None:
        """Follow the metadata of the replicas on this broker, and of partitions that are being deleted."""
        here = [key_of(replica) for replica in self._replicas if _is_stored(replica)]
        self.metadata.retain([*here, *self.deletions])

    def seen(self) -> Iterator[TieredPartition]:
        """Yield the partitions with tiered storage that this broker leads now."""
        for replica in self._replicas:
            if replica.is_leader and replica.log.is_tiered and replica.log.topic_id is not None:
                partition = self._partition(replica)
                if partition is not None:
                    yield partition

    async def round_of(self, partition: TieredPartition) -> None:
        """Run the tasks of a partition once, and return when they are finished."""
        async with trio.open_nursery() as nursery:
            self._begin_tasks(nursery, partition)

    def _partition(self, replica: Replica) -> TieredPartition | None:
        key = key_of(replica)
        if key in self.deletions:
            return None
        partition = self._partitions.get(key)
        if (
            partition is None
            or partition.replica is not replica
            or partition.leader_epoch != replica.leader_epoch
        ):
            partition = TieredPartition(
                key, replica, replica.leader_epoch, self.metadata.of(key), self._environment.monotonic()
            )
            self._partitions[key] = partition
        return partition

    def _begin_tasks(self, nursery: trio.Nursery, partition: TieredPartition) -> None:
        if not partition.is_copying and not partition.is_stopped:
            partition.is_copying = True
            nursery.start_soon(self._do, partition, self._copy)
        if not partition.is_expiring:
            partition.is_expiring = True
            nursery.start_soon(self._do, partition, self._expire)

    async def _copy(self, partition: TieredPartition) -> None:
        try:
            await self.tasks.copy(partition)
        finally:
            partition.is_copying = False

    async def _expire(self, partition: TieredPartition) -> None:
        try:
            await self.tasks.expire(partition)
        finally:
            partition.is_expiring = False

    async def _do(
        self, partition: TieredPartition, work: Callable[[TieredPartition], Awaitable[None]]
    ) -> None:
        name = f"{partition.key.topic}-{partition.key.partition}"
        try:
            await work(partition)
        except StorageError as error:
            self._failures.failed(error)
        except (RemoteStorageError, RequestError, OSError) as error:
            if partition.is_led:
                log.warning("tiered storage of %s: tried again with the next round: %s", name, error)
        except Exception:
            log.exception("tiered storage of %s failed; tried again with the next round", name)


def _is_stored(replica: Replica) -> bool:
    """Return whether segments of a replica may be in the store, or have to be deleted there."""
    log = replica.log
    is_switched_off = log.config.remote_log_delete_on_disable and log.topic not in LOCAL_TOPICS
    return log.topic_id is not None and (log.is_tiered or is_switched_off)

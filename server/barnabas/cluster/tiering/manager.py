"""Tiered storage of a broker: the tasks of all partitions that it leads, and what requests ask for.

The rule: nothing of a partition is decided before the metadata were replayed. A store that fails is asked again with the
next round; nothing that happens here ends the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.metadata.image import TOPIC
from barnabas.cluster.tiering.counts import TierCounts
from barnabas.cluster.tiering.followers import FollowerTiers
from barnabas.cluster.tiering.metadata import RemoteMetadata
from barnabas.cluster.tiering.partition import TieredPartition, key_of, raise_log_start
from barnabas.cluster.tiering.reading import RemoteIndexes
from barnabas.cluster.tiering.reads import RemoteReads
from barnabas.cluster.tiering.tasks import SegmentTasks
from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError
from barnabas.tiered.metadata import PartitionDeleteState
from barnabas.tiered.segment import TopicIdPartition
from barnabas.tiered.storage import RemoteStorageError

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.store import MetadataStore
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


class TieredStorage:
    """Implements `cluster.metadata.store.Subscriber`. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: RemoteStorage,
        store: MetadataStore,
        replicas: Replicas,
        failures: LogDirFailures,
        budget: LoopBudget,
        environment: Environment,
        broker_id: int,
        background: trio.Nursery,
    ) -> None:
        self._config = config
        self._storage = storage
        self._store = store
        self._replicas = replicas
        self._failures = failures
        self._budget = budget
        self._environment = environment
        self.counts = TierCounts()
        self._indexes = RemoteIndexes(
            storage, config.get(settings.REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES)
        )
        self.metadata = RemoteMetadata(config, store, replicas, budget, environment, broker_id)
        self._ready = trio.Event()
        self.tasks = SegmentTasks(
            config, storage, self._indexes, self.metadata, self.counts, environment, broker_id
        )
        self.reads = RemoteReads(
            config, storage, self._indexes, self.metadata, self._ready, self.counts, environment, budget, background
        )  # fmt: skip
        self.followers = FollowerTiers(
            config, storage, self.metadata, self.counts, environment, budget, background
        )
        self._partitions: dict[TopicIdPartition, TieredPartition] = {}
        self._gone: dict[TopicIdPartition, None] = {}
        self._are_gone = trio.Event()
        self._deleted_early: set[bytes] = set()
        """Ids of topics that were deleted before the metadata were replayed."""

    def __iter__(self) -> Iterator[TieredPartition]:
        return iter(tuple(self._partitions.values()))

    @property
    def is_ready(self) -> bool:
        """True once the metadata of remote segments were replayed."""
        return self._ready.is_set()

    # --- the image --------------------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Nothing is made beforehand."""

    def publish(self, delta: Delta) -> None:
        """Have what is stored of deleted topics deleted."""
        ids = {delta.old.topics[name].id for name in delta.deleted}
        ids |= {
            delta.old.topics[name].id
            for name in delta.topics
            if name in delta.old.topics and delta.replaced(name)
        }
        if not self._ready.is_set():
            self._deleted_early |= ids
        elif ids:
            self._delete_all([key for key in self.metadata.partitions if key.topic_id.bytes in ids])

    async def clean_up(self, delta: Delta) -> None:
        """Follow settings; a topic without tiered storage begins where its local log does (KIP-950)."""
        self.tasks.follow_settings()
        self.reads.follow_settings()
        self.followers.follow_settings()
        for resource_type, name in delta.configs:
            topic = delta.new.topics.get(name) if resource_type == TOPIC else None
            for index in range(len(topic.partitions) if topic is not None else 0):
                replica = self._replicas.find(name, index)
                if replica is not None and not replica.log.is_tiered:
                    self._switch_off(replica)
                await self._budget.checkpoint()

    def _switch_off(self, replica: Replica) -> None:
        try:
            raise_log_start(replica, replica.log.local_log_start_offset)
        except StorageError as error:
            self._failures.failed(error)
            return
        replica.log.highest_remote_offset = -1
        key = key_of(replica)
        if key in self.metadata.partitions and replica.log.config.remote_log_delete_on_disable:
            self._delete_all([key])

    def _delete_all(self, keys: list[TopicIdPartition]) -> None:
        for key in keys:
            self._gone[key] = None
            self._partitions.pop(key, None)
        self._are_gone.set()

    # --- tasks ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy, expire and delete, round by round."""
        try:
            await self._open()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._delete_forever)
                while True:
                    await self._begin_round(nursery)
                    await trio.sleep(self._config.get(settings.REMOTE_LOG_MANAGER_TASK_INTERVAL_MS) / 1000)
        finally:
            with trio.CancelScope(shield=True):
                await self._environment.threads.run(self._storage.close)

    async def _open(self) -> None:
        wait_s = RETRY_SECONDS
        while True:
            try:
                await self.metadata.open()
                break
            except (RequestError, StorageError) as error:
                log.warning("metadata of remote segments cannot be read yet: %s", error)
                await trio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_SECONDS_MAX)
        self._resume_deletions()
        for replica in self._replicas:
            if (
                replica.is_leader
                and not replica.log.is_tiered
                and key_of(replica) in self.metadata.partitions
            ):
                self._switch_off(replica)
            await self._budget.checkpoint()
        self._ready.set()

    def _resume_deletions(self) -> None:
        """Resume deletions; what is stored of topics that nothing is known of, and no record deletes, stays."""
        early = [key for key in self.metadata.partitions if key.topic_id.bytes in self._deleted_early]
        self._delete_all([*self.metadata.deleting, *early])
        for key, segments in self.metadata.partitions.items():
            if key in self._gone or self._store.image.topic_name(key.topic_id.bytes) is not None:
                continue
            states = [segment.state for segment in segments.segments()]
            if states:
                log.warning(
                    "%d segments of %s-%d with the topic id %s are stored remotely, and there is no such topic",
                    len(states), key.topic, key.partition, key.topic_id,
                )  # fmt: skip

    async def _begin_round(self, nursery: trio.Nursery) -> None:
        await self.followers.look(self._replicas)
        for partition in self.seen():
            self._begin_tasks(nursery, partition)
            await self._budget.checkpoint()
        for key, partition in tuple(self._partitions.items()):
            if not partition.is_led:
                self._partitions.pop(key, None)

    def seen(self) -> Iterator[TieredPartition]:
        """Yield the partitions with tiered storage that are led here now."""
        for replica in self._replicas:
            if replica.is_leader and replica.log.is_tiered and replica.log.topic_id is not None:
                partition = self._partition(replica)
                if partition is not None:
                    yield partition

    async def round_of(self, partition: TieredPartition) -> None:
        """Do the tasks of a partition once, and return when they are done."""
        async with trio.open_nursery() as nursery:
            self._begin_tasks(nursery, partition)

    def _partition(self, replica: Replica) -> TieredPartition | None:
        key = key_of(replica)
        if key in self._gone:
            return None
        partition = self._partitions.get(key)
        if (
            partition is None
            or partition.replica is not replica
            or partition.leader_epoch != replica.leader_epoch
        ):
            partition = TieredPartition(key, replica, replica.leader_epoch, self.metadata.of(key))
            self._partitions[key] = partition
        return partition

    def _begin_tasks(self, nursery: trio.Nursery, partition: TieredPartition) -> None:
        try:
            self.tasks.look(partition)
        except StorageError as error:
            self._failures.failed(error)
            return
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

    # --- deletion of all that a partition has -----------------------------------------------------------------

    async def _delete_forever(self) -> None:
        wait_s = RETRY_SECONDS
        while True:
            await self._are_gone.wait()
            self._are_gone = trio.Event()
            for key in tuple(self._gone):
                try:
                    await self._delete_partition(key)
                except StorageError as error:
                    self._failures.failed(error)
                except Exception as error:
                    log.warning(
                        "remote segments of %s-%d are still to be deleted: %s",
                        key.topic,
                        key.partition,
                        error,
                    )
            wait_s = min(2 * wait_s, RETRY_SECONDS_MAX) if self._gone else RETRY_SECONDS
            if self._gone:
                with trio.move_on_after(wait_s):
                    await self._are_gone.wait()
                self._are_gone.set()

    async def _delete_partition(self, key: TopicIdPartition) -> None:
        """Note that all segments are to go, so that a restart resumes, and delete them; those in hand follow.

        Raises RequestError, StorageError.
        """
        if key not in self.metadata.deleting:
            await self.metadata.note_deletion(key, PartitionDeleteState.MARKED)
        segments = self.metadata.of(key)
        for segment in segments.segments():
            await self.tasks.delete_unused(segment)
        if not len(segments):
            await self.metadata.note_deletion(key, PartitionDeleteState.FINISHED)
            self._gone.pop(key, None)

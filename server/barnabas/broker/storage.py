"""Opening and closing what a broker keeps: log dirs, logs, cluster metadata, and what hangs on them.

The rule: topics are what the metadata says; a log that is found without its topic is adopted, so that a directory
which another broker wrote can be opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.open_files import allow_open_files, open_segments_max
from barnabas.client import ClientSettings
from barnabas.cluster.embedded import EmbeddedStore
from barnabas.cluster.image import BROKER, TOPIC, BrokerInfo, ClusterImage, Delta
from barnabas.cluster.peers import Peers
from barnabas.config import broker as settings
from barnabas.config.cluster import inter_broker_listener
from barnabas.coordination.adoption import adopt_logs, lead_all, set_aside_deleted
from barnabas.errors import StorageError
from barnabas.ids import new_uuid, uuid_text
from barnabas.log.config import LogConfig
from barnabas.log.logdir import make_dir
from barnabas.log.manager import LogManager
from barnabas.replicas.alter_partition import RemoteAlterPartition
from barnabas.replicas.failures import LogDirFailures
from barnabas.replicas.fetcher import FetcherParts
from barnabas.replicas.fetching import ReplicaFetchers
from barnabas.replicas.flushing import Flusher
from barnabas.replicas.in_sync import LocalAlterPartition
from barnabas.replicas.lost_dirs import LostDirs, lost_dirs
from barnabas.replicas.manager import Replicas
from barnabas.replicas.replica import AlterPartition, ReplicaContext
from barnabas.replicas.throttling import ReplicationThrottle

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting
    from barnabas.environment import Environment
    from barnabas.loop_budget import LoopBudget


class AlterPartitionTask(AlterPartition, Protocol):
    """Carries proposals for the ISR to the controller in a task of its own."""

    async def run(self) -> None:
        """Do so until cancelled."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What makes a broker one of several.

    `store` is open, and is closed by whoever opened it. `alter_partition` replaces the way to the controller that the
    store's image names.
    """

    store: MetadataStore
    alter_partition: AlterPartitionTask | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """What is open. `peers` and `fetchers` are None where the broker is alone."""

    broker_id: int
    logs: LogManager
    metadata: MetadataStore
    replicas: Replicas
    failures: LogDirFailures
    flusher: Flusher
    lost_dirs: LostDirs
    alter_partition: AlterPartitionTask
    peers: Peers | None = None
    fetchers: ReplicaFetchers | None = None


@asynccontextmanager
async def opened_storage(
    config: BrokerConfig,
    endpoints: Mapping[str, tuple[str, int]],
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
    membership: Membership | None = None,
) -> AsyncIterator[Storage]:
    """Open everything below the log dirs, and close it cleanly at the end. Raises StorageError.

    `endpoints` are what the broker advertises, by listener; `on_all_lost` is called when no log dir works any more.
    Without a `membership` the broker is a cluster by itself.
    """
    if membership is None:
        storage = await _open_alone(config, endpoints, environment, budget, on_all_lost)
    else:
        storage = await _open_member(config, environment, budget, on_all_lost, membership)
    try:
        yield storage
    finally:
        with trio.CancelScope(shield=True):
            for replica in storage.replicas:
                replica.close()
            if membership is None:
                await storage.metadata.close()
            await environment.threads.run(storage.logs.close)


def _log_manager(
    config: BrokerConfig, environment: Environment, config_for: Callable[[str], LogConfig]
) -> LogManager:
    return LogManager(
        list(config.log_dirs),
        config_for=config_for,
        disk=environment.disk,
        open_segments_max=open_segments_max(allow_open_files()),
        producer_expiration_ms=config.get(settings.PRODUCER_ID_EXPIRATION_MS),
        recovery_threads=config.get(settings.NUM_RECOVERY_THREADS_PER_DATA_DIR),
        node_id=config.get(settings.NODE_ID) if config.is_node_id_set else None,
    )


def _configs(config: BrokerConfig, store: MetadataStore) -> Callable[[str], LogConfig]:
    return lambda topic: LogConfig.of(config.topic_values(store.image.settings_of(TOPIC, topic)))


async def _open_alone(
    config: BrokerConfig,
    endpoints: Mapping[str, tuple[str, int]],
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
) -> Storage:
    disk, now_ms, threads = environment.disk, environment.wall_clock_ms, environment.threads
    dirs = list(config.log_dirs)
    try:
        make_dir(disk, dirs[0])
    except OSError as error:
        raise StorageError(dirs[0], error) from error
    store = EmbeddedStore(dirs, disk, threads, budget)
    config_for = _configs(config, store)
    logs = _log_manager(config, environment, config_for)
    broker_id = config.get(settings.NODE_ID)
    await threads.run(store.read)
    await threads.run(lambda: logs.open(now_ms()))
    if logs.node_id is not None and not config.is_node_id_set:
        config.use_node_id(logs.node_id)
        broker_id = logs.node_id
    cluster_id = logs.cluster_id or uuid_text(new_uuid(environment.entropy))
    logs.write_meta(cluster_id, broker_id)
    await store.open(cluster_id, BrokerInfo(broker_id, config.get(settings.BROKER_RACK), dict(endpoints)))
    config.set_dynamic(store.image.settings_of(BROKER, ""), store.image.settings_of(BROKER, str(broker_id)))
    failures = LogDirFailures(logs, now_ms, on_all_lost)
    flusher = Flusher(now_ms, failures.failed, threads)
    alter_partition = LocalAlterPartition(broker_id, store)
    context = ReplicaContext(
        broker_id=broker_id,
        storage_failed=failures.failed,
        request_flush=flusher.request,
        alter_partition=alter_partition,
        clock_ms=lambda: int(environment.monotonic() * 1000),
        lag_max_ms=lambda: config.get(settings.REPLICA_LAG_TIME_MAX_MS),
        live_brokers=lambda: store.image.brokers,
    )
    replicas = Replicas(logs, context, budget)
    failures.on_lost.append(replicas.lose)
    set_aside_deleted(logs, replicas, store.deleted_topics)
    await store.change(lambda image: lead_all(broker_id, image))
    before = store.image
    await store.change(
        lambda image: adopt_logs(
            logs, broker_id, config, image, store.lost_lines, entropy=environment.entropy
        )
    )
    replicas.lost_dirs = lost_dirs(logs, broker_id, store.image)
    await _follow_first(store.image, before, replicas, config_for, now_ms())
    registry = LostDirs(broker_id, logs, replicas, store)
    await store.change(registry.register)
    return Storage(broker_id, logs, store, replicas, failures, flusher, registry, alter_partition)


async def _open_member(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
    membership: Membership,
) -> Storage:
    """Open what a broker of a cluster has: topics are those of the store, and logs without one stay as they are."""
    now_ms, store = environment.wall_clock_ms, membership.store
    broker_id = config.get(settings.NODE_ID)
    config_for = _configs(config, store)
    logs = _log_manager(config, environment, config_for)
    await environment.threads.run(lambda: logs.open(now_ms()))
    logs.write_meta(store.image.cluster_id, broker_id)
    config.set_dynamic(store.image.settings_of(BROKER, ""), store.image.settings_of(BROKER, str(broker_id)))
    failures = LogDirFailures(logs, now_ms, on_all_lost)
    flusher = Flusher(now_ms, failures.failed, environment.threads)

    def own_epoch() -> int:
        known = store.image.brokers.get(broker_id)
        return known.epoch if known is not None else -1

    peers = Peers(
        lambda: store.image,
        inter_broker_listener(config),
        environment.network,
        ClientSettings(client_id=f"broker-{broker_id}", software_name="barnabas"),
    )
    alter_partition = membership.alter_partition or RemoteAlterPartition(broker_id, peers, own_epoch)

    def clock_ms() -> int:
        return int(environment.monotonic() * 1000)

    def throttle(
        replicas_of: Callable[[LogConfig], Sequence[str]], rate: Setting[int | None]
    ) -> ReplicationThrottle:
        return ReplicationThrottle(
            broker_id,
            replicas_of,
            lambda: config.get(rate),
            samples=config.get(settings.REPLICATION_QUOTA_WINDOW_NUM),
            sample_ms=config.get(settings.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS) * 1000,
            clock_ms=clock_ms,
        )

    by_follower = throttle(
        lambda config: config.follower_replication_throttled_replicas,
        settings.FOLLOWER_REPLICATION_THROTTLED_RATE,
    )
    fetchers = ReplicaFetchers(
        broker_id, FetcherParts(peers, config, budget, failures.failed, now_ms, by_follower), own_epoch
    )
    context = ReplicaContext(
        broker_id=broker_id,
        storage_failed=failures.failed,
        request_flush=flusher.request,
        alter_partition=alter_partition,
        clock_ms=clock_ms,
        lag_max_ms=lambda: config.get(settings.REPLICA_LAG_TIME_MAX_MS),
        live_brokers=lambda: store.image.brokers,
        fetchers=fetchers,
        leader_throttle=throttle(
            lambda config: config.leader_replication_throttled_replicas,
            settings.LEADER_REPLICATION_THROTTLED_RATE,
        ),
    )
    replicas = Replicas(logs, context, budget)
    failures.on_lost.append(replicas.lose)
    await _follow_first(store.image, store.image, replicas, config_for, now_ms())
    registry = LostDirs(broker_id, logs, replicas, store)
    return Storage(
        broker_id, logs, store, replicas, failures, flusher, registry, alter_partition, peers, fetchers
    )


async def _follow_first(
    image: ClusterImage,
    before: ClusterImage,
    replicas: Replicas,
    config_for: Callable[[str], LogConfig],
    now_ms: int,
) -> None:
    """Open what the first image names; what was adopted since `before` has settings that its logs do not obey yet."""
    delta = Delta(ClusterImage(image.cluster_id), image, tuple(image.topics), ())
    await replicas.prepare(delta, config_for, now_ms)
    replicas.publish(delta)
    await replicas.reconfigure(image.topics.keys() - before.topics.keys(), config_for)

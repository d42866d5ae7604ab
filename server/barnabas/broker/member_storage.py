"""Opening the storage of a broker of a cluster.

The rule: topics are those of the cluster. On ZooKeeper a log without a topic stays until the controller decides on
it; in a KRaft quorum it is set aside, since the image is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.image_follower import obey_settings
from barnabas.broker.peer_security import for_peers
from barnabas.broker.storage_parts import (
    AlterPartitionTask,
    Membership,
    Storage,
    follow_first,
    log_configs,
    new_log_manager,
)
from barnabas.client import ClientSettings
from barnabas.cluster.metadata.peers import Peers
from barnabas.cluster.metadata.protocol_version import V2_7_IV2, protocol_of
from barnabas.cluster.replicas.alter_partition import RemoteAlterPartition
from barnabas.cluster.replicas.context import ReplicaContext
from barnabas.cluster.replicas.failures import LogDirFailures
from barnabas.cluster.replicas.fetcher_parts import FetcherParts
from barnabas.cluster.replicas.fetching import ReplicaFetchers
from barnabas.cluster.replicas.flushing import Flusher
from barnabas.cluster.replicas.isr_writing import WrittenIsrs
from barnabas.cluster.replicas.lost_dirs import LostDirs
from barnabas.cluster.replicas.manager import Replicas
from barnabas.cluster.replicas.throttling import ReplicationThrottle
from barnabas.cluster.zookeeper.consumer_offsets import ZooKeeperConsumerOffsets
from barnabas.cluster.zookeeper.features import ZooKeeperFeatures
from barnabas.cluster.zookeeper.registration import until_answered
from barnabas.cluster.zookeeper.session import ZooKeeper, ZooKeeperError
from barnabas.config import broker as settings
from barnabas.config.keeper import Keeper
from barnabas.config.listeners import inter_broker_listener
from barnabas.errors import StorageError
from barnabas.log.config import LogConfig

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting
    from barnabas.environment import Environment
    from barnabas.log.manager import LogManager
    from barnabas.serving.loop_budget import LoopBudget


async def open_member(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
    membership: Membership,
) -> Storage:
    """Open the storage of a broker in a cluster. Raises StorageError."""
    now_ms, store = environment.wall_clock_ms, membership.store
    broker_id = config.get(settings.NODE_ID)
    own_epoch = partial(_own_epoch, store, broker_id)
    config_for = log_configs(config, store)
    quorum = membership.quorum
    logs = await _opened_logs(config, environment, membership, config_for)
    obey_settings(config, store.image, broker_id)
    vital_dir = quorum.metadata_dir if quorum is not None else ""
    failures = LogDirFailures(logs, now_ms, on_all_lost, has_other_replicas=True, vital_dir=vital_dir)
    flusher = Flusher(now_ms, failures.failed, environment.threads)

    peers = Peers(
        lambda: store.image,
        inter_broker_listener(config),
        environment.network,
        for_peers(config, ClientSettings(client_id=f"broker-{broker_id}", software_name="barnabas")),
    )
    alter_partition = membership.alter_partition or _alter_partition(
        config, membership.zookeeper, budget, quorum.controllers if quorum is not None else peers, own_epoch
    )
    fetchers = ReplicaFetchers(
        broker_id,
        FetcherParts(peers, config, budget, failures.failed, now_ms, _follower_throttle(config, environment)),
        own_epoch,
    )
    context = ReplicaContext(
        broker_id=broker_id,
        storage_failed=failures.failed,
        request_flush=flusher.request,
        alter_partition=alter_partition,
        clock_ms=environment.monotonic_ms,
        lag_max_ms=lambda: config.get(settings.REPLICA_LAG_TIME_MAX_MS),
        live_brokers=_isr_candidates(membership),
        fetchers=fetchers,
        keeper=Keeper.ZOOKEEPER if quorum is None else Keeper.QUORUM,
        leader_throttle=_leader_throttle(config, environment),
    )
    replicas = Replicas(logs, context, budget, environment.threads)
    failures.on_lost.append(replicas.lose)
    if quorum is not None:
        await _settle_log_dirs(config, environment, logs, replicas, store.image)
    await follow_first(store.image, store.image, replicas, config_for, now_ms())
    zookeeper = membership.zookeeper
    return Storage(
        broker_id,
        logs,
        store,
        replicas,
        failures,
        flusher,
        LostDirs(broker_id, logs, replicas, store),
        alter_partition,
        peers,
        fetchers,
        features=await _features(membership),
        consumer_offsets=ZooKeeperConsumerOffsets(zookeeper) if zookeeper is not None else None,
        controllers=quorum.controllers if quorum is not None else None,
    )


async def _settle_log_dirs(
    config: BrokerConfig, environment: Environment, logs: LogManager, replicas: Replicas, image: ClusterImage
) -> None:
    """Exclude cordoned log dirs from new logs, and set aside logs that the first image of a quorum does not have."""
    from barnabas.broker.quorum_joining import cordon_log_dirs  # only a broker of a quorum loads its modules

    cordon_log_dirs(config, logs)
    await environment.threads.run(lambda: replicas.own_logs.set_aside_strays(image))


async def _opened_logs(
    config: BrokerConfig,
    environment: Environment,
    membership: Membership,
    config_for: Callable[[str], LogConfig],
) -> LogManager:
    """Open the log dirs, and register this broker as their owner. Raises StorageError."""
    quorum = membership.quorum
    logs = quorum.logs if quorum is not None else new_log_manager(config, environment, config_for)
    await environment.threads.run(lambda: logs.open(environment.wall_clock_ms()))
    if quorum is None:
        # until others have taken over the partitions that may have lost records here
        logs.stays_unclean = logs.is_unclean
    else:
        # A start that ends before the registration changes no record.
        logs.broker_epoch = logs.previous_broker_epoch
    cluster_id = membership.store.image.cluster_id
    logs.write_meta(cluster_id, config.get(settings.NODE_ID), on_zookeeper=quorum is None)
    return logs


def _own_epoch(store: MetadataStore, broker_id: int) -> int:
    return store.image.broker_epoch(broker_id)


def _isr_candidates(membership: Membership) -> Callable[[], Container[int]]:
    """Return the brokers that may join an ISR."""
    store, quorum = membership.store, membership.quorum
    return (lambda: store.image.brokers) if quorum is None else (lambda: quorum.store.isr_candidates)


def _alter_partition(
    config: BrokerConfig,
    zookeeper: ZooKeeper | None,
    budget: LoopBudget,
    peers: Peers,
    own_epoch: Callable[[], int],
) -> AlterPartitionTask:
    """Return the way to change an ISR: by the controller, before AlterPartition by ZooKeeper."""
    broker_id = config.get(settings.NODE_ID)
    if zookeeper is not None and protocol_of(config) < V2_7_IV2:
        return WrittenIsrs(broker_id, zookeeper, budget)
    return RemoteAlterPartition(broker_id, peers, own_epoch)


def _leader_throttle(config: BrokerConfig, environment: Environment) -> ReplicationThrottle:
    return _throttle(
        config,
        environment,
        lambda config: config.leader_replication_throttled_replicas,
        settings.LEADER_REPLICATION_THROTTLED_RATE,
    )


def _follower_throttle(config: BrokerConfig, environment: Environment) -> ReplicationThrottle:
    return _throttle(
        config,
        environment,
        lambda config: config.follower_replication_throttled_replicas,
        settings.FOLLOWER_REPLICATION_THROTTLED_RATE,
    )


def _throttle(
    config: BrokerConfig,
    environment: Environment,
    replicas_of: Callable[[LogConfig], Sequence[str]],
    rate: Setting[int | None],
) -> ReplicationThrottle:
    """Return the throttle of replicas that a topic's setting names, to a broker's rate."""
    return ReplicationThrottle(
        config.get(settings.NODE_ID),
        replicas_of,
        lambda: config.get(rate),
        samples=config.get(settings.REPLICATION_QUOTA_WINDOW_NUM),
        sample_ms=config.get(settings.REPLICATION_QUOTA_WINDOW_SIZE_SECONDS) * 1000,
        clock_ms=environment.monotonic_ms,
    )


async def _features(membership: Membership) -> ZooKeeperFeatures | None:
    """Read the cluster's features before anything is decided on them. Raises StorageError."""
    zookeeper, member = membership.zookeeper, membership.member
    if zookeeper is None or member is None:
        return None
    features = ZooKeeperFeatures(zookeeper, member)
    try:
        await until_answered(zookeeper, features.read)
    except ZooKeeperError as error:
        raise StorageError("ZooKeeper", error) from error
    return features

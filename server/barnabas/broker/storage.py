"""Opens and closes the storage of a broker: log dirs, logs, cluster metadata, and dependent parts.

The rule: the metadata define the topics; a log without a topic is adopted, so that a directory of another broker can be
opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.broker.adoption import (
    adopt_logs,
    begin_epoch,
    lead_all,
    set_aside_copies,
    set_aside_deleted,
)
from barnabas.broker.image_follower import obey_settings
from barnabas.broker.storage_parts import Membership, Storage, follow_first, log_configs, new_log_manager
from barnabas.cluster.kraft.own_log_place import (
    Listener,
    LogPlace,
    LostMetadataError,
    Node,
    has_log,
    metadata_dir,
)
from barnabas.cluster.kraft.own_store import OwnStore
from barnabas.cluster.metadata.image import BrokerInfo
from barnabas.cluster.metadata.journal_names import READY, journal_files
from barnabas.cluster.replicas.context import ReplicaContext
from barnabas.cluster.replicas.failures import LogDirFailures
from barnabas.cluster.replicas.flushing import Flusher
from barnabas.cluster.replicas.in_sync import LocalAlterPartition
from barnabas.cluster.replicas.lost_dirs import LostDirs, lost_dirs
from barnabas.cluster.replicas.manager import Replicas
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.config.listeners import PROTOCOLS
from barnabas.config.metadata_log import log_settings
from barnabas.errors import StorageError
from barnabas.log.format import CorruptFileError
from barnabas.log.logdir import read_meta
from barnabas.wire.ids import new_uuid, uuid_text

if TYPE_CHECKING:
    from barnabas.cluster.kraft.takeover import TakenOver
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.disk import Disk
    from barnabas.log.format.properties import MetaProperties
    from barnabas.log.manager import LogManager
    from barnabas.serving.loop_budget import LoopBudget


@asynccontextmanager
async def opened_storage(
    config: BrokerConfig,
    endpoints: Mapping[str, tuple[str, int]],
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
    membership: Membership | None = None,
) -> AsyncIterator[Storage]:
    """Open the logs and metadata in the log dirs, and close them cleanly at the end. Raises StorageError.

    `endpoints` are the advertised ones, by listener; `on_all_lost` is called when the last log dir fails. Without a
    `membership` the broker is a cluster by itself.
    """
    if membership is None:
        storage = await _open_alone(config, endpoints, environment, budget, on_all_lost)
    else:
        from barnabas.broker.member_storage import open_member

        storage = await open_member(config, environment, budget, on_all_lost, membership)
    try:
        yield storage
    finally:
        with trio.CancelScope(shield=True):
            for replica in storage.replicas:
                replica.close()
            if membership is None:
                await storage.metadata.close()
            await environment.threads.run(storage.logs.close)
            if membership is None:
                storage.logs.unlock()


async def _open_alone(
    config: BrokerConfig,
    endpoints: Mapping[str, tuple[str, int]],
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
) -> Storage:
    disk, threads = environment.disk, environment.threads
    log_dir = metadata_dir(disk, config.log_dirs, config.get(settings.METADATA_LOG_DIR))
    place = LogPlace(disk, log_dir, log_settings(config), environment.wall_clock_ms, config.release)
    store = OwnStore(place, threads, budget)
    logs = new_log_manager(config, environment, log_configs(config, store))
    try:
        await threads.run(lambda: logs.lock(log_dir))
        return await _open_locked(config, endpoints, environment, budget, on_all_lost, store, logs, log_dir)
    except BaseException:
        with trio.CancelScope(shield=True):
            await store.close()
        logs.unlock()
        raise


def taken_over_journal(
    config: BrokerConfig, disk: Disk, log_dir: str, wall_clock_ms: Callable[[], int], *, may_lose: bool
) -> TakenOver | None:
    """Replace the journal of an older version by a metadata log, if it exists. Raises StorageError."""
    dirs = list(dict.fromkeys((*(path.rstrip("/") for path in config.log_dirs), log_dir)))
    if not journal_files(disk, dirs) and not has_log(disk, log_dir, READY):
        return None
    from barnabas.cluster.kraft.takeover import has_journal, take_over  # once in the life of a broker

    if not has_journal(disk, dirs):
        return None
    try:
        meta = read_meta(disk, log_dir)
    except (OSError, CorruptFileError) as error:
        raise StorageError(log_dir, error) from error
    node = config.get(settings.NODE_ID), bytes(16)
    if meta is not None:
        node = (node[0] if meta.node_id is None else meta.node_id), meta.directory_id or bytes(16)
    return take_over(
        disk, dirs, log_dir, node, wall_clock_ms,
        for_all=config.kept_for_all, release=config.release, may_lose=may_lose,
    )  # fmt: skip


_LOST_ACLS = (
    f"An ACL that denies something may be among what is lost. Start once with {settings.AUTHORIZER_CLASS_NAME.name} empty, "
    "where no client can connect, correct the ACLs (kafka-acls.sh --list), and start with it again"
)


async def _open_locked(
    config: BrokerConfig,
    endpoints: Mapping[str, tuple[str, int]],
    environment: Environment,
    budget: LoopBudget,
    on_all_lost: Callable[[], None],
    store: OwnStore,
    logs: LogManager,
    log_dir: str,
) -> Storage:
    """Open the content of the log dirs, which are locked."""
    disk, now_ms, threads = environment.disk, environment.wall_clock_ms, environment.threads
    may_lose = not has_authorizer(config)

    def read() -> TakenOver | None:
        taken_over = taken_over_journal(config, disk, log_dir, now_ms, may_lose=may_lose)
        store.read(may_lose=may_lose)
        return taken_over

    try:
        taken_over = await threads.run(read)
    except LostMetadataError as error:
        raise StorageError(log_dir, OSError(f"{error.cause}. {_LOST_ACLS}")) from error
    lost = (*store.lost, *(taken_over.lost if taken_over is not None else ()))
    deleted = store.deleted_topics | (taken_over.deleted if taken_over is not None else frozenset())
    await threads.run(lambda: logs.open(now_ms()))
    if store.is_new and len(logs) and not may_lose:
        raise StorageError(
            log_dir, OSError(f"it has no metadata log, and there are logs of topics. {_LOST_ACLS}")
        )
    config_for, broker_id = log_configs(config, store), config.get(settings.NODE_ID)
    if logs.node_id is not None and not config.is_node_id_set:
        config.use_node_id(logs.node_id)
        broker_id = logs.node_id
    cluster_id = logs.cluster_id or uuid_text(new_uuid(environment.entropy))
    logs.write_meta(cluster_id, broker_id)
    broker = BrokerInfo(broker_id, config.get(settings.BROKER_RACK), dict(endpoints))
    node = _node(config, broker_id, logs.meta.get(log_dir))
    await store.open(cluster_id, broker, node, config.kept_for_all)
    obey_settings(config, store.image, broker_id)
    failures = LogDirFailures(logs, now_ms, on_all_lost)
    flusher = Flusher(now_ms, failures.failed, threads)
    alter_partition = LocalAlterPartition(broker_id, store)
    context = ReplicaContext(
        broker_id=broker_id,
        storage_failed=failures.failed,
        request_flush=flusher.request,
        alter_partition=alter_partition,
        clock_ms=environment.monotonic_ms,
        lag_max_ms=lambda: config.get(settings.REPLICA_LAG_TIME_MAX_MS),
        live_brokers=lambda: store.image.brokers,
    )
    replicas = Replicas(logs, context, budget, threads)
    failures.on_lost.append(replicas.lose)
    set_aside_deleted(logs, replicas.own_logs, deleted)
    await store.change(lambda image: lead_all(broker_id, image))
    set_aside_copies(logs, replicas.own_logs, store.image)
    before = store.image
    await store.change(
        lambda image: adopt_logs(logs, broker_id, config, image, len(lost), entropy=environment.entropy)
    )
    for key in [key for key in logs.missing if store.image.partition(*key) is None]:
        del logs.missing[key]  # its topic was deleted
    await store.change_even_if_full(lambda image: begin_epoch(logs, image))
    replicas.own_logs.lost_dirs = lost_dirs(logs, broker_id, store.image)
    await follow_first(store.image, before, replicas, config_for, now_ms())
    registry = LostDirs(broker_id, logs, replicas, store)
    await store.change(registry.register)
    return Storage(broker_id, logs, store, replicas, failures, flusher, registry, alter_partition)


def _node(config: BrokerConfig, broker_id: int, meta: MetaProperties | None) -> Node:
    """Return the broker as the metadata log names it; `meta` is of the dir of the log."""
    protocols = config.listener_security_protocols()
    return Node(
        broker_id,
        meta.directory_id if meta is not None and meta.directory_id else bytes(16),
        tuple((name, PROTOCOLS.index(protocol)) for name, protocol in protocols.items()),
        _controller_listener(config),
    )


def _controller_listener(config: BrokerConfig) -> Listener | None:
    """Return the first listener of a controller in the settings, None without any."""
    if not config.controller_listener_names():
        return None
    from barnabas.config.controller import advertised_controllers

    listeners = advertised_controllers(config).items()
    return next(((name, host or "localhost", port) for name, (host, port) in listeners if port), None)

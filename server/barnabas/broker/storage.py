"""Opening and closing what a broker keeps: log dirs, logs, cluster metadata, and what hangs on them.

The rule: topics are what the metadata says; a log that is found without its topic is adopted, so that a directory
which another broker wrote can be opened.
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
from barnabas.cluster.metadata.image import BrokerInfo
from barnabas.cluster.metadata.single_node_store import EmbeddedStore
from barnabas.cluster.replicas.context import ReplicaContext
from barnabas.cluster.replicas.failures import LogDirFailures
from barnabas.cluster.replicas.flushing import Flusher
from barnabas.cluster.replicas.in_sync import LocalAlterPartition
from barnabas.cluster.replicas.lost_dirs import LostDirs, lost_dirs
from barnabas.cluster.replicas.manager import Replicas
from barnabas.config import broker as settings
from barnabas.config.authorizer import has_authorizer
from barnabas.errors import StorageError
from barnabas.log.logdir import make_dir
from barnabas.wire.ids import new_uuid, uuid_text

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
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
    """Open everything below the log dirs, and close it cleanly at the end. Raises StorageError.

    `endpoints` are what the broker advertises, by listener; `on_all_lost` is called when no log dir works any more.
    Without a `membership` the broker is a cluster by itself.
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
    config_for = log_configs(config, store)
    logs = new_log_manager(config, environment, config_for)
    broker_id = config.get(settings.NODE_ID)
    await threads.run(store.read)
    if store.lost_lines and has_authorizer(config):
        raise StorageError(
            dirs[0],
            OSError(
                f"the metadata journal is damaged in {store.lost_lines} places, and no copy has what is lost: an ACL "
                f"that denies something may be among it. Start once with {settings.AUTHORIZER_CLASS_NAME.name} empty, "
                "where no client can connect, correct the ACLs (kafka-acls.sh --list), and start with it again"
            ),
        )
    await threads.run(lambda: logs.open(now_ms()))
    if logs.node_id is not None and not config.is_node_id_set:
        config.use_node_id(logs.node_id)
        broker_id = logs.node_id
    cluster_id = logs.cluster_id or uuid_text(new_uuid(environment.entropy))
    logs.write_meta(cluster_id, broker_id)
    await store.open(cluster_id, BrokerInfo(broker_id, config.get(settings.BROKER_RACK), dict(endpoints)))
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
    set_aside_deleted(logs, replicas.own_logs, store.deleted_topics)
    await store.change(lambda image: lead_all(broker_id, image))
    set_aside_copies(logs, replicas.own_logs, store.image)
    before = store.image
    await store.change(
        lambda image: adopt_logs(
            logs, broker_id, config, image, store.lost_lines, entropy=environment.entropy
        )
    )
    for key in [key for key in logs.missing if store.image.partition(*key) is None]:
        del logs.missing[key]  # its topic was deleted
    await store.change_even_if_full(lambda image: begin_epoch(logs, image))
    replicas.own_logs.lost_dirs = lost_dirs(logs, broker_id, store.image)
    await follow_first(store.image, before, replicas, config_for, now_ms())
    registry = LostDirs(broker_id, logs, replicas, store)
    await store.change(registry.register)
    return Storage(broker_id, logs, store, replicas, failures, flusher, registry, alter_partition)

"""Opening and closing what a broker keeps: log dirs, logs, cluster metadata, and what hangs on them.

The rule: topics are what the metadata says; a log that is found without its topic is adopted, so that a directory
which another broker wrote can be opened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.broker.image_follower import ImageFollower
from barnabas.broker.open_files import allow_open_files, open_segments_max
from barnabas.broker.startup import advertised_listeners
from barnabas.cluster.embedded import EmbeddedStore
from barnabas.cluster.image import BROKER, TOPIC, BrokerInfo, ClusterImage, Delta
from barnabas.config import broker as settings
from barnabas.coordination.producer_ids import ProducerIds
from barnabas.errors import StorageError
from barnabas.ids import new_uuid, uuid_text
from barnabas.log.config import LogConfig
from barnabas.log.manager import LogManager
from barnabas.replicas.adoption import adopt_logs, lead_all, set_aside_deleted
from barnabas.replicas.lost_dirs import lost_dirs, register_log_dirs
from barnabas.replicas.partitions import Partitions

if TYPE_CHECKING:
    from barnabas.broker.app import Broker

log = logging.getLogger(__name__)


async def open_storage(broker: Broker) -> None:
    """Open everything below the log dirs. Raises StorageError."""
    config = broker.config
    disk = broker.disk
    dirs = list(config.log_dirs)
    try:
        disk.make_dirs(dirs[0])
    except OSError as error:
        raise StorageError(dirs[0], error) from error
    store = EmbeddedStore(dirs, disk, broker.budget)
    broker.metadata = store

    def config_for(topic: str) -> LogConfig:
        return LogConfig.of(config.topic_values(store.image.settings_of(TOPIC, topic)))

    broker.config_for_topic = config_for
    broker.logs = LogManager(
        dirs,
        config_for=config_for,
        disk=disk,
        open_segments_max=open_segments_max(allow_open_files()),
        producer_expiration_ms=config.get(settings.PRODUCER_ID_EXPIRATION_MS),
        recovery_threads=config.get(settings.NUM_RECOVERY_THREADS_PER_DATA_DIR),
        node_id=broker.broker_id if config.is_node_id_set else None,
    )
    await trio.to_thread.run_sync(store.read)
    await trio.to_thread.run_sync(broker.logs.open, broker.now_ms())
    if broker.logs.node_id is not None and not config.is_node_id_set:
        config.use_node_id(broker.logs.node_id)
        broker.broker_id = broker.logs.node_id
    cluster_id = broker.logs.cluster_id or uuid_text(new_uuid())
    broker.logs.write_meta(cluster_id, broker.broker_id)
    await store.open(cluster_id, _this_broker(broker))
    broker.partitions = Partitions(
        broker.broker_id, broker.logs, broker.storage_failed, broker.flusher.request, broker.budget
    )
    config.set_dynamic(
        store.image.settings_of(BROKER, ""), store.image.settings_of(BROKER, str(broker.broker_id))
    )
    broker.producer_ids = ProducerIds(store)
    set_aside_deleted(broker, store.deleted_topics)
    await store.change(lambda image: lead_all(broker, image))
    before = store.image
    await store.change(lambda image: adopt_logs(broker, image, store.lost_lines))
    broker.partitions.lost_dirs = lost_dirs(broker, store.image)
    await _follow_first(broker, before)
    await store.change(lambda image: register_log_dirs(broker, image))
    store.subscribe(ImageFollower(broker))


async def _follow_first(broker: Broker, before: ClusterImage) -> None:
    """Open what the first image names; what was adopted since `before` has settings that its logs do not obey yet."""
    image = broker.metadata.image
    delta = Delta(ClusterImage(image.cluster_id), image, tuple(image.topics), ())
    await broker.partitions.prepare(delta, broker.config_for_topic, broker.now_ms())
    broker.partitions.publish(delta)
    await broker.partitions.reconfigure(image.topics.keys() - before.topics.keys(), broker.config_for_topic)


async def close_storage(broker: Broker) -> None:
    """Close everything, cleanly."""
    for partition in broker.partitions:
        partition.close()
    await broker.metadata.close()
    await trio.to_thread.run_sync(broker.logs.close)


def _this_broker(broker: Broker) -> BrokerInfo:
    bound = {listener.name: listener.port for listener in broker.listeners}
    endpoints = {
        name: (host, port or bound.get(name, 0))
        for name, (host, port) in advertised_listeners(broker.config).items()
    }
    return BrokerInfo(broker.broker_id, broker.config.get(settings.BROKER_RACK), endpoints)

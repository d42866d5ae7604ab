"""Opening and closing what a broker keeps: log dirs, logs, cluster metadata, and what hangs on them.

The rule: topics are what the metadata says; a log that is found without its topic is adopted, so that a directory
which another broker wrote can be opened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.broker.adoption import adopt_logs, lead_all
from barnabas.broker.lost_dirs import lost_dirs, register_log_dirs
from barnabas.broker.open_files import allow_open_files, open_segments_max
from barnabas.broker.partitions import Partitions
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.startup import advertised_listeners
from barnabas.cluster.embedded import EmbeddedStore
from barnabas.cluster.image import BROKER, TOPIC, BrokerInfo, ClusterImage
from barnabas.config import broker as settings
from barnabas.errors import StorageError
from barnabas.ids import new_uuid, uuid_text
from barnabas.log.config import LogConfig
from barnabas.log.manager import LogManager

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
    store = EmbeddedStore(dirs[0], disk)
    if len(dirs) > 1:
        log.warning(
            "topics and settings are kept in the first log dir alone, %s: no start without it", dirs[0]
        )
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
    store.open("", _this_broker(broker))
    await trio.to_thread.run_sync(broker.logs.open, broker.now_ms())
    if broker.logs.node_id is not None and not config.is_node_id_set:
        config.use_node_id(broker.logs.node_id)
        broker.broker_id = broker.logs.node_id
    cluster_id = broker.logs.cluster_id or uuid_text(new_uuid())
    broker.logs.write_meta(cluster_id, broker.broker_id)
    store.open(cluster_id, _this_broker(broker))
    broker.partitions = Partitions(
        broker.broker_id, broker.logs, broker.storage_failed, broker.flusher.request
    )
    config.set_dynamic(
        store.image.settings_of(BROKER, ""), store.image.settings_of(BROKER, str(broker.broker_id))
    )
    broker.producer_ids = ProducerIds(store)
    before = store.image
    store.change_nowait(lambda image: lead_all(broker, image))
    store.change_nowait(lambda image: adopt_logs(broker, image))
    broker.partitions.lost_dirs = lost_dirs(broker, store.image)
    broker.partitions.apply(ClusterImage(cluster_id), store.image, broker.now_ms(), is_start=True)
    broker.partitions.reconfigure(store.image.topics.keys() - before.topics.keys(), config_for)
    store.change_nowait(lambda image: register_log_dirs(broker, image))
    store.subscribe(broker.image_changed)


async def close_storage(broker: Broker) -> None:
    """Close everything, cleanly."""
    for partition in broker.partitions:
        partition.close()
    await trio.to_thread.run_sync(broker.logs.close)
    if isinstance(broker.metadata, EmbeddedStore):
        broker.metadata.close()


def _this_broker(broker: Broker) -> BrokerInfo:
    bound = {listener.name: listener.port for listener in broker.listeners}
    endpoints = {
        name: (host, port or bound.get(name, 0))
        for name, (host, port) in advertised_listeners(broker.config).items()
    }
    return BrokerInfo(broker.broker_id, broker.config.get(settings.BROKER_RACK), endpoints)

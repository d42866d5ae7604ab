"""Open parts of a broker, and their opening, for brokers with and without a cluster.

The rule: nothing here is for one of the two only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas.broker.open_files import allow_open_files, open_segments_max
from barnabas.cluster.metadata.image import TOPIC, ClusterImage, Delta
from barnabas.cluster.replicas.ports import AlterPartition
from barnabas.config import broker as settings
from barnabas.log.manager import LogManager

if TYPE_CHECKING:
    from barnabas.cluster.kraft.store import QuorumStore
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.ports import ConsumerOffsets
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.failures import LogDirFailures
    from barnabas.cluster.replicas.fetching import ReplicaFetchers
    from barnabas.cluster.replicas.flushing import Flusher
    from barnabas.cluster.replicas.lost_dirs import LostDirs
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.zookeeper.features import ZooKeeperFeatures
    from barnabas.cluster.zookeeper.session import ZooKeeper
    from barnabas.cluster.zookeeper.store import ZooKeeperStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.log.config import LogConfig
    from barnabas.metrics.of_controller import ControllerParts

CONFIGS_SHARED_MAX: Final = 1_000
"""More different settings of topics than these are not remembered."""


class AlterPartitionTask(AlterPartition[Any], Protocol):
    """Sends proposals for the ISR to the controller in a separate task."""

    async def run(self) -> None:
        """Do so until cancelled."""


class Membership(NamedTuple):
    """Parts that a broker of a cluster has.

    `store` is open, and is closed by the caller. `alter_partition` replaces the connection to the controller in the
    store's image.
    """

    store: MetadataStore
    alter_partition: AlterPartitionTask | None = None
    member: ZooKeeperStore | None = None
    """The same store, where it is one on ZooKeeper: the controller's requests are given to it."""
    zookeeper: ZooKeeper | None = None
    """The session in which this broker is registered and stands for election."""
    quorum: QuorumParts | None = None
    """Parts of a broker in the cluster of a KRaft quorum."""


class QuorumParts(NamedTuple):
    """The store that follows the quorum, and the requests to its controllers."""

    store: QuorumStore
    controllers: Peers
    logs: LogManager
    """Manager of the logs: its dirs are locked, and not open yet."""
    metadata_dir: str = ""
    """The dir with the log of the metadata."""
    controller: ControllerParts | None = None
    """The controller in the same process, if there is one."""


class Storage(NamedTuple):
    """Open parts of a broker. `peers` and `fetchers` are None where the broker is alone."""

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
    features: ZooKeeperFeatures | None = None
    consumer_offsets: ConsumerOffsets | None = None
    """Store of the offsets of consumers before 0.9; None without ZooKeeper."""
    controllers: Peers | None = None
    """Sends requests to the KRaft controllers; None without a KRaft quorum."""


def new_log_manager(
    config: BrokerConfig, environment: Environment, config_for: Callable[[str], LogConfig]
) -> LogManager:
    """Create the log manager, which is not open yet."""
    return LogManager(
        list(config.log_dirs),
        config_for=config_for,
        disk=environment.disk,
        workers=environment.workers,
        open_segments_max=open_segments_max(allow_open_files()),
        producer_expiration_ms=config.get(settings.PRODUCER_ID_EXPIRATION_MS),
        recovery_threads=config.get(settings.NUM_RECOVERY_THREADS_PER_DATA_DIR),
        node_id=config.get(settings.NODE_ID) if config.is_node_id_set else None,
    )


class LogConfigs:
    """Settings of logs. Topics with the same overrides share one object: most have no overrides."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._revision = config.revision
        self._shared: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def of(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs, with these own settings of the topic. Raises SettingError."""
        from barnabas.log.config import LogConfig  # not needed by a start without logs

        if self._revision != self._config.revision or len(self._shared) >= CONFIGS_SHARED_MAX:
            self._revision = self._config.revision
            self._shared.clear()
        key = tuple(sorted(overrides.items()))
        shared = self._shared.get(key)
        if shared is None:
            values = self._config.topic_values(overrides)
            if not self._config.get(settings.REMOTE_LOG_STORAGE_SYSTEM_ENABLE):
                values["remote.storage.enable"] = False  # as other brokers of the cluster may have it
            shared = self._shared[key] = LogConfig.of(values)
        return shared


def log_configs(config: BrokerConfig, store: MetadataStore) -> Callable[[str], LogConfig]:
    """Return a function that returns the settings of a topic's logs, by the newest image."""
    configs = LogConfigs(config)
    return lambda topic: configs.of(store.image.settings_of(TOPIC, topic))


async def follow_first(
    image: ClusterImage,
    before: ClusterImage,
    replicas: Replicas,
    config_for: Callable[[str], LogConfig],
    now_ms: int,
) -> None:
    """Open the logs of the first image; topics adopted since `before` have settings that their logs do not have yet."""
    delta = Delta(ClusterImage(image.cluster_id), image, tuple(image.topics), ())
    await replicas.prepare(delta, config_for, now_ms)
    replicas.publish(delta)
    await replicas.reconfigure(image.topics.keys() - before.topics.keys(), config_for)

"""The cluster at one moment, immutable, and the changes that lead from one moment to the next. Pure.

The rule: an image never changes; `apply` makes a new one that shares all that stayed the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

Settings = Mapping[str, str]
ResourceKey = tuple[int, str]
"""Resource type as in DescribeConfigs, and its name; broker "" is all brokers."""

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
_NONE: Settings = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who has a partition: broker ids, and the epochs that fence out those who believe something older."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0

    def led_anew(self, leader: int) -> PartitionInfo:
        """The same with this leader alone in sync, in a new epoch: what only others had is given up."""
        return replace(
            self,
            leader=leader,
            isr=(leader,),
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )

    def only_led_by(self, broker_id: int) -> PartitionInfo:
        """The same with this broker as its only replica, in a new epoch."""
        return replace(self.led_anew(broker_id), replicas=(broker_id,))


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its id (16 bytes, never used for another topic) and its partitions by index."""

    name: str
    id: bytes
    partitions: tuple[PartitionInfo, ...]

    @property
    def internal(self) -> bool:
        """Whether the broker made it for itself."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker; its endpoints are (host, port) by listener name."""

    id: int
    rack: str | None
    endpoints: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A new topic."""

    topic: TopicInfo


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic has got more partitions, after those it had."""

    name: str
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """One partition of a topic has other leaders or replicas."""

    name: str
    index: int
    partition: PartitionInfo


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is gone, and its settings with it."""

    name: str


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A resource's own settings, all of them, are now these."""

    resource_type: int
    resource_name: str
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker has come, or come back with other endpoints."""

    broker: BrokerInfo


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below `next_id` may have been handed out."""

    next_id: int


@dataclass(frozen=True, slots=True)
class LogDirsRegistered:
    """The log dirs in which a broker may have something, by their directory ids (KIP-858)."""

    broker_id: int
    directory_ids: frozenset[bytes]


Change = (
    TopicCreated
    | PartitionsAdded
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | BrokerRegistered
    | ProducerIdsAllocated
    | LogDirsRegistered
)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All that is known of the cluster; `version` counts the changes that led here."""

    cluster_id: str
    version: int = 0
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[ResourceKey, Settings] = field(default_factory=dict)
    next_producer_id: int = 0
    log_dirs: Mapping[int, frozenset[bytes]] = field(default_factory=dict)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, None if there is none."""
        return self.names_by_id.get(topic_id)

    def settings_of(self, resource_type: int, name: str) -> Settings:
        """A resource's own settings, without any defaults."""
        return self.configs.get((resource_type, name), _NONE)

    def apply(self, changes: Iterable[Change]) -> ClusterImage:
        """The image after these changes."""
        topics, names = dict(self.topics), dict(self.names_by_id)
        configs, brokers, log_dirs = dict(self.configs), dict(self.brokers), dict(self.log_dirs)
        next_producer_id, count, about_topics, about_configs = self.next_producer_id, 0, False, False
        for change in changes:
            count += 1
            match change:
                case TopicCreated(topic):
                    topics[topic.name] = topic
                    names[topic.id] = topic.name
                    about_topics = True
                case PartitionsAdded(name, partitions):
                    topics[name] = replace(topics[name], partitions=topics[name].partitions + partitions)
                    about_topics = True
                case PartitionChanged(name, index, partition):
                    parts = topics[name].partitions
                    parts = (*parts[:index], partition, *parts[index + 1 :])
                    topics[name] = replace(topics[name], partitions=parts)
                    about_topics = True
                case TopicDeleted(name):
                    del names[topics.pop(name).id]
                    configs.pop((TOPIC, name), None)
                    about_topics = about_configs = True
                case ConfigChanged(resource_type, name, settings):
                    about_configs = True
                    if settings:
                        configs[resource_type, name] = dict(settings)
                    else:
                        configs.pop((resource_type, name), None)
                case BrokerRegistered(broker):
                    brokers[broker.id] = broker
                case ProducerIdsAllocated(next_id):
                    next_producer_id = next_id
                case LogDirsRegistered(broker_id, directory_ids):
                    log_dirs[broker_id] = directory_ids
        return ClusterImage(
            self.cluster_id,
            self.version + count,
            min(brokers, default=-1),
            brokers,
            topics if about_topics else self.topics,
            names if about_topics else self.names_by_id,
            configs if about_configs else self.configs,
            next_producer_id,
            log_dirs,
        )

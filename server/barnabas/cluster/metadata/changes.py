"""The kinds of metadata changes: each has its content, its effect on an image, and its subject. Pure.

The rule: one immutable class per kind. Stores have their own formats of changes (`kraft.recording`, `zookeeper.writes`).
Changes of credentials, quotas and ACLs are in `access_changes`.
"""

from __future__ import annotations

from barnabas.cluster.metadata.image import (
    NO_TOPIC_ID,
    TOPIC,
    BrokerInfo,
    Change,
    Draft,
    PartitionInfo,
    Subjects,
    TopicInfo,
    comparable,
    has_similar,
)


class TopicCreated(Change):
    """A new topic, or another id for an existing topic, which does not delete it."""

    __slots__ = __match_args__ = ("topic",)

    def __init__(self, topic: TopicInfo) -> None:
        self.topic = topic

    def apply(self, draft: Draft) -> None:
        """Add the topic, its id, and its name among similar names."""
        name = self.topic.name
        draft.forget_partitions(name)
        before = draft.topics.now.get(name)
        if before is not None and before.id != self.topic.id:
            draft.names.put(before.id, None)
        draft.topics.put(name, self.topic)
        if self.topic.id != NO_TOPIC_ID:
            draft.names.put(self.topic.id, name)
        if has_similar(name):
            key = comparable(name)
            similar_names = draft.similar.now.get(key, ())
            if name not in similar_names:  # an existing topic that gets its id later
                draft.similar.put(key, (*similar_names, name))

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.topic.name] = None


class PartitionsAdded(Change):
    """Partitions were added to a topic, after the existing ones."""

    __slots__ = __match_args__ = ("name", "partitions")

    def __init__(self, name: str, partitions: tuple[PartitionInfo, ...]) -> None:
        self.name = name
        self.partitions = partitions

    def apply(self, draft: Draft) -> None:
        """Append the partitions."""
        draft.partitions_of(self.name).extend(self.partitions)

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.name] = None


class PartitionChanged(Change):
    """The leader or replicas of one partition of a topic changed."""

    __slots__ = __match_args__ = ("name", "index", "partition")

    def __init__(self, name: str, index: int, partition: PartitionInfo) -> None:
        self.name = name
        self.index = index
        self.partition = partition

    def apply(self, draft: Draft) -> None:
        """Replace the partition."""
        draft.partitions_of(self.name)[self.index] = self.partition
        draft.latest_epoch = max(draft.latest_epoch, self.partition.leader_epoch)

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.name] = None


class EpochBegun(Change):
    """All partitions begin this leader epoch: the broker that is a cluster by itself has started.

    Made before the image has subscribers.
    """

    __slots__ = __match_args__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def apply(self, draft: Draft) -> None:
        """Give each partition the epoch."""
        draft.begin_epoch(self.epoch)


class TopicDeleted(Change):
    """A topic was deleted, and its settings with it."""

    __slots__ = __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, draft: Draft) -> None:
        """Remove the topic, its id and its settings."""
        name = self.name
        draft.forget_partitions(name)
        draft.names.put(draft.topics.now[name].id, None)
        draft.topics.put(name, None)
        draft.configs.put((TOPIC, name), None)
        if has_similar(name):
            key = comparable(name)
            draft.similar.put(key, tuple(other for other in draft.similar.now[key] if other != name) or None)

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.name] = subjects.deleted[self.name] = None


class ConfigChanged(Change):
    """The own settings of a resource were replaced by these."""

    __slots__ = __match_args__ = ("resource_type", "resource_name", "settings")

    def __init__(self, resource_type: int, resource_name: str, settings: tuple[tuple[str, str], ...]) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.settings = settings

    def __repr__(self) -> str:
        """Leave out the settings: passwords may be among them."""
        return f"ConfigChanged({self.resource_type}, {self.resource_name!r})"

    def apply(self, draft: Draft) -> None:
        """Replace the settings of the resource."""
        draft.configs.put((self.resource_type, self.resource_name), dict(self.settings) or None)

    def mark(self, subjects: Subjects) -> None:
        """Mark the resource's settings."""
        subjects.configs[self.resource_type, self.resource_name] = None


class BrokerRegistered(Change):
    """A broker was registered, for the first time or again with other endpoints."""

    __slots__ = __match_args__ = ("broker",)

    def __init__(self, broker: BrokerInfo) -> None:
        self.broker = broker

    def apply(self, draft: Draft) -> None:
        """Add the broker, or replace its registration."""
        draft.brokers.put(self.broker.id, self.broker)
        draft.fenced.put(self.broker.id, None)


class BrokerUnregistered(Change):
    """A broker's registration was removed: it was shut down, or its session has expired."""

    __slots__ = __match_args__ = ("broker_id",)

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id

    def apply(self, draft: Draft) -> None:
        """Remove the broker."""
        draft.brokers.put(self.broker_id, None)
        draft.fenced.put(self.broker_id, None)


class BrokerFenced(Change):
    """A broker is registered, but not alive: its session is over, or it has not been unfenced yet (KIP-631)."""

    __slots__ = __match_args__ = ("broker",)

    def __init__(self, broker: BrokerInfo) -> None:
        self.broker = broker

    def apply(self, draft: Draft) -> None:
        """Move the broker from the live brokers to the fenced ones."""
        draft.brokers.put(self.broker.id, None)
        draft.fenced.put(self.broker.id, self.broker)


class ControllerChanged(Change):
    """Another broker is the controller, -1 for none; its epoch grows with each election."""

    __slots__ = __match_args__ = ("controller_id", "epoch")

    def __init__(self, controller_id: int, epoch: int = 0) -> None:
        self.controller_id = controller_id
        self.epoch = epoch

    def apply(self, draft: Draft) -> None:
        """Replace the controller."""
        draft.controller_id, draft.controller_epoch = self.controller_id, self.epoch


class ProducerIdsAllocated(Change):
    """Producer ids below `next_id` may have been allocated."""

    __slots__ = __match_args__ = ("next_id",)

    def __init__(self, next_id: int) -> None:
        self.next_id = next_id

    def apply(self, draft: Draft) -> None:
        """Set the next producer id."""
        draft.next_producer_id = self.next_id


class LogDirsRegistered(Change):
    """The log dirs in which a broker may have data, by their directory ids (KIP-858)."""

    __slots__ = __match_args__ = ("broker_id", "directory_ids")

    def __init__(self, broker_id: int, directory_ids: frozenset[bytes]) -> None:
        self.broker_id = broker_id
        self.directory_ids = directory_ids

    def apply(self, draft: Draft) -> None:
        """Replace the broker's log dirs; without any, remove the broker."""
        draft.log_dirs.put(self.broker_id, self.directory_ids or None)


class FeaturesChanged(Change):
    """The finalized levels of all features were replaced by these; the epoch counts such changes."""

    __slots__ = __match_args__ = ("levels", "epoch")

    def __init__(self, levels: tuple[tuple[str, int], ...], epoch: int) -> None:
        self.levels = levels
        self.epoch = epoch

    def apply(self, draft: Draft) -> None:
        """Replace the levels and the epoch."""
        draft.features, draft.features_epoch = dict(self.levels), self.epoch

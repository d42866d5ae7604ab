"""The cluster at one moment, immutable, and its changes from one moment to the next. Pure.

The rule: an image never changes; `apply` builds a new one that shares all unchanged parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from barnabas.cluster.metadata.layered_map import copied
from barnabas.log.format.names import INTERNAL_TOPICS
from barnabas.security.acls import NO_ACLS, Acls
from barnabas.security.acls import Draft as AclsDraft

if TYPE_CHECKING:
    from barnabas.security.scram import ScramCredential
    from barnabas.security.tokens import Token
    from barnabas.serving.quotas.entities import QuotaEntity, Quotas

K = TypeVar("K")
V = TypeVar("V")
Settings = Mapping[str, str]
ResourceKey = tuple[int, str]
"""Resource type as in DescribeConfigs, and its name; broker "" is all brokers."""

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

NO_TOPIC_ID = bytes(16)
"""The id of a topic without one: those of clusters with a controller older than Kafka 2.8."""

_UNKNOWN_DIRECTORIES = (bytes(16), bytes(15) + b"\1")
"""As a replica's log dir: from before log dirs had ids, and not chosen yet (KIP-858)."""

_NONE: Settings = MappingProxyType({})
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class PartitionInfo(NamedTuple):
    """Replicas of a partition: broker ids, and the epochs that fence out brokers with an older view."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds (KIP-455)."""
    removing: tuple[int, ...] = ()
    """Replicas that are removed when the reassignment is complete."""
    offline: tuple[int, ...] = ()
    """Replicas that are unreachable, or in a failed log dir, if the controller reports that."""
    recovering: bool = False
    """True for a leader of an unclean election that has not taken stock yet (KIP-704)."""
    directories: tuple[bytes, ...] = ()
    """Log dirs of the replicas, in their order (KIP-858); empty where the cluster has none."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: outside of the ISR, with all committed records (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()

    def with_sole_leader(self, leader: int) -> PartitionInfo:
        """Return the partition with this leader alone in sync, in a new epoch: records of other replicas only are lost."""
        return self._replace(
            leader=leader,
            isr=(leader,),
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )

    def with_sole_replica(self, broker_id: int) -> PartitionInfo:
        """Return the same with this broker as its only replica, in a new epoch."""
        return self.with_sole_leader(broker_id)._replace(replicas=(broker_id,))


class TopicInfo(NamedTuple):
    """A topic: its id (16 bytes, never used for another topic) and its partitions by index.

    The id is NO_TOPIC_ID where the cluster's controller gives none (before Kafka 2.8).
    """

    name: str
    id: bytes
    partitions: tuple[PartitionInfo, ...]

    @property
    def internal(self) -> bool:
        """True if the topic is one of the broker's internal topics."""
        return self.name in INTERNAL_TOPICS


class BrokerInfo(NamedTuple):
    """A live broker; its endpoints are (host, port) by listener name.

    `epoch` grows with each registration of the broker (KIP-380), -1 where that is not known.
    """

    id: int
    rack: str | None
    endpoints: Mapping[str, tuple[str, int]]
    epoch: int = -1
    in_controlled_shutdown: bool = False
    """True from the request to shut down until the broker registers again (KIP-841)."""


class ImageSource(Protocol):
    """The holder of the newest image."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""


class ClusterImage(NamedTuple):
    """All metadata of the cluster; `version` counts the changes so far."""

    cluster_id: str
    version: int = 0
    controller_id: int = -1
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerInfo] = _NOTHING
    topics: Mapping[str, TopicInfo] = _NOTHING
    names_by_id: Mapping[bytes, str] = _NOTHING
    configs: Mapping[ResourceKey, Settings] = _NOTHING
    next_producer_id: int = 0
    latest_epoch: int = 0
    """Highest leader epoch of any partition, including deleted ones; kept only if a broker is a cluster by itself."""
    log_dirs: Mapping[int, frozenset[bytes]] = _NOTHING
    similar: Mapping[str, tuple[str, ...]] = _NOTHING
    """Topics with "." or "_" in their names, by the name with "_" in place of each "."."""
    features: Mapping[str, int] | None = None
    """Levels at which features are finalized, those at 0 left out; None: those of the release, as for a broker alone."""
    features_epoch: int = -1
    scram: Mapping[str, Mapping[str, ScramCredential]] = _NOTHING
    """SCRAM credentials by user, then by mechanism; no user without any."""
    tokens: Mapping[str, Token] = _NOTHING
    """Delegation tokens by id, those that have expired until they are removed."""
    quotas: Mapping[QuotaEntity, Quotas] = _NOTHING
    acls: Acls = NO_ACLS
    """Another object after each change of the ACLs, and only then."""
    fenced: Mapping[int, BrokerInfo] = _NOTHING
    """Brokers that are registered and not alive, which a quorum alone knows of (KIP-631)."""

    def __repr__(self) -> str:
        """Leave out the settings: passwords may be among them."""
        fields = (
            f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True) if name != "configs"
        )
        return f"ClusterImage({', '.join(fields)})"

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of a topic, None if the topic does not exist or has no id."""
        info = self.topics.get(topic)
        return info.id if info is not None and info.id != NO_TOPIC_ID else None

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, None if it does not exist."""
        return self.names_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """Return a partition's metadata, None if it does not exist."""
        info = self.topics.get(topic)
        return info.partitions[index] if info is not None and 0 <= index < len(info.partitions) else None

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration, -1 if it is not registered."""
        broker = self.brokers.get(broker_id)
        return broker.epoch if broker is not None else -1

    def offline_replicas(self, partition: PartitionInfo) -> tuple[int, ...]:
        """Return the replicas on brokers that are not alive, or in log dirs that are offline."""
        if not partition.directories:
            return partition.offline
        return tuple(
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if replica not in self.brokers or not self._is_online(replica, directory)
        )

    def _is_online(self, broker_id: int, directory: bytes) -> bool:
        online = self.log_dirs.get(broker_id)
        return not online or directory in online or directory in _UNKNOWN_DIRECTORIES

    def settings_of(self, resource_type: int, name: str) -> Settings:
        """Return a resource's own settings, without any defaults."""
        return self.configs.get((resource_type, name), _NONE)

    def similar_topic(self, name: str) -> str | None:
        """Return another topic with a name that differs only in "." and "_", None without one (metrics confuse them)."""
        if not has_similar(name):
            return None
        return next((other for other in self.similar.get(comparable(name), ()) if other != name), None)

    def at_version(self, version: int) -> ClusterImage:
        """Return the same image with another count of changes."""
        return self._replace(version=version)

    def apply(self, changes: Iterable[Change]) -> ClusterImage:
        """Return the image after these changes. Takes time for each of them, and to copy the mappings that they change."""
        draft = Draft(self)
        for change in changes:
            draft.add(change)
        return draft.image()


class Change:
    """A step from one image to the next, immutable; its kinds are in `changes`.

    Changes of the same kind with the same content are equal. `__slots__` of a kind names its content in order.
    """

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((type(self), *self._content()))

    def __repr__(self) -> str:
        content = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({content})"

    def _content(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__slots__])

    def apply(self, draft: Draft) -> None:
        """Carry the change out. Raises KeyError where it is about a topic that is not there."""
        raise NotImplementedError

    def mark(self, subjects: Subjects) -> None:
        """Add the subjects of the change to those of a `Delta`."""


class Subjects:
    """Topics, settings and quotas that changes affect, each once, in the order of the changes."""

    __slots__ = ("configs", "deleted", "quotas", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        """Ids of deleted topics, even if another topic has the name by now."""
        self.configs: dict[ResourceKey, None] = {}
        self.quotas: dict[QuotaEntity, None] = {}


class Copied(Generic[K, V]):
    """A mapping that is copied before its first change."""

    __slots__ = ("_own", "now")

    def __init__(self, before: Mapping[K, V]) -> None:
        self.now = before
        self._own: MutableMapping[K, V] | None = None

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None removes the key, if it exists."""
        if value is None and key not in self.now:
            return
        if self._own is None:
            self.now = self._own = copied(self.now)
        if value is not None:
            self._own[key] = value
        else:
            del self._own[key]


class Draft:
    """An image that is derived from another one, change by change: `ClusterImage.apply` in pieces.

    Partitions of a changed topic are kept as a list until the end: a topic with 10,000 is copied once, not for each
    change.
    """

    __slots__ = (
        "_acls",
        "_before",
        "_begins",
        "_begins_of",
        "_begun_epoch",
        "_count",
        "brokers",
        "configs",
        "controller_epoch",
        "controller_id",
        "features",
        "features_epoch",
        "fenced",
        "latest_epoch",
        "log_dirs",
        "names",
        "next_producer_id",
        "partitions",
        "quotas",
        "scram",
        "similar",
        "tokens",
        "topics",
    )

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._count = 0
        self._acls: AclsDraft | None = None
        self.partitions: dict[str, list[PartitionInfo]] = {}
        """Partitions of topics with changed partitions; use `partitions_of`."""
        self._begins = self._begun_epoch = 0
        """Number of epochs that all partitions have begun, and the last of them."""
        self._begins_of: dict[str, int] = {}
        """Number of these epochs that a topic's partitions have begun, or need not begin, as the topic is newer."""
        self.topics = Copied(image.topics)
        self.names = Copied(image.names_by_id)
        self.configs = Copied(image.configs)
        self.brokers = Copied(image.brokers)
        self.fenced = Copied(image.fenced)
        self.log_dirs = Copied(image.log_dirs)
        self.similar = Copied(image.similar)
        self.next_producer_id = image.next_producer_id
        self.latest_epoch = image.latest_epoch
        self.controller_id = image.controller_id
        self.controller_epoch = image.controller_epoch
        self.features = image.features
        self.features_epoch = image.features_epoch
        self.scram = Copied(image.scram)
        self.tokens = Copied(image.tokens)
        self.quotas = Copied(image.quotas)

    def add(self, change: Change) -> None:
        """Carry out one change. Raises KeyError where it is about a topic that is not there."""
        self._count += 1
        change.apply(self)

    def acls(self) -> AclsDraft:
        """Return the ACLs after the changes so far, to be changed."""
        if self._acls is None:
            self._acls = AclsDraft(self._before.acls)
        return self._acls

    def partitions_of(self, name: str) -> list[PartitionInfo]:
        """Return the partitions of a topic after the changes so far, to be changed. Raises KeyError."""
        infos = self.partitions.get(name)
        if infos is None:
            infos = self.partitions[name] = list(self.topics.now[name].partitions)
        if self._begins:
            missed = self._begins - self._begins_of.get(name, 0)
            if missed:
                self._begins_of[name] = self._begins
                infos[:] = [
                    info._replace(
                        leader_epoch=self._begun_epoch, partition_epoch=info.partition_epoch + missed
                    )
                    for info in infos
                ]
        return infos

    def begin_epoch(self, epoch: int) -> None:
        """Begin a leader epoch for all present partitions; several in a row visit each partition once."""
        self.latest_epoch = self._begun_epoch = epoch
        self._begins += 1

    def forget_partitions(self, name: str) -> None:
        """Drop the partitions of a topic that was deleted, or is being created."""
        self.partitions.pop(name, None)
        if self._begins:
            self._begins_of[name] = self._begins

    def image(self) -> ClusterImage:
        """Return the image after the changes so far; nothing is added afterwards."""
        if self._begins:
            for name in tuple(self.topics.now):
                self.partitions_of(name)
        for name, partitions in self.partitions.items():
            self.topics.put(name, self.topics.now[name]._replace(partitions=tuple(partitions)))
        return ClusterImage(
            self._before.cluster_id,
            self._before.version + self._count,
            self.controller_id,
            self.controller_epoch,
            self.brokers.now,
            self.topics.now,
            self.names.now,
            self.configs.now,
            self.next_producer_id,
            self.latest_epoch,
            self.log_dirs.now,
            self.similar.now,
            self.features,
            self.features_epoch,
            scram=self.scram.now,
            tokens=self.tokens.now,
            quotas=self.quotas.now,
            acls=self._acls.acls() if self._acls is not None else self._before.acls,
            fenced=self.fenced.now,
        )


def has_similar(name: str) -> bool:
    """Return whether another topic's name could differ from this one only in "." and "_"."""
    return "." in name or "_" in name


def comparable(name: str) -> str:
    """Return the common form of all names that differ only in "." and "_"."""
    return name.replace(".", "_")


class Delta(NamedTuple):
    """A step from one image to a later one: topics, keys of settings, and entities with quotas that it affects.

    `deleted` are those of the topics that were deleted on request.
    """

    old: ClusterImage
    new: ClusterImage
    topics: tuple[str, ...]
    configs: tuple[ResourceKey, ...]
    quotas: tuple[QuotaEntity, ...] = ()
    deleted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, old: ClusterImage, new: ClusterImage, changes: Iterable[Change]) -> Delta:
        """Return the step with these changes."""
        subjects = Subjects()
        for change in changes:
            change.mark(subjects)
        return cls(
            old,
            new,
            tuple(subjects.topics),
            tuple(subjects.configs),
            tuple(subjects.quotas),
            frozenset(name for name in subjects.deleted if name in old.topics),
        )

    def replaced(self, name: str) -> bool:
        """Return whether the former topic of this name no longer exists, and the name is free or another topic's.

        A topic with an id that was unknown, or is no longer sent, is the same topic. Only `deleted` shows that it was
        deleted.
        """
        before, after = self.old.topics.get(name), self.new.topics.get(name)
        if before is None:
            return False
        return after is None or (after.id != before.id and NO_TOPIC_ID not in (after.id, before.id))

"""The cluster at one moment, immutable, and the changes that lead from one moment to the next. Pure.

The rule: an image never changes; `apply` makes a new one that shares all that stayed the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Generic, TypeVar

from barnabas.cluster.layered_map import copied
from barnabas.quotas.entities import QuotaEntity, Quotas
from barnabas.security.acls import NO_ACLS, AclBinding, Acls
from barnabas.security.acls import Draft as AclsDraft
from barnabas.security.scram import ScramCredential
from barnabas.security.tokens import Token

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
"""The id of a topic without one: those of clusters whose controller is older than Kafka 2.8."""

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
    adding: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment adds (KIP-455)."""
    removing: tuple[int, ...] = ()
    """Those of `replicas` that go when the reassignment is done."""
    offline: tuple[int, ...] = ()
    """Those of `replicas` that cannot be reached, or whose log dir has failed."""

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
    """A topic: its id (16 bytes, never used for another topic) and its partitions by index.

    The id is NO_TOPIC_ID where the cluster's controller gives none (before Kafka 2.8).
    """

    name: str
    id: bytes
    partitions: tuple[PartitionInfo, ...]

    @property
    def internal(self) -> bool:
        """Whether the broker made it for itself."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker; its endpoints are (host, port) by listener name.

    `epoch` grows with each registration of the broker (KIP-380), -1 where that is not known.
    """

    id: int
    rack: str | None
    endpoints: Mapping[str, tuple[str, int]]
    epoch: int = -1


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
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    """Passwords may be among them: they are in no message."""


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker has come, or come back with other endpoints."""

    broker: BrokerInfo


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """A broker has gone: it was shut down, or its session has expired."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """Another broker is the controller, -1 for none; its epoch grows with each election."""

    controller_id: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below `next_id` may have been handed out."""

    next_id: int


@dataclass(frozen=True, slots=True)
class LogDirsRegistered:
    """The log dirs in which a broker may have something, by their directory ids (KIP-858)."""

    broker_id: int
    directory_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """The levels at which features are finalized, all of them, are now these; the epoch counts such changes."""

    levels: tuple[tuple[str, int], ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class ScramCredentialChanged:
    """A user's credential for a SCRAM mechanism (as in `SCRAM-SHA-256`) is now this one; None: there is none any more."""

    user: str
    mechanism: str
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True)
class DelegationTokenChanged:
    """A delegation token was created or renewed, or expires at another time."""

    token: Token


@dataclass(frozen=True, slots=True)
class DelegationTokenRemoved:
    """A delegation token is gone."""

    token_id: str


@dataclass(frozen=True, slots=True)
class ClientQuotaChanged:
    """An entity's quotas, all of them, are now these; none: it has no quotas."""

    entity: QuotaEntity
    quotas: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class AclAdded:
    """There is one more ACL."""

    acl: AclBinding


@dataclass(frozen=True, slots=True)
class AclRemoved:
    """An ACL is gone."""

    acl: AclBinding


Change = (
    TopicCreated
    | PartitionsAdded
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | BrokerRegistered
    | BrokerUnregistered
    | ControllerChanged
    | ProducerIdsAllocated
    | LogDirsRegistered
    | FeaturesChanged
    | ScramCredentialChanged
    | DelegationTokenChanged
    | DelegationTokenRemoved
    | ClientQuotaChanged
    | AclAdded
    | AclRemoved
)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All that is known of the cluster; `version` counts the changes that led here."""

    cluster_id: str
    version: int = 0
    controller_id: int = -1
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[ResourceKey, Settings] = field(default_factory=dict, repr=False)
    next_producer_id: int = 0
    log_dirs: Mapping[int, frozenset[bytes]] = field(default_factory=dict)
    similar: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topics with "." or "_" in their names, by the name with "_" in place of each "."."""
    features: Mapping[str, int] | None = None
    """Levels at which features are finalized, those at 0 left out; None: those of the release, as for a broker alone."""
    features_epoch: int = -1
    scram: Mapping[str, Mapping[str, ScramCredential]] = field(default_factory=dict)
    """SCRAM credentials by user, then by mechanism; no user without any."""
    tokens: Mapping[str, Token] = field(default_factory=dict)
    """Delegation tokens by id, those that have expired until they are removed."""
    quotas: Mapping[QuotaEntity, Quotas] = field(default_factory=dict)
    acls: Acls = NO_ACLS
    """Another object after each change of the ACLs, and only then."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, None if there is none."""
        return self.names_by_id.get(topic_id)

    def broker_epoch(self, broker_id: int) -> int:
        """The epoch of a broker's registration, -1 for one that is not registered."""
        broker = self.brokers.get(broker_id)
        return broker.epoch if broker is not None else -1

    def settings_of(self, resource_type: int, name: str) -> Settings:
        """A resource's own settings, without any defaults."""
        return self.configs.get((resource_type, name), _NONE)

    def similar_topic(self, name: str) -> str | None:
        """Another topic whose name differs only in "." and "_", None if there is none (metrics mix them up)."""
        if "." not in name and "_" not in name:
            return None
        return next((other for other in self.similar.get(_levelled(name), ()) if other != name), None)

    def at_version(self, version: int) -> ClusterImage:
        """The same image, said to be so many changes old."""
        return replace(self, version=version)

    def apply(self, changes: Iterable[Change]) -> ClusterImage:
        """The image after these changes. Takes time for each of them, and to copy the mappings that they change."""
        draft = Draft(self)
        for change in changes:
            draft.add(change)
        return draft.image()


class _Copied(Generic[K, V]):
    """A mapping that is copied before its first change."""

    __slots__ = ("_own", "now")

    def __init__(self, before: Mapping[K, V]) -> None:
        self.now = before
        self._own: MutableMapping[K, V] | None = None

    def own(self) -> MutableMapping[K, V]:
        if self._own is None:
            self.now = self._own = copied(self.now)
        return self._own


class Draft:
    """An image that is being made from another one, change by change: `apply` in pieces.

    Partitions of a topic that changes are kept as a list until the end: a topic of 10,000 is copied once, not for each.
    """

    __slots__ = (
        "_acls",
        "_before",
        "_count",
        "_partitions",
        "brokers",
        "configs",
        "controller_epoch",
        "controller_id",
        "features",
        "features_epoch",
        "log_dirs",
        "names",
        "next_producer_id",
        "quotas",
        "scram",
        "similar",
        "tokens",
        "topics",
    )

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._count = 0
        self._partitions: dict[str, list[PartitionInfo]] = {}
        self._acls: AclsDraft | None = None
        self.topics = _Copied(image.topics)
        self.names = _Copied(image.names_by_id)
        self.configs = _Copied(image.configs)
        self.brokers = _Copied(image.brokers)
        self.log_dirs = _Copied(image.log_dirs)
        self.similar = _Copied(image.similar)
        self.next_producer_id = image.next_producer_id
        self.controller_id = image.controller_id
        self.controller_epoch = image.controller_epoch
        self.features = image.features
        self.features_epoch = image.features_epoch
        self.scram = _Copied(image.scram)
        self.tokens = _Copied(image.tokens)
        self.quotas = _Copied(image.quotas)

    def image(self) -> ClusterImage:
        """Return the image after the changes so far; nothing is added afterwards."""
        self.finish()
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
            self.log_dirs.now,
            self.similar.now,
            self.features,
            self.features_epoch,
            scram=self.scram.now,
            tokens=self.tokens.now,
            quotas=self.quotas.now,
            acls=self._acls.acls() if self._acls is not None else self._before.acls,
        )

    def add(self, change: Change) -> None:
        """Carry out one change. Raises KeyError where it is about a topic that is not there."""
        self._count += 1
        match change:
            case TopicCreated(topic):
                self._created(topic)
            case PartitionsAdded(name, partitions):
                self._partitions_of(name).extend(partitions)
            case PartitionChanged(name, index, partition):
                self._partitions_of(name)[index] = partition
            case TopicDeleted(name):
                self._deleted(name)
            case ConfigChanged(resource_type, name, settings):
                if settings:
                    self.configs.own()[resource_type, name] = dict(settings)
                else:
                    self.configs.own().pop((resource_type, name), None)
            case BrokerRegistered(broker):
                self.brokers.own()[broker.id] = broker
            case BrokerUnregistered(broker_id):
                self.brokers.own().pop(broker_id, None)
            case ControllerChanged(controller_id, epoch):
                self.controller_id, self.controller_epoch = controller_id, epoch
            case ProducerIdsAllocated(next_id):
                self.next_producer_id = next_id
            case LogDirsRegistered(broker_id, directory_ids):
                self.log_dirs.own()[broker_id] = directory_ids
            case FeaturesChanged(levels, epoch):
                self.features, self.features_epoch = dict(levels), epoch
            case ScramCredentialChanged(user, mechanism, credential):
                self._scram(user, mechanism, credential)
            case DelegationTokenChanged(token):
                self.tokens.own()[token.token_id] = token
            case DelegationTokenRemoved(token_id):
                self.tokens.own().pop(token_id, None)
            case ClientQuotaChanged(entity, quotas):
                if quotas:
                    self.quotas.own()[entity] = dict(quotas)
                else:
                    self.quotas.own().pop(entity, None)
            case AclAdded(acl):
                self.acls().add(acl)
            case AclRemoved(acl):
                self.acls().remove(acl)

    def _scram(self, user: str, mechanism: str, credential: ScramCredential | None) -> None:
        of_user = dict(self.scram.now.get(user, {}))
        if credential is not None:
            of_user[mechanism] = credential
        else:
            of_user.pop(mechanism, None)
        if of_user:
            self.scram.own()[user] = of_user
        else:
            self.scram.own().pop(user, None)

    def acls(self) -> AclsDraft:
        """Return the ACLs after the changes so far, to be changed."""
        if self._acls is None:
            self._acls = AclsDraft(self._before.acls)
        return self._acls

    def _partitions_of(self, name: str) -> list[PartitionInfo]:
        found = self._partitions.get(name)
        if found is None:
            found = self._partitions[name] = list(self.topics.now[name].partitions)
        return found

    def finish(self) -> None:
        """Give the topics the partitions that have changed."""
        for name, partitions in self._partitions.items():
            topics = self.topics.own()
            topics[name] = replace(topics[name], partitions=tuple(partitions))

    def _created(self, topic: TopicInfo) -> None:
        name = topic.name
        self._partitions.pop(name, None)
        self.topics.own()[name] = topic
        if topic.id != NO_TOPIC_ID:
            self.names.own()[topic.id] = name
        if "." in name or "_" in name:
            key = _levelled(name)
            known = self.similar.now.get(key, ())
            if name not in known:  # it is there already where a topic gets its id later
                self.similar.own()[key] = (*known, name)

    def _deleted(self, name: str) -> None:
        self._partitions.pop(name, None)
        self.names.own().pop(self.topics.own().pop(name).id, None)
        if (TOPIC, name) in self.configs.now:
            del self.configs.own()[TOPIC, name]
        if "." in name or "_" in name:
            key = _levelled(name)
            left = tuple(other for other in self.similar.now[key] if other != name)
            if left:
                self.similar.own()[key] = left
            else:
                del self.similar.own()[key]


def _levelled(name: str) -> str:
    return name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Delta:
    """A step from one image to a later one: topics, keys of settings, and entities with quotas that it concerns."""

    old: ClusterImage
    new: ClusterImage
    topics: tuple[str, ...]
    configs: tuple[ResourceKey, ...]
    quotas: tuple[QuotaEntity, ...] = ()

    @classmethod
    def of(cls, old: ClusterImage, new: ClusterImage, changes: Iterable[Change]) -> Delta:
        """The step that these changes make."""
        topics: dict[str, None] = {}
        configs: dict[ResourceKey, None] = {}
        quotas: dict[QuotaEntity, None] = {}
        for change in changes:
            match change:
                case TopicCreated(topic):
                    topics[topic.name] = None
                case PartitionsAdded(name) | PartitionChanged(name) | TopicDeleted(name):
                    topics[name] = None
                case ConfigChanged(resource_type, name):
                    configs[resource_type, name] = None
                case ClientQuotaChanged(entity):
                    quotas[entity] = None
                case _:
                    pass
        return cls(old, new, tuple(topics), tuple(configs), tuple(quotas))

    def replaced(self, name: str) -> bool:
        """Whether the topic that had this name is gone, and another one has it now or none.

        A topic whose id was not known, or is not said any more, is the same one.
        """
        before, after = self.old.topics.get(name), self.new.topics.get(name)
        if before is None:
            return False
        return after is None or (after.id != before.id and NO_TOPIC_ID not in (after.id, before.id))

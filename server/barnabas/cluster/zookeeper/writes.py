"""Writes to ZooKeeper that persist changes of the metadata. Pure.

The rule: the writes follow from the changes and the present content of the znodes, so that a new plan after a lost
answer omits completed writes. Writes of others meanwhile are a conflict, and never overwritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    DelegationTokenChanged,
    DelegationTokenRemoved,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    LogDirsRegistered,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    NO_TOPIC_ID,
    TOPIC,
    Change,
    ClusterImage,
    PartitionInfo,
    ResourceKey,
    TopicInfo,
)
from barnabas.cluster.zookeeper import acl_znodes, entity_settings, znodes
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import Create, Delete, Operation, SetData, Stat
from barnabas.cluster.zookeeper.znodes import ProducerIdBlock, ReplicaAssignment, TopicAssignment
from barnabas.errors import RequestError
from barnabas.security.acls import AccessControlEntry, ResourcePattern
from barnabas.security.tokens import Token
from barnabas.wire.generated.errors import ErrorCode

Found = Mapping[str, tuple[bytes, Stat] | None]
"""Content of znodes by path, None for those that are not there."""

BYTES_MAX = 256 * 1024
"""Bytes written together; ZooKeeper closes the connection of a client that sends more than 1 MiB."""
ZNODE_BYTES_MAX = 1_000_000

_ENTITY_TYPES = {
    TOPIC: resources.TOPICS,
    BROKER: resources.BROKERS,
    CLIENT_METRICS: resources.CLIENT_METRICS,
    GROUP: resources.GROUPS,
}
_PLAIN_NAMES = (resources.TOPICS, resources.BROKERS)


def entity_of(key: ResourceKey) -> tuple[str, str]:
    """Type and name of the entity in /config with a resource's settings in its znode."""
    if key[0] in entity_settings.ENTITY_TYPES:
        return entity_settings.ENTITY_TYPES[key[0]], key[1]
    kind, name = _ENTITY_TYPES[key[0]], key[1] or resources.DEFAULT
    return kind, name if kind in _PLAIN_NAMES else resources.sanitized(name)


def resource_of(entity_type: str, name: str) -> ResourceKey | None:
    """Return the resource of an entity's settings in /config; None if the image does not have it."""
    for resource_type, kind in _ENTITY_TYPES.items():
        if kind == entity_type:
            if kind in _PLAIN_NAMES:
                return resource_type, "" if name == resources.DEFAULT else name
            return resource_type, resources.desanitized(name)
    return entity_settings.key_of(entity_type, name)


@dataclass
class Truth:
    """State in ZooKeeper that is not in the image yet: topics (None: deleted), settings, producer ids."""

    topics: dict[str, TopicInfo | None] = field(default_factory=dict)
    configs: dict[ResourceKey, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int | None = None

    def add(self, other: Truth) -> bool:
        """Add state that was read later; returns whether it changes anything."""
        before = dict(self.topics), dict(self.configs), self.next_producer_id
        self.topics |= other.topics
        self.configs |= other.configs
        if other.next_producer_id is not None:
            self.next_producer_id = other.next_producer_id
        return before != (self.topics, self.configs, self.next_producer_id)

    def changes(self, image: ClusterImage) -> Iterator[Change]:
        """Yield the changes that update an image to this state."""
        for name, topic in self.topics.items():
            topic_before = image.topics.get(name)
            if topic_before is not None and (topic is None or not is_same(topic_before, topic)):
                yield TopicDeleted(name)
                topic_before = None
            if topic is not None and topic_before is None:
                yield TopicCreated(topic)
            elif (
                topic is not None
                and topic_before is not None
                and len(topic.partitions) > len(topic_before.partitions)
            ):
                yield PartitionsAdded(name, topic.partitions[len(topic_before.partitions) :])
        for (resource_type, name), settings in self.configs.items():
            if resource_type in entity_settings.ENTITY_TYPES:
                yield from entity_settings.changes(image, (resource_type, name), settings)
            elif image.settings_of(resource_type, name) != settings:
                yield ConfigChanged(resource_type, name, tuple(settings.items()))
        if self.next_producer_id is not None and self.next_producer_id != image.next_producer_id:
            yield ProducerIdsAllocated(self.next_producer_id)

    def forget_known(self, image: ClusterImage) -> None:
        """Drop the topics that the image has by now."""
        for name, topic in tuple(self.topics.items()):
            topic_before = image.topics.get(name)
            if topic is None or (
                topic_before is not None
                and is_same(topic_before, topic)
                and len(topic_before.partitions) >= len(topic.partitions)
            ):
                del self.topics[name]


def is_same(topic: TopicInfo, other: TopicInfo) -> bool:
    """Return whether these are the same topic; without ids, topics of one name count as the same."""
    return NO_TOPIC_ID in (topic.id, other.id) or topic.id == other.id


class ConflictError(Exception):
    """Another writer was faster; `truth` is the state on which the changes must be decided again.

    `deleting` are new topics with predecessors of the same name that are still being deleted.
    """

    def __init__(self, truth: Truth, deleting: Collection[str] = ()) -> None:
        super().__init__("another writer was quicker")
        self.truth = truth
        self.deleting = frozenset(deleting)


@dataclass
class Plan:
    """Writes that are still to be done: operations in parts that may follow each other, then notifications."""

    parts: list[list[Operation]] = field(default_factory=list)
    notifications: list[str] = field(default_factory=list)
    """Entities with changed settings, as `topics/NAME`."""
    changed_tokens: list[str] = field(default_factory=list)
    """Ids of delegation tokens that have changed."""
    changed_acls: list[ResourcePattern] = field(default_factory=list)
    """Patterns with changed ACLs."""


def topic_info(name: str, assignment: TopicAssignment) -> TopicInfo:
    """Return a topic with the content of its znode: its leaders are unknown."""
    count = max(assignment.partitions, default=-1) + 1
    none = ReplicaAssignment(())
    parts = (assignment.partitions.get(index, none) for index in range(count))
    infos = tuple(
        PartitionInfo(-1, part.replicas, (), adding=part.adding, removing=part.removing) for part in parts
    )
    return TopicInfo(name, assignment.topic_id or NO_TOPIC_ID, infos)


def paths_of(change: Change) -> tuple[str, ...]:
    """Return the znodes that a plan for this change must read. Raises TypeError for a change that no broker may write."""
    match change:
        case TopicCreated(topic):
            name = topic.name
            return (
                znodes.topic_path(name),
                resources.config_path(resources.TOPICS, name),
                znodes.delete_topic_path(name),
            )
        case PartitionsAdded(name):
            return (znodes.topic_path(name),)
        case TopicDeleted(name):
            return znodes.topic_path(name), znodes.delete_topic_path(name)
        case ConfigChanged(kind, name):
            return (resources.config_path(*entity_of((kind, name))),)
        case ProducerIdsAllocated():
            return (znodes.PRODUCER_IDS,)
        case LogDirsRegistered():
            return ()
        case DelegationTokenChanged(Token(token_id)) | DelegationTokenRemoved(token_id):
            return (resources.token_path(token_id),)
        case AclAdded(acl) | AclRemoved(acl):
            return (acl_znodes.path_of(acl.pattern),)
        case _:
            setting = entity_settings.update(change, {})
            if setting is not None:
                return (resources.config_path(*entity_of(setting[0])),)
            raise TypeError(f"{type(change).__name__} comes from the controller alone")


class Planner:
    """Plans the writes for changes that were decided on `image`; `nodes` is the content of the znodes.

    Lifecycle: `add` each change, run through `steps`, then `plan` has the result.
    """

    def __init__(self, image: ClusterImage, nodes: Found, broker_id: int, *, has_topic_ids: bool) -> None:
        self.plan = Plan()
        self._image = image
        self._found = nodes
        self._broker_id = broker_id
        self._has_topic_ids = has_topic_ids
        self._truth = Truth()
        self._is_conflict = False
        self._topics: dict[str, TopicAssignment] = {}
        self._created: dict[str, None] = {}
        self._configs: dict[ResourceKey, dict[str, str]] = {}
        self._entities: dict[ResourceKey, list[Change]] = {}
        self._deleted: dict[str, None] = {}
        self._deleting: set[str] = set()
        self._tokens: dict[str, Token | None] = {}
        self._acls: dict[ResourcePattern, dict[AccessControlEntry, bool]] = {}
        self._next_producer_id: int | None = None

    def _conflict(self, truth: Truth) -> None:
        self._is_conflict = True
        self._truth.add(truth)

    def add(self, change: Change) -> None:
        """Add a change to the plan."""
        match change:
            case TopicCreated(topic):
                self._create(topic)
            case PartitionsAdded(name, partitions):
                self._add_partitions(name, partitions)
            case TopicDeleted(name):
                self._delete(name)
            case ConfigChanged(resource_type, name, settings):
                self._configs[resource_type, name] = dict(settings)
            case ProducerIdsAllocated(next_id):
                self._next_producer_id = next_id
            case DelegationTokenChanged(token):
                self._tokens[token.token_id] = token
            case DelegationTokenRemoved(token_id):
                self._tokens[token_id] = None
            case AclAdded(acl) | AclRemoved(acl):
                self._acls.setdefault(acl.pattern, {})[acl.entry] = isinstance(change, AclAdded)
            case _:
                setting = entity_settings.update(change, {})
                if setting is not None:
                    self._entities.setdefault(setting[0], []).append(change)

    def _kept_topic(self, name: str) -> TopicAssignment | None:
        node = self._found.get(znodes.topic_path(name))
        if node is None:
            return None
        try:
            return znodes.decode_topic(name, node[0])
        except ZnodeError:
            return TopicAssignment({})  # a topic is there, of an unknown kind

    def _create(self, topic: TopicInfo) -> None:
        replicas = {info.replicas: ReplicaAssignment(info.replicas) for info in topic.partitions}
        assignment = TopicAssignment(
            {index: replicas[info.replicas] for index, info in enumerate(topic.partitions)},
            topic.id if self._has_topic_ids and topic.id != NO_TOPIC_ID else None,
        )
        kept = self._kept_topic(topic.name)
        self._topics[topic.name] = assignment
        is_other = kept is None or kept.topic_id is None or kept.topic_id != assignment.topic_id
        if is_other and self._found.get(znodes.delete_topic_path(topic.name)) is not None:
            # its znodes are removed one after the other: a new znode made before the last removal would be removed with
            # them
            self._deleting.add(topic.name)
            self._conflict(Truth({topic.name: topic_info(topic.name, kept or TopicAssignment({}))}))
        elif kept is None:
            self._created[topic.name] = None
            self._configs.setdefault((TOPIC, topic.name), {})
        elif kept.topic_id != assignment.topic_id or (kept.topic_id is None and kept != assignment):
            self._conflict(Truth({topic.name: topic_info(topic.name, kept)}))

    def _add_partitions(self, name: str, added: tuple[PartitionInfo, ...]) -> None:
        first = len(self._image.topics[name].partitions) if name in self._image.topics else 0
        kept = self._topics.get(name) or self._kept_topic(name)
        if name in self._topics:
            first = len(self._topics[name].partitions)
        if kept is None:
            self._conflict(Truth({name: None}))
            return
        count = max(kept.partitions, default=-1) + 1
        new = {first + index: ReplicaAssignment(info.replicas) for index, info in enumerate(added)}
        if count == first:
            self._topics[name] = TopicAssignment({**kept.partitions, **new}, kept.topic_id)
        elif not all(
            index in kept.partitions and kept.partitions[index].replicas == info.replicas
            for index, info in new.items()
        ):
            self._conflict(Truth({name: topic_info(name, kept)}))

    def _delete(self, name: str) -> None:
        kept = self._kept_topic(name)
        topic = self._image.topics.get(name)
        if name in self._created:
            self._deleted[name] = None
        elif kept is None or (topic is not None and not is_same(topic, topic_info(name, kept))):
            return  # already removed
        elif self._found.get(znodes.delete_topic_path(name)) is None:
            self._deleted[name] = None

    def steps(self) -> Iterator[None]:
        """Make the plan, a little at a time. Raises ConflictError; RequestError for a topic that no znode can hold."""
        parts = []
        for name, assignment in self._topics.items():
            parts.append(self._topic(name, assignment))
            yield
        for key, settings in self._configs.items():
            is_of_new = key[0] == TOPIC and key[1] in self._created
            if not is_of_new:
                parts.append(self._config(key, settings))
                self.plan.notifications.append("/".join(entity_of(key)))
            yield
        for key, changes in self._entities.items():
            parts.append(self._entity(key, changes))
            self.plan.notifications.append("/".join(entity_of(key)))
            yield
        for token_id, token in self._tokens.items():
            parts.append(self._token(token_id, token))
            self.plan.changed_tokens.append(token_id)
            yield
        for pattern, entries in self._acls.items():
            parts.append(self._acls_of(pattern, entries))
            self.plan.changed_acls.append(pattern)
            yield
        parts += [[Create(znodes.delete_topic_path(name), b"")] for name in self._deleted]
        if self._next_producer_id is not None:
            parts.append(self._producer_ids(self._next_producer_id))
        if self._is_conflict:
            raise ConflictError(self._truth, self._deleting)
        yield
        self.plan.parts = _together([part for part in parts if part])

    def _topic(self, name: str, assignment: TopicAssignment) -> list[Operation]:
        data = znodes.encode_topic(assignment)
        if len(data) > ZNODE_BYTES_MAX:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name!r} with {len(assignment.partitions)} partitions does not fit into a znode of 1 MB",
            )
        path = znodes.topic_path(name)
        if name in self._created:
            settings = self._configs.get((TOPIC, name), {})
            return [*self._set_config((TOPIC, name), settings), Create(path, data)]
        node = self._found[path]
        if node is None or self._kept_topic(name) == assignment:
            return []
        return [SetData(path, data, node[1].version)]

    def _kept_settings(self, key: ResourceKey) -> dict[str, str] | None:
        path = resources.config_path(*entity_of(key))
        node = self._found.get(path)
        try:
            return resources.decode_config(path, node[0]) if node is not None else None
        except ZnodeError:
            return {}

    def _config(self, key: ResourceKey, settings: dict[str, str]) -> list[Operation]:
        kept = self._kept_settings(key)
        if kept == settings:
            return []
        settings_before = dict(self._image.settings_of(*key))
        if (kept or {}) != settings_before:
            self._conflict(Truth(configs={key: kept or {}}))
        return self._set_config(key, settings)

    def _entity(self, key: ResourceKey, changes: list[Change]) -> list[Operation]:
        """Change only the settings of these changes, and no other settings of the znode."""
        kept = self._kept_settings(key)
        settings = dict(kept or {})
        for change in changes:
            setting = entity_settings.update(change, settings)
            for name, text in setting[1].items() if setting is not None else ():
                if text is None:
                    settings.pop(name, None)
                else:
                    settings[name] = text
        if settings == (kept or {}):
            return []
        kinds = {type(change) for change in changes}
        if any(type(change) in kinds for change in entity_settings.changes(self._image, key, kept or {})):
            self._conflict(Truth(configs={key: kept or {}}))
        return self._set_config(key, settings)

    def _set_config(self, key: ResourceKey, settings: dict[str, str]) -> list[Operation]:
        path = resources.config_path(*entity_of(key))
        node = self._found.get(path)
        data = resources.encode_config(settings)
        return [Create(path, data) if node is None else SetData(path, data, node[1].version)]

    def _acls_of(
        self, pattern: ResourcePattern, changes: Mapping[AccessControlEntry, bool]
    ) -> list[Operation]:
        """Add and remove entries, and keep all others of the znode: ACLs of other writers stay."""
        path = acl_znodes.path_of(pattern)
        node = self._found.get(path)
        held = node[0] if node is not None else None
        data = acl_znodes.updated(pattern, held, changes)
        if data == held:
            return []
        if data is None:
            return [Delete(path, node[1].version)] if node is not None else []
        if len(data) > ZNODE_BYTES_MAX:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"the ACLs of {str(pattern)[:300]} do not fit into a znode of 1 MB",
            )
        return [Create(path, data) if node is None else SetData(path, data, node[1].version)]

    def _token(self, token_id: str, token: Token | None) -> list[Operation]:
        path = resources.token_path(token_id)
        node = self._found.get(path)
        if token is None:
            return [Delete(path, node[1].version)] if node is not None else []
        data = resources.encode_token(token)
        if node is None:
            return [Create(path, data)]
        return [SetData(path, data, node[1].version)] if node[0] != data else []

    def _producer_ids(self, next_id: int) -> list[Operation]:
        node = self._found.get(znodes.PRODUCER_IDS)
        first = self._image.next_producer_id
        block = ProducerIdBlock(self._broker_id, first, next_id - first)
        data = znodes.encode_producer_ids(block)
        if node is None:
            return [Create(znodes.PRODUCER_IDS, data)]
        kept_next = next_producer_id(node[0])
        if node[0] == data:
            return []
        if kept_next != first:
            self._conflict(Truth(next_producer_id=kept_next))
        return [SetData(znodes.PRODUCER_IDS, data, node[1].version)]


def next_producer_id(data: bytes) -> int:
    """The first unused producer id. Raises ZnodeError."""
    if not data:
        return 0
    block = znodes.decode_producer_ids(data)
    return block.first + block.count


def _together(parts: list[list[Operation]]) -> list[list[Operation]]:
    """The same operations in as few parts as may be."""
    result: list[list[Operation]] = []
    size = BYTES_MAX
    for part in parts:
        own = sum(len(operation.path) + len(getattr(operation, "data", b"")) + 64 for operation in part)
        if size + own > BYTES_MAX:
            result.append([])
            size = 0
        result[-1] += part
        size += own
    return result

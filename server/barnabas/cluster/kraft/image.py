"""The image of a KRaft quorum's metadata at one offset, and the difference between two images. Pure.

The rule: an image never changes; a `Draft` makes the next one, which shares all unchanged parts. Each step of a draft is
a `Change`: kind, key, value before, value after; `diff` finds the same between any two images.

| kind | key | value |
|---|---|---|
| feature | name | level |
| broker, controller | id | Broker, Controller |
| topic | topic id | Topic |
| partition | topic id, index | Partition |
| setting | resource type, resource name, name | text, not to be shown unless its name is known to be harmless |
| acl | id | Acl |
| quota | entity (types and names, sorted), name | limit |
| user | name, mechanism | Credential |
| token | id | Token |
| producer_ids, zk_migration | () | first id that no block has yet; number of the state |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas.cluster.kraft.values import (
    Acl,
    Broker,
    Controller,
    Credential,
    Partition,
    Topic,
)
from barnabas.cluster.metadata.image import Copied
from barnabas.security.tokens import Token

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Types of resources that have settings; broker "" is all brokers."""
METADATA_VERSION = "metadata.version"

Entity = tuple[tuple[str, str | None], ...]
"""Subject of a quota: pairs of type (user, client-id, ip) and name, sorted by type; None is a default."""
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Change(NamedTuple):
    """A changed entry of the image; `before` is None for an added entry, `after` for a removed one."""

    kind: str
    key: Any
    before: Any
    after: Any

    def __repr__(self) -> str:
        """Omit the values: they may be passwords."""
        return f"Change({self.kind}, {self.key!r})"


class Position(NamedTuple):
    """The last record that an image includes: its offset, epoch and time in ms; -1 before the first."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1


class QuorumImage(NamedTuple):
    """All metadata of a quorum, at one position of its log."""

    position: Position = Position()
    features: Mapping[str, int] = _NOTHING
    brokers: Mapping[int, Broker] = _NOTHING
    controllers: Mapping[int, Controller] = _NOTHING
    topics: Mapping[bytes, Topic] = _NOTHING
    topic_ids: Mapping[str, bytes] = _NOTHING
    partition_counts: Mapping[bytes, int] = _NOTHING
    """By topic id; a topic is absent until its first partition record."""
    partitions: Mapping[tuple[bytes, int], Partition] = _NOTHING
    settings: Mapping[tuple[int, str], Mapping[str, str]] = _NOTHING
    acls: Mapping[bytes, Acl] = _NOTHING
    quotas: Mapping[Entity, Mapping[str, float]] = _NOTHING
    users: Mapping[tuple[str, int], Credential] = _NOTHING
    tokens: Mapping[str, Token] = _NOTHING
    producer_ids: int | None = None
    zk_migration: int | None = None

    def __repr__(self) -> str:
        """Omit the settings: they may be passwords."""
        return f"QuorumImage({self.position}, {len(self.topics)} topics, {len(self.brokers)} brokers)"

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version, 0 before its record."""
        return self.features.get(METADATA_VERSION, 0)

    def topic(self, name: str) -> Topic | None:
        """Return the topic with a name, None if it does not exist."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partitions_of(self, topic: Topic) -> Iterator[tuple[int, Partition]]:
        """Iterate over the partitions of a topic, by index."""
        for index in range(self.partition_counts.get(topic.id, 0)):
            partition = self.partitions.get((topic.id, index))
            if partition is not None:
                yield index, partition

    def entries(self) -> Iterator[tuple[str, Any, Any]]:
        """Iterate over all entries as (kind, key, value), with the kinds and keys of `Change`."""
        for kind, values in (
            ("feature", self.features),
            ("broker", self.brokers),
            ("controller", self.controllers),
            ("topic", self.topics),
            ("partition", self.partitions),
        ):
            yield from ((kind, key, value) for key, value in values.items())
        for (resource_type, resource), own in self.settings.items():
            yield from (("setting", (resource_type, resource, name), text) for name, text in own.items())
        yield from (("acl", key, acl) for key, acl in self.acls.items())
        for entity, limits in self.quotas.items():
            yield from (("quota", (entity, name), limit) for name, limit in limits.items())
        yield from (("user", key, credential) for key, credential in self.users.items())
        yield from (("token", key, token) for key, token in self.tokens.items())
        for kind, value in (("producer_ids", self.producer_ids), ("zk_migration", self.zk_migration)):
            if value is not None:
                yield kind, (), value


EMPTY = QuorumImage()


ENTRIES_PER_STEP: Final = 2_000
"""Entries compared between two checkpoints: about a millisecond."""
_FLAT: Final = {
    "feature": "features",
    "broker": "brokers",
    "controller": "controllers",
    "topic": "topics",
    "partition": "partitions",
    "acl": "acls",
    "user": "users",
    "token": "tokens",
}


def value_of(image: QuorumImage, kind: str, key: Any) -> Any:
    """Return the value of an entry, None if it is absent; kind and key are those of `Change`."""
    if kind in _FLAT:
        return getattr(image, _FLAT[kind]).get(key)
    if kind == "setting":
        return image.settings.get(key[:2], _NOTHING).get(key[2])
    if kind == "quota":
        return image.quotas.get(key[0], _NOTHING).get(key[1])
    return getattr(image, kind)


def diff(before: QuorumImage, after: QuorumImage) -> Iterator[Change]:
    """Iterate over the differences: removed entries first, then new and changed ones. Time: the size of both images."""
    return (change for change in _compared(before, after) if change is not None)


def diff_steps(before: QuorumImage, after: QuorumImage) -> Iterator[list[Change]]:
    """Yield the differences like `diff`, in pieces of about a millisecond, which may be empty."""
    changes: list[Change] = []
    for count, change in enumerate(_compared(before, after), 1):
        if change is not None:
            changes.append(change)
        if count % ENTRIES_PER_STEP == 0:
            yield changes
            changes = []
    yield changes


def _compared(before: QuorumImage, after: QuorumImage) -> Iterator[Change | None]:
    """Compare entry by entry; yield None for an unchanged entry."""
    for kind, key, value in before.entries():
        yield Change(kind, key, value, None) if value_of(after, kind, key) is None else None
    for kind, key, value in after.entries():
        previous = value_of(before, kind, key)
        yield Change(kind, key, previous, value) if previous != value else None


class Draft:
    """The next image, step by step; takes time for each step, and to copy a mapping that changes.

    Each method sets the value of a key; None removes it. The step is appended to `changes` unless it changes nothing.
    """

    def __init__(self, before: QuorumImage) -> None:
        self._before = before
        self.changes: list[Change] = []
        self.features: Copied[str, int] = Copied(before.features)
        self.brokers: Copied[int, Broker] = Copied(before.brokers)
        self.controllers: Copied[int, Controller] = Copied(before.controllers)
        self.topics: Copied[bytes, Topic] = Copied(before.topics)
        self.topic_ids: Copied[str, bytes] = Copied(before.topic_ids)
        self.partition_counts: Copied[bytes, int] = Copied(before.partition_counts)
        self.partitions: Copied[tuple[bytes, int], Partition] = Copied(before.partitions)
        self.settings: Copied[tuple[int, str], Mapping[str, str]] = Copied(before.settings)
        self.acls: Copied[bytes, Acl] = Copied(before.acls)
        self.quotas: Copied[Entity, Mapping[str, float]] = Copied(before.quotas)
        self.users: Copied[tuple[str, int], Credential] = Copied(before.users)
        self.tokens: Copied[str, Token] = Copied(before.tokens)
        self.producer_ids = before.producer_ids
        self.zk_migration = before.zk_migration
        self._inner: dict[tuple[str, Any], dict[Any, Any]] = {}
        """Inner mappings that this draft has copied and may modify, by kind and outer key."""

    def put(self, kind: str, mapping: Copied[Any, Any], key: Any, value: Any) -> None:
        """Set a value of one of the mappings."""
        previous = mapping.now.get(key)
        if previous != value:
            mapping.put(key, value)
            self.changes.append(Change(kind, key, previous, value))

    def put_inner(self, kind: str, mapping: Copied[Any, Any], key: tuple[Any, ...], value: Any) -> None:
        """Set a value of a nested mapping by the last part of the key; an empty inner mapping is removed."""
        outer_key, name = (key[0] if len(key) == 2 else key[:-1]), key[-1]
        inner = mapping.now.get(outer_key, _NOTHING)
        previous = inner.get(name)
        if previous == value:
            return
        rest = self._inner.get((kind, outer_key))
        if rest is None or rest is not inner:  # one copy for all changes of a resource
            rest = self._inner[kind, outer_key] = dict(inner)
        if value is not None:
            rest[name] = value
        else:
            del rest[name]
        mapping.put(outer_key, rest or None)
        self.changes.append(Change(kind, key, previous, value))

    def put_topic(self, topic: Topic) -> None:
        """Add or replace a topic, in the index by name too."""
        self.put("topic", self.topics, topic.id, topic)
        self.topic_ids.put(topic.name, topic.id)

    def put_partition(self, topic: Topic, index: int, partition: Partition) -> None:
        """Add or replace a partition."""
        key = (topic.id, index)
        if key not in self.partitions.now:
            self.partition_counts.put(topic.id, self.partition_counts.now.get(topic.id, 0) + 1)
        self.put("partition", self.partitions, key, partition)

    def remove_topic(self, topic: Topic) -> None:
        """Remove a topic with its partitions and settings."""
        for index in range(self.partition_counts.now.get(topic.id, 0)):
            self.put("partition", self.partitions, (topic.id, index), None)
        for name in [*self.settings.now.get((TOPIC, topic.name), _NOTHING)]:
            self.put_inner("setting", self.settings, (TOPIC, topic.name, name), None)
        self.put("topic", self.topics, topic.id, None)
        self.partition_counts.put(topic.id, None)
        if self.topic_ids.now.get(topic.name) == topic.id:
            self.topic_ids.put(topic.name, None)

    def put_single(self, kind: str, value: Any) -> None:
        """Set a value that exists once: `producer_ids` or `zk_migration`."""
        previous = getattr(self, kind)
        if previous != value:
            setattr(self, kind, value)
            self.changes.append(Change(kind, (), previous, value))

    def image(self, position: Position) -> QuorumImage:
        """Return the image, at a position; the draft must not be changed afterwards."""
        return QuorumImage(
            position,
            self.features.now,
            self.brokers.now,
            self.controllers.now,
            self.topics.now,
            self.topic_ids.now,
            self.partition_counts.now,
            self.partitions.now,
            self.settings.now,
            self.acls.now,
            self.quotas.now,
            self.users.now,
            self.tokens.now,
            self.producer_ids,
            self.zk_migration,
        )

"""Topics that are created on request: by Metadata, or by a coordinator for itself.

The rule: all topics of one request are created with one change of the metadata, and each name is refused on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.creation import NewTopic, create_topics
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.internal_topics import REMOTE_METADATA_TOPIC, SHAPES
from barnabas.cluster.metadata.timed_change import change_within
from barnabas.config import broker as settings
from barnabas.config.keeper import is_clustered
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Entropy


PATIENCE_MS = 10_000
"""Longest wait of a request for topics with the broker's defaults. Clients wait for 30 s and more for an answer."""


class TopicShape(NamedTuple):
    """Shape of a topic that is created without one in the request."""

    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


class TopicCreation(Protocol):
    """Makes topics with the broker's defaults."""

    async def ensure(self, name: str, own: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create a topic with these own settings, unless it exists. Raises RequestError, StorageError."""

    async def ensure_all(self, names: Sequence[str]) -> dict[str, RequestError]:
        """Create the topics that do not exist; return the errors by topic name. Raises StorageError.

        LEADER_NOT_AVAILABLE means that the topic is being created: the client retries.
        """


class LocalTopicCreation:
    """Implements `TopicCreation` with changes of the metadata store: of a broker that is alone, or of the controller."""

    def __init__(self, config: BrokerConfig, metadata: MetadataStore, entropy: Entropy) -> None:
        self._entropy = entropy
        self._config = config
        self._metadata = metadata

    async def ensure(self, name: str, own: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create a topic with these own settings, unless it exists. Raises RequestError, StorageError."""
        refused = await self.ensure_all([name], own)
        if name in refused:
            raise refused[name]

    async def ensure_all(
        self, names: Sequence[str], own: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, RequestError]:
        """Create missing topics with these overrides; returns the errors by name.

        A topic is refused with INVALID_REPLICATION_FACTOR if its settings require more replicas than there are brokers;
        a broker without a cluster creates its internal topics with one. Raises StorageError.
        """
        refused: dict[str, RequestError] = {}

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            refused.clear()
            topics: list[NewTopic] = []
            partitions = 0
            for name in dict.fromkeys(names):
                if name not in image.topics:
                    topics.append(self._new_topic(image, name, own))
                    partitions += topics[-1].partitions
                yield None
            try:
                topic_decisions.check_partition_count(partitions)
            except RequestError as error:
                refused.update((topic.name, error) for topic in topics)
                return
            yield from create_topics(image, self._config, topics, refused)

        if not await change_within(self._metadata, decide, PATIENCE_MS):
            being_made = RequestError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic is being made")
            topics = self._metadata.image.topics
            return {name: refused.get(name, being_made) for name in names if name not in topics}
        return refused

    def _new_topic(self, image: ClusterImage, name: str, own: Mapping[str, str]) -> NewTopic:
        shape = default_shape(self._config, name, own)
        replicas = shape.replication_factor
        if (name in SHAPES or name == REMOTE_METADATA_TOPIC) and not is_clustered(self._config):
            replicas = min(replicas, len(image.brokers))
        return NewTopic(name, new_uuid(self._entropy), shape.partitions, replicas, settings=shape.settings)


def default_shape(config: BrokerConfig, name: str, own: Mapping[str, str]) -> TopicShape:
    """Return the shape of a new topic by this broker's settings; the topic has these own settings."""
    if name == REMOTE_METADATA_TOPIC:
        from barnabas.config.tiered import metadata_topic  # not needed by a broker without tiered storage

        remote = metadata_topic(config)
        return TopicShape(remote.partitions, remote.replication_factor, remote.settings(config))
    get = config.get
    shape = SHAPES.get(name)
    if shape is None:
        return TopicShape(get(settings.NUM_PARTITIONS), get(settings.DEFAULT_REPLICATION_FACTOR), own)
    return TopicShape(get(shape.partitions), get(shape.replication_factor), shape.settings(config))

"""Topics that are made because somebody asks for them: by Metadata, or by a coordinator for itself.

The rule: all that one request asks for is made with one change of the metadata, and each name is refused on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.cluster import controller
from barnabas.cluster.creation import TopicWish, create_topics
from barnabas.cluster.image import Change, ClusterImage
from barnabas.cluster.internal_topics import SHAPES
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Entropy


class TopicCreation:
    """Makes topics with the broker's defaults."""

    def __init__(self, config: BrokerConfig, metadata: MetadataStore, entropy: Entropy) -> None:
        self._entropy = entropy
        self._config = config
        self._metadata = metadata

    async def ensure(self, name: str) -> None:
        """Make a topic, unless it is there. Raises RequestError, StorageError."""
        refused = await self.ensure_all([name])
        if name in refused:
            raise refused[name]

    async def ensure_all(self, names: Sequence[str]) -> dict[str, RequestError]:
        """Make the topics that are not there; returns why not, by name.

        An internal topic has no more replicas than there are brokers; others are refused if the defaults ask for more.
        Raises StorageError.
        """
        refused: dict[str, RequestError] = {}

        def decide(image: ClusterImage) -> Iterator[Change]:
            refused.clear()
            wishes = [self._wish(image, name) for name in dict.fromkeys(names) if name not in image.topics]
            try:
                controller.check_partition_count(sum(wish.partitions for wish in wishes))
            except RequestError as error:
                refused.update((wish.name, error) for wish in wishes)
                return
            yield from create_topics(image, self._config, wishes, refused)

        await self._metadata.change(decide)
        return refused

    def _wish(self, image: ClusterImage, name: str) -> TopicWish:
        get = self._config.get
        shape = SHAPES.get(name)
        if shape is None:
            return TopicWish(
                name,
                new_uuid(self._entropy),
                get(settings.NUM_PARTITIONS),
                get(settings.DEFAULT_REPLICATION_FACTOR),
            )
        replicas = min(get(shape.replication_factor), len(image.brokers))
        return TopicWish(
            name,
            new_uuid(self._entropy),
            get(shape.partitions),
            replicas,
            settings=shape.settings(self._config),
        )

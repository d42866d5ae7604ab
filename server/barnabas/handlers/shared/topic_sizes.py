"""Number of topics and partitions that a heartbeat has to go through, for groups with member epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.cluster.metadata.image import ClusterImage, TopicInfo
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.loop_budget import LoopBudget

NAMES_PER_CHECKPOINT = 500


def size_of_few(
    names: Collection[str],
    partitions_of: Callable[[TopicInfo, ClusterImage], int],
    metadata: MetadataStore,
) -> int:
    """Return the number of these topics, plus the partitions that an event visits for those that exist."""
    return sum([_size(name, partitions_of, metadata.image) for name in names])


async def size_of_topics(
    names: Collection[str],
    partitions_of: Callable[[TopicInfo, ClusterImage], int],
    metadata: MetadataStore,
    budget: LoopBudget,
) -> Callable[[], int]:
    """Return a function that returns the size of any number of topics.

    Few names are counted when that is called, at the time of the decision: topics that one of the waiting requests has
    visited, others need not visit. A thousand members that join together with a topic of a thousand partitions need its
    hash once. More names than fit a turn of the event loop are counted here.
    """
    if len(names) <= NAMES_PER_CHECKPOINT:
        return lambda: size_of_few(names, partitions_of, metadata)
    size = 0
    for number, name in enumerate(names, 1):
        size += _size(name, partitions_of, metadata.image)
        if number % NAMES_PER_CHECKPOINT == 0:
            await budget.checkpoint()
    return lambda: size


def _size(name: str, partitions_of: Callable[[TopicInfo, ClusterImage], int], image: ClusterImage) -> int:
    topic = image.topics.get(name)
    return 1 if topic is None else 1 + partitions_of(topic, image)

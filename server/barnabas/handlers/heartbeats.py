"""What the heartbeats of groups with member epochs have in common: how much a request has to go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.cluster.image import ClusterImage, TopicInfo
    from barnabas.loop_budget import LoopBudget

NAMES_PER_CHECKPOINT = 500


async def size_of_topics(
    names: Iterable[str],
    partitions_of: Callable[[TopicInfo, ClusterImage], int],
    image: ClusterImage,
    budget: LoopBudget,
) -> int:
    """Return how many topics these are, and how many partitions an event goes through for those that exist."""
    size = 0
    for number, name in enumerate(names, 1):
        topic = image.topics.get(name)
        size += 1 if topic is None else 1 + partitions_of(topic, image)
        if number % NAMES_PER_CHECKPOINT == 0:
            await budget.checkpoint()
    return size

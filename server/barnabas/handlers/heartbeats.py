"""What the heartbeats of groups with member epochs have in common: how much a request has to go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.cluster.image import ClusterImage, TopicInfo
    from barnabas.loop_budget import LoopBudget

NAMES_PER_CHECKPOINT = 500


def is_still_as_large(
    names: Collection[str],
    partitions_of: Callable[[TopicInfo, ClusterImage], int],
    image: ClusterImage,
    size_max: int,
) -> bool:
    """Return whether an event goes through more than `size_max` topics and partitions now, for those of a large request.

    What one of the events that waited has gone through, others need not: a thousand members that join at once with a
    topic of a thousand partitions need its hash once. More names than fit a turn of the event loop are not counted again.
    """
    if len(names) > NAMES_PER_CHECKPOINT:
        return True
    topics = [image.topics[name] for name in names if name in image.topics]
    return len(names) + sum([partitions_of(topic, image) for topic in topics]) > size_max


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

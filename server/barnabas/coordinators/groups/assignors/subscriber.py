"""A member as an assignor sees it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartitions


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, the topics that it subscribes to, and its partitions in the last target."""

    id: str
    topic_ids: frozenset[bytes]
    instance_id: str | None = None
    assigned: TopicIdPartitions = NO_PARTITIONS


def readers_by_topic(
    members: Iterable[Subscriber], order: Sequence[str], topic_ids: Iterable[bytes]
) -> dict[bytes, list[str]]:
    """Return the readers of each of these topics by topic id, in the members' order; topics without any are skipped.

    Subscriptions are mostly the same: topics with the same readers share one list, which callers must not change.
    """
    wanting: dict[frozenset[bytes], list[str]] = {}
    for member in members:
        wanting.setdefault(member.topic_ids, []).append(member.id)
    positions = {member_id: position for position, member_id in enumerate(order)}
    ids_by_readers: dict[tuple[int, ...], list[str]] = {}
    readers: dict[bytes, list[str]] = {}
    subscriptions = list(wanting.items())
    for topic_id in topic_ids:
        wanted_by = tuple(n for n, (topics, _) in enumerate(subscriptions) if topic_id in topics)
        if not wanted_by:
            continue
        if wanted_by not in ids_by_readers:
            ids = [member_id for n in wanted_by for member_id in subscriptions[n][1]]
            ids_by_readers[wanted_by] = sorted(ids, key=positions.__getitem__)
        readers[topic_id] = ids_by_readers[wanted_by]
    return readers

"""What coordinators know of topics: slots, and a hash of what a group reads. Pure.

A slot is one partition, named by its topic's id, so that a topic made again is another topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b

from barnabas.cluster.image import ClusterImage

Slot = tuple[bytes, int]
"""Topic id and partition."""
Slots = frozenset[Slot]

NO_SLOTS: Slots = frozenset()


def by_topic(slots: Iterable[Slot]) -> list[tuple[bytes, list[int]]]:
    """The slots as (topic id, partitions), both in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(slots):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[bytes]:
    """The ids of those topics that exist."""
    return frozenset(image.topics[name].id for name in names if name in image.topics)


def partition_counts(ids: Iterable[bytes], image: ClusterImage) -> dict[bytes, int]:
    """How many partitions these topics have, by id."""
    return {topic_id: len(image.topics[image.names_by_id[topic_id]].partitions) for topic_id in ids}


def topics_hash(names: Collection[str], image: ClusterImage) -> int:
    """A signed 64-bit hash of everything about these topics that an assignment depends on; 0 if none exists.

    It is compared with itself only, so that it need not be the one that Kafka computes: a group that was written by
    Kafka gets a new epoch when its first member is heard of here, and goes on.
    """
    hasher, found = blake2b(digest_size=8), False
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is None:
            continue
        found = True
        hasher.update(b"%s %d %s\n" % (topic.id, len(topic.partitions), name.encode()))
        for partition in topic.partitions:
            racks = {image.brokers[b].rack or "" for b in partition.replicas if b in image.brokers}
            hasher.update(",".join(sorted(racks)).encode() + b";")
    return (int.from_bytes(hasher.digest(), "big", signed=True) or 1) if found else 0

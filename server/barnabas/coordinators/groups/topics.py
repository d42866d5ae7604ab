"""Topics as coordinators see them: by id, with a hash of all inputs of an assignment. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import pack, unpack

from xxhash import xxh3_64_digest

from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, TopicInfo
from barnabas.wire.topic_partitions import TopicIdPartition

HASHES_MAX = 1 << 16
_hashes: dict[str, tuple[TopicInfo, Mapping[int, BrokerInfo], int]] = {}
"""The last hash of each topic, with its input."""


def by_topic(topic_partitions: Iterable[TopicIdPartition]) -> list[tuple[bytes, list[int]]]:
    """Return partitions grouped as (topic id, partition numbers), both in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in topic_partitions:
        topics.setdefault(topic_id, []).append(partition)
    return [(topic_id, sorted(topics[topic_id])) for topic_id in sorted(topics)]


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[bytes]:
    """Return the ids of those topics that exist."""
    return frozenset(image.topics[name].id for name in names if name in image.topics)


def partition_counts(ids: Iterable[bytes], image: ClusterImage) -> dict[bytes, int]:
    """Return the number of partitions of each of these topics, by id."""
    return {topic_id: len(image.topics[image.names_by_id[topic_id]].partitions) for topic_id in ids}


def topics_hash(names: Collection[str], image: ClusterImage) -> int:
    """Return a signed 64-bit hash of all facts about these topics that an assignment depends on; 0 if none exists.

    It equals the hash of Kafka's coordinator (KIP-1101), so that groups can move between the two.
    """
    hashes = [_hash_of(image.topics[name], image) for name in sorted(names) if name in image.topics]
    return signed_xxh3(pack(f"<{len(hashes)}q", *hashes)) if hashes else 0


def hash_size(topic: TopicInfo, image: ClusterImage) -> int:
    """Return how many partitions `topics_hash` visits for this topic: none if its hash is cached."""
    cached = _hashes.get(topic.name)
    is_known = cached is not None and cached[0] is topic and cached[1] is image.brokers
    return 0 if is_known else len(topic.partitions)


def _hash_of(topic: TopicInfo, image: ClusterImage) -> int:
    brokers = image.brokers
    cached = _hashes.get(topic.name)
    if cached is not None and cached[0] is topic and cached[1] is brokers:
        return cached[2]
    racks = tuple(
        tuple(sorted(rack for b in partition.replicas if b in brokers and (rack := brokers[b].rack)))
        for partition in topic.partitions
    )
    if len(_hashes) >= HASHES_MAX:
        _hashes.clear()
    topic_hash = _topic_hash(topic.id, topic.name, racks)
    _hashes[topic.name] = (topic, brokers, topic_hash)
    return topic_hash


def _topic_hash(topic_id: bytes, name: str, racks: tuple[tuple[str, ...], ...]) -> int:
    """Return the hash of a topic like Kafka: of a version, id, name, partitions, and each partition's number and racks."""
    high, low = unpack(">qq", topic_id)
    parts = [pack("<bqq", 0, high, low), _text(name), pack("<i", len(racks))]
    for index, of_partition in enumerate(racks):
        parts.append(pack("<i", index))
        parts += [pack("<i", len(rack)) + _text(rack) for rack in of_partition]
    return signed_xxh3(b"".join(parts))


def signed_xxh3(data: bytes) -> int:
    """Return the 64-bit hash XXH3 as in Java: a signed number."""
    return int.from_bytes(xxh3_64_digest(data), "big", signed=True)


def _text(value: str) -> bytes:
    """Return a string in the encoding of the hash: Java's characters, then their number."""
    data = value.encode("utf-16-le")
    return data + pack("<i", len(data) // 2)

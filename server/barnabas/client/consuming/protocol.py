"""Subscriptions that members of a classic group send to its leader, and the leader's assignments. Pure.

The rule: the formats are those of Kafka's clients, so that members of any client can share a group: subscriptions in
version 3, with the user data of the sticky assignors, and assignments in version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from barnabas.client.consuming.assignors import ASSIGNORS
from barnabas.client.consuming.members import Member
from barnabas.client.values import TopicPartition
from barnabas.wire.codec import encode_versioned
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.data import consumer_protocol_assignment as assignment_data
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription_data

SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 3, 0
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
Subscription = subscription_data.ConsumerProtocolSubscription
AssignmentData = assignment_data.ConsumerProtocolAssignment


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, both in order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        grouped.setdefault(topic, []).append(partition)
    return grouped


def encode_subscription(
    assignor: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    remembered: Iterable[TopicPartition],
    generation: int,
    rack: str,
) -> bytes:
    """Encode a member's metadata for the leader: its partitions, or those before the rebalance (`remembered`)."""
    user_data = None
    if ASSIGNORS[assignor].has_memory:
        user_data = _encode_memory(remembered, generation)
    elif ASSIGNORS[assignor].is_cooperative:
        user_data = _INT32.pack(generation)
    value = Subscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[Subscription.TopicPartition(*topic) for topic in by_topic(owned).items()],
        generation_id=generation,
        rack_id=rack or None,
    )
    return encode_versioned(subscription_data.CODEC, value, SUBSCRIPTION_VERSION)


def decode_member(assignor: str, member_id: str, instance_id: str | None, data: bytes) -> Member:
    """Decode a member's metadata. Raises DecodeError."""
    version = _version_of(data, SUBSCRIPTION_VERSION)
    value, _ = subscription_data.CODEC.decode(data, _INT16.size, version)
    owned = [
        TopicPartition(owned_partition.topic, part)
        for owned_partition in value.owned_partitions
        for part in owned_partition.partitions
    ]
    generation = value.generation_id
    if ASSIGNORS[assignor].has_memory and value.user_data:
        owned, generation = _decode_memory(value.user_data)
    elif ASSIGNORS[assignor].is_cooperative and version < 2 and value.user_data:
        (generation,) = _INT32.unpack_from(value.user_data)
    return Member(member_id, frozenset(value.topics), instance_id, frozenset(owned), generation)


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    """Write the partitions of a member."""
    value = AssignmentData([AssignmentData.TopicPartition(*topic) for topic in by_topic(places).items()])
    return encode_versioned(assignment_data.CODEC, value, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> set[TopicPartition]:
    """Decode the partitions of a member; empty data means no partitions. Raises DecodeError."""
    if not data:
        return set()
    version = _version_of(data, assignment_data.CODEC.max_version)
    value, _ = assignment_data.CODEC.decode(data, _INT16.size, version)
    return {
        TopicPartition(assigned_partition.topic, part)
        for assigned_partition in value.assigned_partitions
        for part in assigned_partition.partitions
    }


def _version_of(data: bytes, newest: int) -> int:
    """Return the version in which to decode: data of a newer one has more fields at the end."""
    if len(data) < _INT16.size:
        raise DecodeError("is too short", "ConsumerProtocol", 0)
    return max(0, min(int(_INT16.unpack_from(data)[0]), newest))


def _encode_memory(places: Iterable[TopicPartition], generation: int) -> bytes:
    """Write the user data of Kafka's sticky assignor, version 1: partitions by topic, and their generation."""
    topics = by_topic(places)
    parts = [_INT32.pack(len(topics))]
    for topic, partitions in topics.items():
        name = topic.encode()
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(partitions)))
        parts += map(_INT32.pack, partitions)
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def _decode_memory(data: bytes) -> tuple[list[TopicPartition], int]:
    """Decode the user data of `_encode_memory`; version 0 has no generation. Invalid data counts as empty, as in Kafka."""
    places, generation, pos = list[TopicPartition](), -1, _INT32.size
    try:
        for _ in range(_INT32.unpack_from(data)[0]):
            (size,) = _INT16.unpack_from(data, pos)
            topic = data[pos + _INT16.size : pos + _INT16.size + size].decode()
            pos += _INT16.size + size
            (count,) = _INT32.unpack_from(data, pos)
            pos += _INT32.size
            places += [
                TopicPartition(topic, partition) for partition in struct.unpack_from(f">{count}i", data, pos)
            ]
            pos += _INT32.size * count
        if len(data) - pos >= _INT32.size:
            (generation,) = _INT32.unpack_from(data, pos)
    except (struct.error, UnicodeDecodeError, MemoryError, OverflowError):
        return [], -1
    return places, generation

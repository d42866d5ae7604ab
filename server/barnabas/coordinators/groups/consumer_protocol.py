"""Subscriptions and assignments of consumers, as embedded in the classic protocol. Pure.

The protocol names topics, groups have their ids: topics that do not exist are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.topics import by_topic
from barnabas.wire.codec import decode_prefix, encode_versioned
from barnabas.wire.generated.data import consumer_protocol_assignment as assignment
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription
from barnabas.wire.generated.data.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.wire.generated.data.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.wire.topic_partitions import TopicIdPartition, TopicIdPartitions

CONSUMER = "consumer"
"""The protocol type of consumer groups."""

SAID_ENTRIES_MAX = 250_000
"""Limit of topics and partitions in a member's metadata; the default limit of a request."""


def read_topics(metadata: bytes) -> list[str]:
    """Return the topics in a member's metadata, of any version. Raises DecodeError.

    Only the fields of version 0 are read, with which every version begins, as in Kafka: a member may omit later fields
    of its version, or add fields of later versions.
    """
    decoded = decode_prefix(subscription.CODEC, metadata, version=0, entries_max=SAID_ENTRIES_MAX)
    return decoded.topics


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return a member's complete metadata. Raises DecodeError, also if it is too large."""
    return decode_prefix(subscription.CODEC, metadata, entries_max=SAID_ENTRIES_MAX)


def owned_partitions(
    member_subscription: ConsumerProtocolSubscription, image: ClusterImage
) -> TopicIdPartitions:
    """Return the owned partitions in a member's metadata."""
    return _partitions_of(member_subscription.owned_partitions, image)


def read_assignment(data: bytes, image: ClusterImage) -> TopicIdPartitions:
    """Return the partitions in an assignment; none in an empty one. Raises DecodeError."""
    if not data:
        return frozenset()
    decoded = decode_prefix(assignment.CODEC, data, entries_max=SAID_ENTRIES_MAX)
    return _partitions_of(decoded.assigned_partitions, image)


def _partitions_of(topics: Iterable[Any], image: ClusterImage) -> TopicIdPartitions:
    return frozenset(
        (image.topics[topic.topic].id, partition)
        for topic in topics
        if topic.topic in image.topics
        for partition in topic.partitions
    )


def write_assignment(
    topic_partitions: Iterable[TopicIdPartition], member_metadata: bytes, image: ClusterImage
) -> bytes:
    """Return an assignment for the member with this metadata, in the version that it supports."""
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=partitions)
            for topic_id, partitions in by_topic(topic_partitions)
            if (name := image.topic_name(topic_id)) is not None
        ]
    )
    version = int.from_bytes(member_metadata[:2], "big")
    return encode_versioned(assignment.CODEC, value, min(version, assignment.CODEC.max_version))

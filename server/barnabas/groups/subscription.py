"""What the members of a consumer group are subscribed to, read from their own metadata. Pure."""

from __future__ import annotations

from barnabas.errors import PeerError
from barnabas.groups.classic import ClassicGroup
from barnabas.wire.codec import decode_versioned
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription

CONSUMER = "consumer"


def subscribed_topics(group: ClassicGroup) -> set[str] | None:
    """The topics of all members; None when the group has members and they are no consumers or cannot be read."""
    if not group.members:
        return set()
    if group.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            try:
                topics.update(decode_versioned(subscription.CODEC, metadata).topics)
            except PeerError:
                return None
    return topics

"""What the members of a consumer group are subscribed to, read from their own metadata. Pure."""

from __future__ import annotations

from barnabas.errors import PeerError
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.consumer.group import ConsumerGroup
from barnabas.groups.embedded import CONSUMER, read_subscription
from barnabas.groups.streams.group import StreamsGroup


def subscribed_topics(group: ClassicGroup | ConsumerGroup | StreamsGroup) -> set[str] | None:
    """The topics of all members, by the classic protocol as they say for the chosen assignor; None if not known.

    It is not for groups that are no consumers, before the first generation, or when a member's metadata is not the
    consumers' (their own assignors may write anything).
    """
    if not isinstance(group, ClassicGroup):
        return group.subscribed_topics()
    if not group.members:
        return set()
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(read_subscription(member.metadata_for(group.protocol)).topics)
        except PeerError:
            return None
    return topics

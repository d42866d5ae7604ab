"""A member as an assignor sees it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.groups.topics import NO_SLOTS, Slots


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who wants partitions of which topics, and what it was to have until now."""

    id: str
    topic_ids: frozenset[bytes]
    instance_id: str | None = None
    assigned: Slots = NO_SLOTS

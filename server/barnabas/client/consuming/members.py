"""Members of a classic group, as its leader receives them, and their assignments. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.values import TopicPartition


@dataclass(slots=True)
class Member:
    """A member, as described to the leader of a group."""

    id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()
    """Partitions that it has, or had in the generation before."""
    generation: int = -1
    """The generation that it had them in."""

    @property
    def order(self) -> tuple[bool, str]:
        """Sort key of the members: static ones first, by their instance ids, which outlive a restart."""
        return self.instance_id is None, self.instance_id or self.id


Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id; each member is in it."""

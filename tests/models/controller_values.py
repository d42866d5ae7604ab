"""States, moves and requests of the model of a controller."""

from __future__ import annotations

from dataclasses import dataclass, field

Partition = tuple[str, int]
NOBODY = -1
DELETES = -2
"""The leader, and the leader epoch, of a topic that is being deleted."""


@dataclass(frozen=True)
class State:
    """Leader and in-sync replicas; `written` is the zxid of the last write, 0 if it is not known."""

    leader: int
    isr: tuple[int, ...]
    epoch: int = 0
    recovering: bool = False
    written: int = 0


@dataclass(frozen=True)
class Move:
    """Replicas of a partition: those of the target first, with those that come and those that go."""

    replicas: tuple[int, ...]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(id_ for id_ in self.replicas if id_ not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(id_ for id_ in self.replicas if id_ not in self.removing)

    @property
    def goes_on(self) -> bool:
        return bool(self.adding | self.removing)

    def to(self, target: tuple[int, ...]) -> Move:
        """A move to these, by whatever way; it begins where the last one began."""
        leaving = tuple(id_ for id_ in self.origin if id_ not in target)
        return Move(target + leaving, frozenset(target) - {*self.origin}, frozenset(leaving))


@dataclass
class Sent:
    """Requests that go out together: to each broker leaders and ISRs, then metadata, then stops."""

    leads: dict[int, dict[Partition, tuple[State, bool]]] = field(default_factory=dict)
    """States, with True where the log may be made."""
    metadata: dict[int, dict[Partition, State]] = field(default_factory=dict)
    stops: dict[int, dict[Partition, tuple[int, bool]]] = field(default_factory=dict)
    """Leader epochs, with True where the log is to be deleted."""
    brokers: dict[int, int] = field(default_factory=dict)
    """Those that are registered then, with epochs."""
    moves: dict[Partition, Move] = field(default_factory=dict)
    """The replicas of all partitions then."""

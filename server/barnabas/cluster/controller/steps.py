"""Steps that the controller's core requests from the shell, one at a time. Pure.

The rule: the core is written as generators that yield steps and are sent their outcomes; the shell carries them out on
ZooKeeper and the brokers' connections, a test on dictionaries. A step that cannot be carried out because another
controller has been elected, or the session is lost, never returns: the generator is closed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barnabas.cluster.controller.state import Assignment, PartitionState
from barnabas.wire.topic_partitions import TopicPartition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Read the states of these partitions; the outcome excludes partitions without a state."""

    partitions: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class WriteStates:
    """Write these states, each if the znode still has the state's version. The outcome is a Written."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class CreateStates:
    """Create the znodes of partitions without a state. The outcome is a Written; existing states are conflicts."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(slots=True)
class Written:
    """Result of writing the states of partitions."""

    done: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    """With the versions that the znodes have now."""
    conflicts: list[TopicPartition] = field(default_factory=list)
    """Another writer was quicker: read, decide and write once more."""
    failed: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteAssignment:
    """Write the replicas of all partitions of a topic. The outcome: whether the topic still exists."""

    topic: str
    topic_id: bytes | None
    assignments: Mapping[int, Assignment]


@dataclass(frozen=True, slots=True)
class ReadUnclean:
    """Determine which of these topics allow unclean elections: the outcome is the set of these."""

    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Remove a topic's znodes, its settings, and the request to delete it."""

    topic: str


@dataclass(frozen=True, slots=True)
class RemoveDeletions:
    """Remove the requests to delete these topics."""

    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class ReadReassignments:
    """Read /admin/reassign_partitions: the outcome is target replicas by partition, None if the znode is not there."""


@dataclass(frozen=True, slots=True)
class WatchState:
    """Look at a partition's state whenever it changes, for as long as the partition is being reassigned."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class WriteReassignments:
    """Write /admin/reassign_partitions, or remove it if it is empty."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Send:
    """Send requests to brokers, in order for each broker."""

    requests: list[Outgoing]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A control request in its version; `deleting` are the partitions that StopReplica asks to delete."""

    broker_id: int
    broker_epoch: int
    version: int
    request: Any
    deleting: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Yield to other tasks."""


GIVE_WAY = GiveWay()
PIECE = 50
"""Partitions handled between two GIVE_WAY."""
SCANNED = 500
"""Partitions searched between two GIVE_WAY."""

Step = (
    ReadStates
    | WriteStates
    | CreateStates
    | WriteAssignment
    | ReadUnclean
    | DeleteTopic
    | RemoveDeletions
    | ReadReassignments
    | WatchState
    | WriteReassignments
    | Send
    | GiveWay
)
Steps = Generator[Step, Any, T]

"""State of the cluster as the controller knows it. Pure.

The rule: ZooKeeper has the truth; this is a copy of the controller's reads and writes in one epoch, and changes only
after ZooKeeper. Whether a partition is new, online or offline is derived, not stored.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from barnabas.wire.topic_partitions import TopicPartition

NO_LEADER = -1
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a broker's listener; `security_protocol` is 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    listener: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker; `epoch` is the czxid of its registration (KIP-380)."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return where it listens by this name, None if it does not."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of a partition, the preferred leader first; a reassignment adds and removes some (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after it."""
        return _without(self.replicas, self.removing)

    @property
    def is_reassigned(self) -> bool:
        """True while a reassignment is in progress."""
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: Sequence[int]) -> Assignment:
        """Return the assignment with which a reassignment to these replicas begins, even if another one is in progress."""
        replicas = tuple(dict.fromkeys((*target, *self.origin)))
        return Assignment(replicas, _without(replicas, self.origin), _without(replicas, target))


def _without(replicas: Iterable[int], others: Container[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Content of the znode of a partition's state; `version` is the znode's, which is the partition epoch.

    `written` is the zxid of the last write (mzxid), 0 where it is not known.
    """

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    controller_epoch: int = 0
    version: int = 0
    recovering: bool = False
    written: int = 0

    def next_epoch(
        self, leader: int, isr: Iterable[int], *, recovering: bool | None = None
    ) -> PartitionState:
        """Return the state with the next leader epoch."""
        return replace(
            self,
            leader=leader,
            isr=tuple(isr),
            leader_epoch=self.leader_epoch + 1,
            recovering=self.recovering if recovering is None else recovering,
        )


@dataclass(slots=True)
class Deletion:
    """Progress of the deletion of a topic; replicas are (partition, broker)."""

    begun: bool = False
    """All brokers have been sent that the topic has no leaders."""
    asked: set[tuple[int, int]] = field(default_factory=set)
    """Replicas that brokers have been asked to delete."""
    deleted: set[tuple[int, int]] = field(default_factory=set)
    failed: set[tuple[int, int]] = field(default_factory=set)
    """Replicas that could not be deleted; tried again when their broker comes back."""


class ControllerState:
    """All state of one controller, in one epoch."""

    def __init__(self, epoch: int = 0, epoch_version: int = 0) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        """The version of the znode that has the epoch: every write is conditional on it."""
        self.brokers: dict[int, Broker] = {}
        """Registered brokers, those included that are shutting down."""
        self.shutting_down: set[int] = set()
        """Brokers that shut down, or ended before their sessions: they are not elected."""
        self.refusing: set[int] = set()
        """Those of them that refuse connections without having asked for a shutdown."""
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.unnamed: dict[str, set[int]] = {}
        """Topics that were there before this controller, without an id, and the brokers that know of none either."""
        self.assignments: dict[str, dict[int, Assignment]] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.reassigning: dict[TopicPartition, None] = {}
        """Partitions with a reassignment in progress, in the order of their beginnings."""
        self.offline_dirs: dict[int, set[TopicPartition]] = {}
        """Replicas in log dirs that are offline, by broker."""
        self.deletions: dict[str, Deletion] = {}
        """Topics that are to be deleted."""

    # --- brokers --------------------------------------------------------------------------------------------

    def is_live(self, broker_id: int) -> bool:
        """Return whether a broker is registered and is not shutting down."""
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def live_ids(self) -> set[int]:
        """Return the brokers that are registered and not shutting down."""
        return self.brokers.keys() - self.shutting_down

    def is_online(
        self, broker_id: int, partition: TopicPartition, *, also_shutting_down: bool = False
    ) -> bool:
        """Return whether a replica can be used: its broker lives, and its log dir."""
        if broker_id not in self.brokers or (broker_id in self.shutting_down and not also_shutting_down):
            return False
        return partition not in self.offline_dirs.get(broker_id, ())

    def was_away(self, broker_id: int, state: PartitionState) -> bool:
        """Return whether a broker has registered since the state was written: its writer did not notice the absence."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.epoch > state.written > 0

    def online(
        self, replicas: Iterable[int], partition: TopicPartition, *, also_shutting_down: bool = False
    ) -> tuple[int, ...]:
        """Return the usable ones among these replicas, in order."""
        return tuple(
            replica
            for replica in replicas
            if self.is_online(replica, partition, also_shutting_down=also_shutting_down)
        )

    # --- topics ---------------------------------------------------------------------------------------------

    def assignment(self, partition: TopicPartition) -> Assignment | None:
        """Return a partition's replicas, None if there is no such partition."""
        return self.assignments.get(partition[0], {}).get(partition[1])

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return a partition's replicas, none if there is no such partition."""
        assignment = self.assignment(partition)
        return assignment.replicas if assignment is not None else ()

    def partitions(self) -> Iterator[tuple[TopicPartition, Assignment]]:
        """All partitions with their replicas."""
        for topic, assignments in self.assignments.items():
            for index, assignment in assignments.items():
                yield (topic, index), assignment

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions."""
        return [(topic, index) for index in self.assignments.get(topic, {})]

    def is_deleting(self, topic: str) -> bool:
        """Return whether a topic is being deleted, which begins when none of its partitions is being reassigned."""
        deletion = self.deletions.get(topic)
        return deletion is not None and (deletion.begun or not self.is_reassigned(topic))

    def is_reassigned(self, topic: str) -> bool:
        """Return whether a partition of a topic is being reassigned."""
        return any(name == topic for name, _ in self.reassigning)

    def is_offline(self, partition: TopicPartition) -> bool:
        """Return whether a partition has no usable leader, or never had one; a leader that shuts down still counts."""
        state = self.states.get(partition)
        return state is None or not self.is_online(state.leader, partition, also_shutting_down=True)

    def add_topic(self, topic: str, topic_id: bytes | None, assignments: dict[int, Assignment]) -> None:
        """Note a topic that has been read."""
        self.assignments[topic] = assignments
        if topic_id is not None:
            self.name_topic(topic, topic_id)
        for index, assignment in assignments.items():
            if assignment.is_reassigned:
                self.reassigning[topic, index] = None

    def name_topic(self, topic: str, topic_id: bytes) -> None:
        """Note a topic's id."""
        self.topic_ids[topic] = topic_id
        self.topic_names[topic_id] = topic
        self.unnamed.pop(topic, None)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic with all its state."""
        for index in self.assignments.pop(topic, {}):
            partition = (topic, index)
            self.states.pop(partition, None)
            self.reassigning.pop(partition, None)
            for lost in self.offline_dirs.values():
                lost.discard(partition)
        self.deletions.pop(topic, None)
        self.unnamed.pop(topic, None)
        topic_id = self.topic_ids.pop(topic, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)

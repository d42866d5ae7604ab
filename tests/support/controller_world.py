"""A cluster for the controller's core: znodes in dictionaries, brokers that obey, and rules checked at each write.

The rule: a write of a state that could lose committed records, or that has two leaders in one epoch, fails immediately.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from barnabas.cluster.controller import brokers, deletion, reassignment
from barnabas.cluster.controller.core import ControllerSettings, Core
from barnabas.cluster.controller.state import Assignment, Broker, ControllerState, Endpoint, PartitionState
from barnabas.cluster.controller.steps import (
    CreateStates,
    DeleteTopic,
    GiveWay,
    Outgoing,
    ReadReassignments,
    ReadStates,
    ReadUnclean,
    RemoveDeletions,
    Send,
    WatchState,
    WriteAssignment,
    WriteReassignments,
    WriteStates,
    Written,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
TopicPartition = tuple[str, int]


class RuleBrokenError(AssertionError):
    """The controller has broken a guarantee."""


class CrashedError(Exception):
    """The controller has died in the middle of its work."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise RuleBrokenError(what)


@dataclass
class ModelBroker:
    """A registered broker: its pending requests, and its view of its replicas."""

    info: Broker
    inbox: deque[Outgoing] = field(default_factory=deque)
    believes: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)
    """Leader, leader epoch, partition epoch."""
    metadata: dict[TopicPartition, int] = field(default_factory=dict)
    """Leaders of all partitions."""
    known_brokers: set[int] = field(default_factory=set)
    broken: set[TopicPartition] = field(default_factory=set)


class World:
    """Znodes and brokers, and one controller at a time."""

    def __init__(self, random: Random, **settings: Any) -> None:
        self.random = random
        self.settings = ControllerSettings(broker_id=1, **settings)
        self.states: dict[TopicPartition, PartitionState] = {}
        self.assignments: dict[str, dict[int, Assignment]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.deletions: set[str] = set()
        self.znode: dict[TopicPartition, tuple[int, ...]] | None = None
        self.unclean: set[str] = set()
        self.brokers: dict[int, ModelBroker] = {}
        self.disks: dict[int, set[TopicPartition]] = {}
        """Replicas on the disks of brokers, including stopped ones."""
        self.epoch = 0
        self.last_czxid = 100
        self.is_clean = True
        """True if the current election must be clean."""
        self.joins = False
        """True if the ISR may grow, as a leader has proposed it."""
        self.trouble = 0.0
        """Probability that a write conflicts with another one, or that its response is lost."""
        self.crashes = 0.0
        """Probability that the controller dies before a step."""
        self.core = Core(self.settings, ControllerState())

    # --- brokers --------------------------------------------------------------------------------------------

    def register(self, broker_id: int) -> None:
        self.last_czxid += 1
        info = Broker(
            broker_id,
            self.last_czxid,
            (Endpoint("PLAINTEXT", f"host{broker_id}", 9092),),
            f"rack{broker_id % 2}",
        )
        self.brokers[broker_id] = ModelBroker(info)

    def brokers_changed(self) -> None:
        self.run(brokers.changed(self.core, {id_: model.info for id_, model in self.brokers.items()}))

    def deliver(self, broker_id: int) -> bool:
        """Let a broker handle one request, and the controller its response; returns False if there is none."""
        model = self.brokers[broker_id]
        if not model.inbox:
            return False
        sent = model.inbox.popleft()
        request = sent.request
        if request.controller_epoch < self.epoch or request.broker_epoch != model.info.epoch:
            return True
        if isinstance(request, LeaderAndIsrRequest):
            errors = self._lead_or_follow(model, request)
            self.run(brokers.replicas_answered(self.core, model.info, errors))
        elif isinstance(request, StopReplicaRequest):
            self._stop(model, sent)
        else:
            model.known_brokers = {broker.id for broker in request.live_brokers}
            for topic in request.topic_states:
                for state in topic.partition_states:
                    model.metadata[topic.topic_name, state.partition_index] = state.leader
                    if state.leader == -2:
                        del model.metadata[topic.topic_name, state.partition_index]
        return True

    def _lead_or_follow(self, model: ModelBroker, request: LeaderAndIsrRequest) -> dict[TopicPartition, int]:
        errors: dict[TopicPartition, int] = {}
        for topic in request.topic_states:
            check(topic.topic_id == self.topic_ids.get(topic.topic_name, topic.topic_id), "the topic's id")
            for state in topic.partition_states:
                partition = (topic.topic_name, state.partition_index)
                if partition in model.broken:
                    errors[partition] = STORAGE_ERROR
                    continue
                errors[partition] = 0
                now = model.believes.get(partition, (0, -1, -1))
                if (state.leader_epoch, state.partition_epoch) > now[1:]:
                    model.believes[partition] = (state.leader, state.leader_epoch, state.partition_epoch)
                    self.disks.setdefault(model.info.id, set()).add(partition)
        return errors

    def _stop(self, model: ModelBroker, sent: Outgoing) -> None:
        errors = {}
        for topic in sent.request.topic_states:
            for state in topic.partition_states:
                partition = (topic.topic_name, state.partition_index)
                if partition in model.broken:
                    errors[partition] = STORAGE_ERROR
                    continue
                own = model.believes.get(partition, (0, -1, -1))
                if state.leader_epoch not in (-1, -2) and state.leader_epoch < own[1]:
                    errors[partition] = ErrorCode.FENCED_LEADER_EPOCH
                    continue
                errors[partition] = 0
                model.believes.pop(partition, None)
                if state.delete_partition:
                    self.disks.get(model.info.id, set()).discard(partition)
        deleting = {key: code for key, code in errors.items() if key in sent.deleting}
        if deleting:
            self.run(deletion.answered(self.core, model.info.id, deleting))

    def settle(self) -> None:
        """Deliver requests until no more are sent."""
        for _ in range(100_000):
            waiting = [id_ for id_, model in sorted(self.brokers.items()) if model.inbox]
            if not waiting:
                return
            self.deliver(self.random.choice(waiting))
        raise RuleBrokenError("requests go on for ever")

    # --- the controller -------------------------------------------------------------------------------------

    def elect_controller(self) -> None:
        """Have a new controller read the state; pending requests of the previous controller may be lost."""
        self.epoch += 1
        crashes, self.crashes = self.crashes, 0.0
        for model in self.brokers.values():
            while model.inbox and self.random.random() < 0.5:
                model.inbox.pop()
        state = ControllerState(self.epoch)
        state.brokers = {id_: model.info for id_, model in self.brokers.items()}
        for topic, assignments in self.assignments.items():
            state.add_topic(topic, self.topic_ids.get(topic), dict(assignments))
        state.states = dict(self.states)
        self.core = Core(self.settings, state)
        # In the order of the shell: topics to delete are known before anything is sent.
        for topic in self.deletions & self.assignments.keys():
            state.deletions.setdefault(topic, deletion.Deletion())
        self.run(brokers.start(self.core))
        self.run(reassignment.from_znode(self.core))
        self.run(reassignment.resume(self.core))
        self.run(deletion.wanted(self.core, sorted(self.deletions)))
        self.crashes = crashes

    def run(self, steps: Any) -> Any:
        """Carry out the steps of the core; returns their outcome."""
        outcome = None
        try:
            while True:
                step = steps.send(outcome)
                if self.random.random() < self.crashes and not isinstance(step, GiveWay):
                    steps.close()
                    raise CrashedError
                outcome = self._carry_out(step)
        except StopIteration as end:
            return end.value

    def _carry_out(self, step: Any) -> Any:
        match step:
            case GiveWay():
                return None
            case ReadStates(partitions):
                return {key: self.states[key] for key in partitions if key in self.states}
            case WriteStates(states):
                return self._write(dict(states))
            case CreateStates(states):
                return self._create(dict(states))
            case WriteAssignment(topic, topic_id, assignments):
                if topic not in self.assignments:
                    return False
                check(topic_id == self.topic_ids.get(topic), "the topic's id was kept")
                for index, new in assignments.items():
                    self._check_end((topic, index), self.assignments[topic].get(index), new)
                self.assignments[topic] = dict(assignments)
                return True
            case ReadUnclean(topics):
                return self.unclean & set(topics)
            case DeleteTopic(topic):
                for broker_id, disk in self.disks.items():
                    leftover = [key for key in disk if key[0] == topic and broker_id in self._replicas(key)]
                    check(not leftover, f"{leftover} is left on broker {broker_id}")
                del self.assignments[topic]
                self.states = {key: state for key, state in self.states.items() if key[0] != topic}
                self.deletions.discard(topic)
            case RemoveDeletions(topics):
                self.deletions -= set(topics)
            case ReadReassignments():
                return self.znode
            case WatchState():
                return None  # this world notifies the controller of leaders' writes
            case WriteReassignments(targets):
                self.znode = dict(targets) or None
            case Send(requests):
                for request in requests:
                    if request.broker_id in self.brokers:
                        self.brokers[request.broker_id].inbox.append(request)
            case _:
                raise AssertionError(step)
        return None

    def _replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        return self.assignments[partition[0]][partition[1]].replicas

    def _write(self, states: dict[TopicPartition, PartitionState]) -> Written:
        written = Written()
        for partition, new in states.items():
            old = self.states.get(partition)
            if old is not None and self.random.random() < self.trouble:
                self._leader_writes(partition, old)
                old = self.states[partition]
            if old is None:
                written.failed[partition] = "there is no such znode"
            elif new.version != old.version:
                written.conflicts.append(partition)
            else:
                self._check(partition, old, new)
                new = replace(new, version=old.version + 1)
                self.states[partition] = new
                if self.random.random() < self.trouble:
                    written.conflicts.append(partition)  # the answer was lost, and it was tried again
                else:
                    written.done[partition] = new
        return written

    def _leader_writes(self, partition: TopicPartition, old: PartitionState) -> None:
        """Change the ISR as a leader of an older version does, by a write of its own."""
        if old.leader in self.brokers and partition not in self.brokers[old.leader].broken:
            isr = tuple(id_ for id_ in old.isr if id_ == old.leader or self.random.random() < 0.5)
            self.states[partition] = replace(old, isr=isr, version=old.version + 1)
            believes = self.brokers[old.leader].believes
            if believes.get(partition, (0, -1, -1))[:2] == (old.leader, old.leader_epoch):
                believes[partition] = (old.leader, old.leader_epoch, old.version + 1)

    def _check_end(self, partition: TopicPartition, old: Assignment | None, new: Assignment) -> None:
        """Check that a reassignment ends only with its whole target in sync."""
        if old is not None and old.adding and not new.is_reassigned and new.replicas == old.target:
            in_sync = partition in self.states and set(self.states[partition].isr) == set(new.replicas)
            check(in_sync or set(new.replicas) == set(old.origin), f"{partition} has moved: {old}")

    def _create(self, states: dict[TopicPartition, PartitionState]) -> Written:
        written = Written()
        for partition, new in states.items():
            if partition in self.states:
                written.conflicts.append(partition)
                continue
            check(new.leader in new.isr and set(new.isr) <= set(self._replicas(partition)), "a first state")
            self.states[partition] = new
            if self.random.random() < self.trouble:
                written.conflicts.append(partition)
            else:
                written.done[partition] = new
        return written

    def _check(self, partition: TopicPartition, old: PartitionState, new: PartitionState) -> None:
        what = f"{partition}: {old} became {new}"
        is_unclean = not self.is_clean or partition[0] in self.unclean
        check(new.leader_epoch >= old.leader_epoch, f"leader epochs only grow: {what}")
        check(new.leader == old.leader or new.leader_epoch > old.leader_epoch, f"one leader an epoch: {what}")
        check(bool(new.isr), f"somebody has everything: {what}")
        check(new.leader == -1 or new.leader in new.isr, f"a leader is in sync: {what}")
        if not self.joins:
            check(set(new.isr) <= set(old.isr) or is_unclean, f"nobody joins unasked: {what}")
            check(new.leader in (-1, *old.isr) or is_unclean, f"only who is in sync may lead: {what}")
        if set(old.isr) & set(new.isr) == set():
            able = [
                id_
                for id_ in old.isr
                if id_ in self.brokers
                and partition not in self.brokers[id_].broken
                and id_ not in self.core.state.shutting_down
            ]
            check(not able, f"unclean though somebody in sync lives: {what}")
        check(new.controller_epoch == self.epoch, f"written by an old controller: {what}")


def world_with_one_partition(topic: str, topic_id: bytes, replicas: tuple[int, ...]) -> World:
    """Return a world with one partition: its replicas are in sync, the first leads, and a controller knows the state."""
    world = World(Random(0))
    for broker in replicas:
        world.register(broker)
    world.assignments = {topic: {0: Assignment(replicas)}}
    world.topic_ids = {topic: topic_id}
    world.states = {(topic, 0): PartitionState(replicas[0], replicas)}
    world.elect_controller()
    return world

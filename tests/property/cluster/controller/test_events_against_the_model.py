"""Random clusters, and a few events one after the other: states, and what each broker is told, are those of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.cluster.controller import brokers, leaders, reassignment
from barnabas.cluster.controller.core import ControllerSettings, Core
from barnabas.cluster.controller.state import Assignment, Broker, ControllerState, Deletion, PartitionState
from barnabas.cluster.controller.steps import Send
from barnabas.cluster.metadata.ports import ElectionType
from barnabas.cluster.metadata.protocol_version import V3_9_IV0, ProtocolVersion
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.models.controller import Controller
from tests.models.controller_values import Move, Partition, Sent, State
from tests.support.controller_steps import Shell, endpoint
from tests.support.effort import examples

BROKERS = (1, 2, 3, 4)
TOPICS = {"t": 2, "u": 1, "going": 1}
CONTROLLER_EPOCH = 7
V3_1 = ProtocolVersion.parse("3.1")


class Both:
    """The core and its model, in the same state."""

    def __init__(self, random: Random) -> None:
        self.random = random
        registered = {id_: 100 + id_ for id_ in BROKERS if random.random() < 0.75}
        partitions = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
        replicas = {part: tuple(random.sample(BROKERS, random.choice((1, 2, 3, 3)))) for part in partitions}
        deleting = {"going"} if random.random() < 0.6 else set()
        targets = {
            part: self._target() for part in partitions if part[0] not in deleting and random.random() < 0.3
        }
        targets = {part: target for part, target in targets.items() if target}
        moves = {part: Move(of) for part, of in replicas.items()}
        moves |= {part: moves[part].to(target) for part, target in targets.items()}
        replicas = {part: move.replicas for part, move in moves.items()}
        moving = [partition for partition in partitions if moves[partition].goes_on]
        states = {part: self._state(replicas[part]) for part in partitions if random.random() < 0.85}
        lost = {
            (broker, partition)
            for partition in partitions
            for broker in replicas[partition]
            if broker in registered and random.random() < 0.1
        }
        stopping = {id_ for id_ in registered if random.random() < 0.15}
        refusing = {id_ for id_ in stopping if random.random() < 0.5}
        unclean = {topic for topic in TOPICS if random.random() < 0.4}
        asked = {
            (broker, partition)
            for partition in partitions
            for broker in replicas[partition]
            if partition[0] in deleting and broker in registered
        }
        percent = random.choice((0, 10, 33, 34, 50, 100))
        self.protocol = random.choice((V3_1, V3_9_IV0))
        self.model = Controller(
            registered, moves, states, stopping, refusing, lost, unclean, deleting, asked,
            imbalance_percent=percent, marks_recovery=self.protocol is V3_9_IV0, moving=moving,
        )  # fmt: skip
        controller_state = ControllerState(CONTROLLER_EPOCH)
        controller_state.brokers = {id_: broker_of(id_, epoch) for id_, epoch in registered.items()}
        for topic, count in TOPICS.items():
            assignments = {index: assignment_of(moves[topic, index]) for index in range(count)}
            controller_state.add_topic(topic, topic.encode().ljust(16), assignments)
        controller_state.states = {
            part: PartitionState(state.leader, state.isr, state.epoch, 3, 9, state.recovering, state.written)
            for part, state in states.items()
        }
        controller_state.shutting_down, controller_state.refusing = set(stopping), set(refusing)
        for broker, partition in lost:
            controller_state.offline_dirs.setdefault(broker, set()).add(partition)
        for topic in deleting:
            of_topic = {(part[1], broker) for broker, part in asked if part[0] == topic}
            controller_state.deletions[topic] = Deletion(begun=True, asked=of_topic)
        self.core = Core(
            ControllerSettings(
                broker_id=1, protocol=self.protocol, leader_imbalance_per_broker_percentage=percent
            ),
            controller_state,
        )
        self.shell = Shell(self.core)
        self.shell.unclean = unclean

    def _state(self, replicas: tuple[int, ...]) -> State:
        random = self.random
        isr = tuple(random.sample(replicas, random.randint(1, len(replicas))))
        leader = random.choice((*isr, *isr, -1))
        written = random.choice((0, 0, 50, 102, 103))
        return State(leader, isr, random.randint(0, 5), random.random() < 0.2, written)

    # --- events -----------------------------------------------------------------------------------------------

    def happens(self, event: str) -> None:
        """Let an event happen to both, with the same result."""
        self.shell.steps.clear()
        self.model.sent.clear()
        before = dict(self.core.state.states)
        actual, expected = getattr(self, f"_{event}")()
        assert actual == expected, event
        states = {
            partition: State(now.leader, now.isr, now.leader_epoch, now.recovering)
            for partition, now in self.core.state.states.items()
        }
        for now in self.model.states:
            self.model.states[now] = State(*_without_zxid(self.model.states[now]), self._written(now))
        assert states == {part: State(*_without_zxid(now)) for part, now in self.model.states.items()}, event
        for part, now in self.core.state.states.items():
            is_elected = part not in before or now.leader_epoch != before[part].leader_epoch
            assert now.controller_epoch == (CONTROLLER_EPOCH if is_elected else before[part].controller_epoch)
        sends = [step for step in self.shell.steps if isinstance(step, Send)]
        assert len(sends) == len(self.model.sent), event
        for step, expected_sent in zip(sends, self.model.sent, strict=True):
            tells_recovery = self.model.marks_recovery
            assert self._read(step, expected_sent) == _comparable(expected_sent, tells_recovery), event
        self._agree()

    def _written(self, partition: Partition) -> int:
        return self.core.state.states[partition].written if partition in self.core.state.states else 0

    def _agree(self) -> None:
        state, model = self.core.state, self.model
        assert {id_: broker.epoch for id_, broker in state.brokers.items()} == model.brokers
        assert (state.shutting_down, state.refusing) == (model.stopping, model.refusing)
        lost = {(broker, part) for broker, lost_parts in state.offline_dirs.items() for part in lost_parts}
        assert lost == model.lost
        assert list(state.reassigning) == model.moving
        assert self.shell.order == model.order
        assert {
            partition: Move(assignment.replicas, frozenset(assignment.adding), frozenset(assignment.removing))
            for partition, assignment in state.partitions()
        } == model.moves

    def _one(self) -> int:
        return self.random.choice(BROKERS)

    def _some(self) -> list[Partition]:
        every = [*self.model.replicas, ("t", 7), ("nowhere", 0)]
        return self.random.sample(every, self.random.randint(1, 4))

    def _run(self, steps: Any) -> Any:
        return self.shell.run(steps)

    def _starts(self) -> tuple[Any, Any]:
        return self._run(brokers.start(self.core)), self.model.starts()

    def _brokers_change(self) -> tuple[Any, Any]:
        registered = dict(self.model.brokers)
        for id_ in self.random.sample(BROKERS, self.random.randint(1, 2)):
            if id_ not in registered:
                registered[id_] = 200 + id_
            elif self.random.random() < 0.5:
                registered[id_] += self.random.choice((-1, 0, 100))
            else:
                del registered[id_]
        changed = {id_: broker_of(id_, epoch) for id_, epoch in registered.items()}
        return self._run(brokers.changed(self.core, changed)), self.model.brokers_are(registered)

    def _log_dirs_fail(self) -> tuple[Any, Any]:
        which = {self._one(), self._one()}
        return self._run(brokers.log_dirs_failed(self.core, which)), self.model.log_dirs_fail(which)

    def _broker_answers(self) -> tuple[Any, Any]:
        id_ = self._one()
        epoch = self.model.brokers.get(id_, 0) - self.random.choice((0, 0, 0, 1))
        own = [partition for partition, replicas in self.model.replicas.items() if id_ in replicas]
        broken = {partition for partition in own if self.random.random() < 0.4}
        fine = {partition for partition in own if self.random.random() < 0.4} - broken
        codes = dict.fromkeys(sorted(broken), ErrorCode.KAFKA_STORAGE_ERROR)
        codes |= dict.fromkeys(sorted(fine), ErrorCode.NONE)
        codes |= dict.fromkeys(sorted({*own} - broken - fine), ErrorCode.STALE_BROKER_EPOCH)
        steps = brokers.replicas_answered(self.core, broker_of(id_, epoch), codes)
        return self._run(steps), self.model.answers(id_, epoch, broken, fine)

    def _shuts_down(self) -> tuple[Any, Any]:
        id_ = self._one()
        if id_ not in self.model.brokers:
            return None, None
        return set(self._run(brokers.shut_down(self.core, id_, -1))), self.model.shuts_down(id_)

    def _refuses(self) -> tuple[Any, Any]:
        id_ = self._one()
        epoch = self.model.brokers.get(id_, 0) - self.random.choice((0, 0, 0, 1))
        return self._run(brokers.refused(self.core, broker_of(id_, epoch))), self.model.refuses(id_, epoch)

    def _is_reached(self) -> tuple[Any, Any]:
        id_ = self._one()
        epoch = self.model.brokers.get(id_, 0) - self.random.choice((0, 0, 0, 1))
        steps = brokers.reached(self.core, broker_of(id_, epoch))
        return self._run(steps), self.model.is_reached(id_, epoch)

    def _unclean_is_allowed(self) -> tuple[Any, Any]:
        topic = self.random.choice((None, *TOPICS))
        steps = leaders.unclean_enabled(self.core, topic)
        return self._run(steps), self.model.unclean_is_allowed(topic)

    def _elects(self) -> tuple[Any, Any]:
        asked = self.random.choice((None, self._some()))
        kind = self.random.choice((ElectionType.PREFERRED, ElectionType.UNCLEAN))
        errors = self._run(leaders.elect(self.core, kind, asked))
        elect = self.model.elects_preferred if kind is ElectionType.PREFERRED else self.model.elects_unclean
        return {row: _name(error) for row, error in errors.items()}, elect(asked or list(self.model.replicas))

    def _rebalances(self) -> tuple[Any, Any]:
        return self._run(leaders.rebalance(self.core)), self.model.rebalances()

    def _target(self) -> tuple[int, ...]:
        return tuple(self.random.sample((*BROKERS, 5), self.random.choice((0, 1, 1, 2, 2, 3))))

    def _reassigns(self) -> tuple[Any, Any]:
        targets = {part: self.random.choice((None, self._target(), self._target())) for part in self._some()}
        keeps_factor = self.random.random() < 0.3
        errors = self._run(reassignment.alter(self.core, targets, keeps_factor=keeps_factor))
        expected = self.model.reassigns(targets, keeps_factor=keeps_factor)
        return {part: _name(error) for part, error in errors.items()}, expected

    def _isr_grows(self) -> tuple[Any, Any]:
        part = self.random.choice([*self.model.moving, *self.model.replicas])
        if part not in self.model.states:
            return None, None
        others = [each for each in self.model.replicas[part] if each not in self.model.states[part].isr]
        isr = (*self.model.states[part].isr, *others[: self.random.randint(1, 3)])
        self.core.state.states[part] = replace(self.core.state.states[part], isr=isr)
        return self._run(reassignment.isr_changed(self.core, [part])), self.model.isr_grows(part, isr)

    def _is_ordered(self) -> tuple[Any, Any]:
        order = {part: self._target() for part in self._some()} if self.random.random() < 0.9 else None
        self.shell.order = self.model.order = order
        return self._run(reassignment.from_znode(self.core)), self.model.is_ordered()

    # --- what was sent ----------------------------------------------------------------------------------------

    def _read(self, step: Send, expected: Sent) -> tuple[Any, ...]:
        registered = expected.brokers
        sent, order = Sent(), [type(out.request) for out in step.requests]
        assert order == sorted(order, key=KINDS.index), "leaders first, then metadata, then stops"
        for out in step.requests:
            request = out.request
            epoch = registered[out.broker_id]
            assert (out.broker_epoch, request.broker_epoch) == (epoch, epoch)
            assert (request.controller_id, request.controller_epoch) == (1, CONTROLLER_EPOCH)
            for topic in request.topic_states:
                for item in topic.partition_states:
                    partition = topic.topic_name, item.partition_index
                    self._note(sent, out.broker_id, partition, item, expected.moves.get(partition))
            if isinstance(request, UpdateMetadataRequest):
                sent.metadata.setdefault(out.broker_id, {})
                assert {live.id for live in request.live_brokers} == registered.keys()
            if isinstance(request, LeaderAndIsrRequest):
                led = {state.leader for topic in request.topic_states for state in topic.partition_states}
                assert [live.broker_id for live in request.live_leaders] == sorted(led & registered.keys())
            if isinstance(request, StopReplicaRequest):
                stops = sent.stops[out.broker_id]
                assert out.deleting == {partition for partition, (_, deletes) in stops.items() if deletes}
        return _comparable(sent)

    def _note(self, sent: Sent, broker: int, partition: Partition, item: Any, move: Move | None) -> None:
        if isinstance(item, StopReplicaRequest.StopReplicaPartitionState):
            stops = sent.stops.setdefault(broker, {})
            stops[partition] = item.leader_epoch, item.delete_partition
            return
        assert move is not None
        assert tuple(item.replicas) == move.replicas
        state = State(item.leader, tuple(item.isr), item.leader_epoch)
        if isinstance(item, LeaderAndIsrRequest.LeaderAndIsrPartitionState):
            recovers = replace(state, recovering=bool(item.leader_recovery_state))
            sent.leads.setdefault(broker, {})[partition] = recovers, item.is_new
            now = self.core.state.states[partition]
            moving = frozenset(item.adding_replicas), frozenset(item.removing_replicas)
            assert moving == (move.adding, move.removing)
            assert item.controller_epoch in (3, now.controller_epoch)
        else:
            sent.metadata.setdefault(broker, {})[partition] = state


KINDS = (LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest)
EVENTS = (
    "starts", "brokers_change", "log_dirs_fail", "broker_answers", "shuts_down", "refuses", "is_reached",
    "unclean_is_allowed", "elects", "rebalances", "reassigns", "isr_grows", "is_ordered",
)  # fmt: skip


def assignment_of(move: Move) -> Assignment:
    adding, removing = (
        tuple(id_ for id_ in move.replicas if id_ in some) for some in (move.adding, move.removing)
    )
    return Assignment(move.replicas, adding, removing)


def broker_of(broker: int, epoch: int) -> Broker:
    return Broker(broker, epoch, (endpoint(broker),))


def _name(error: RequestError | None) -> str:
    return ErrorCode(error.code).name if error is not None else ""


def _without_zxid(state: State) -> tuple[Any, ...]:
    return state.leader, state.isr, state.epoch, state.recovering


def _comparable(sent: Sent, tells_recovery: bool = True) -> tuple[Any, ...]:
    """As requests tell it: without zxids; metadata do not tell of recovery."""

    def plain(state: State) -> tuple[Any, ...]:
        return state.leader, state.isr, state.epoch

    leads = {
        broker: {
            part: (plain(state), state.recovering and tells_recovery, new)
            for part, (state, new) in states.items()
        }
        for broker, states in sent.leads.items()
    }
    metadata = {
        broker: {row: plain(state) for row, state in parts.items()} for broker, parts in sent.metadata.items()
    }
    return leads, metadata, sent.stops


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_changes_states_and_is_told_as_the_model_says(event: str) -> None:
    _many(lambda random: [event, random.choice(EVENTS)], event)


def test_events_after_each_other_change_what_the_model_says() -> None:
    _many(lambda random: random.choices(EVENTS, k=6), "many")


def _many(events: Callable[[Random], list[str]], name: str) -> None:
    for number in range(examples(150)):
        random = Random(f"{name} {number}")
        both, done = Both(random), []
        for event in events(random):
            done.append(event)
            try:
                both.happens(event)
            except Exception as error:
                error.add_note(f"seed {name} {number}: {done}")
                raise

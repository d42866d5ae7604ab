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
        registered = {one: 100 + one for one in BROKERS if random.random() < 0.75}
        partitions = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
        replicas = {one: tuple(random.sample(BROKERS, random.choice((1, 2, 3, 3)))) for one in partitions}
        deleting = {"going"} if random.random() < 0.6 else set()
        targets = {
            one: self._target() for one in partitions if one[0] not in deleting and random.random() < 0.3
        }
        targets = {one: target for one, target in targets.items() if target}
        moves = {one: Move(of) for one, of in replicas.items()}
        moves |= {one: moves[one].to(target) for one, target in targets.items()}
        replicas = {one: move.replicas for one, move in moves.items()}
        moving = [one for one in partitions if moves[one].goes_on]
        states = {one: self._state(replicas[one]) for one in partitions if random.random() < 0.85}
        lost = {
            (broker, one)
            for one in partitions
            for broker in replicas[one]
            if broker in registered and random.random() < 0.1
        }
        stopping = {one for one in registered if random.random() < 0.15}
        refusing = {one for one in stopping if random.random() < 0.5}
        unclean = {topic for topic in TOPICS if random.random() < 0.4}
        asked = {
            (broker, one)
            for one in partitions
            for broker in replicas[one]
            if one[0] in deleting and broker in registered
        }
        percent = random.choice((0, 10, 33, 34, 50, 100))
        self.protocol = random.choice((V3_1, V3_9_IV0))
        self.model = Controller(
            registered, moves, states, stopping, refusing, lost, unclean, deleting, asked,
            imbalance_percent=percent, marks_recovery=self.protocol is V3_9_IV0, moving=moving,
        )  # fmt: skip
        known = ControllerState(CONTROLLER_EPOCH)
        known.brokers = {one: broker_of(one, epoch) for one, epoch in registered.items()}
        for topic, count in TOPICS.items():
            assignments = {index: assignment_of(moves[topic, index]) for index in range(count)}
            known.add_topic(topic, topic.encode().ljust(16), assignments)
        known.states = {
            one: PartitionState(state.leader, state.isr, state.epoch, 3, 9, state.recovering, state.written)
            for one, state in states.items()
        }
        known.shutting_down, known.refusing = set(stopping), set(refusing)
        for broker, one in lost:
            known.offline_dirs.setdefault(broker, set()).add(one)
        for topic in deleting:
            of_topic = {(one[1], broker) for broker, one in asked if one[0] == topic}
            known.deletions[topic] = Deletion(begun=True, asked=of_topic)
        self.core = Core(
            ControllerSettings(
                broker_id=1, protocol=self.protocol, leader_imbalance_per_broker_percentage=percent
            ),
            known,
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
        found, expected = getattr(self, f"_{event}")()
        assert found == expected, event
        states = {
            one: State(now.leader, now.isr, now.leader_epoch, now.recovering)
            for one, now in self.core.state.states.items()
        }
        for now in self.model.states:
            self.model.states[now] = State(*_without_zxid(self.model.states[now]), self._written(now))
        assert states == {one: State(*_without_zxid(now)) for one, now in self.model.states.items()}, event
        for one, now in self.core.state.states.items():
            is_elected = one not in before or now.leader_epoch != before[one].leader_epoch
            assert now.controller_epoch == (CONTROLLER_EPOCH if is_elected else before[one].controller_epoch)
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
        assert {one: broker.epoch for one, broker in state.brokers.items()} == model.brokers
        assert (state.shutting_down, state.refusing) == (model.stopping, model.refusing)
        lost = {(broker, one) for broker, found in state.offline_dirs.items() for one in found}
        assert lost == model.lost
        assert list(state.reassigning) == model.moving
        assert self.shell.order == model.order
        assert {
            one: Move(found.replicas, frozenset(found.adding), frozenset(found.removing))
            for one, found in state.partitions()
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
        for one in self.random.sample(BROKERS, self.random.randint(1, 2)):
            if one not in registered:
                registered[one] = 200 + one
            elif self.random.random() < 0.5:
                registered[one] += self.random.choice((-1, 0, 100))
            else:
                del registered[one]
        changed = {one: broker_of(one, epoch) for one, epoch in registered.items()}
        return self._run(brokers.changed(self.core, changed)), self.model.brokers_are(registered)

    def _log_dirs_fail(self) -> tuple[Any, Any]:
        which = {self._one(), self._one()}
        return self._run(brokers.log_dirs_failed(self.core, which)), self.model.log_dirs_fail(which)

    def _broker_answers(self) -> tuple[Any, Any]:
        one = self._one()
        epoch = self.model.brokers.get(one, 0) - self.random.choice((0, 0, 0, 1))
        own = [partition for partition, replicas in self.model.replicas.items() if one in replicas]
        broken = {partition for partition in own if self.random.random() < 0.4}
        fine = {partition for partition in own if self.random.random() < 0.4} - broken
        codes = dict.fromkeys(sorted(broken), ErrorCode.KAFKA_STORAGE_ERROR)
        codes |= dict.fromkeys(sorted(fine), ErrorCode.NONE)
        codes |= dict.fromkeys(sorted({*own} - broken - fine), ErrorCode.STALE_BROKER_EPOCH)
        steps = brokers.replicas_answered(self.core, broker_of(one, epoch), codes)
        return self._run(steps), self.model.answers(one, epoch, broken, fine)

    def _shuts_down(self) -> tuple[Any, Any]:
        one = self._one()
        if one not in self.model.brokers:
            return None, None
        return set(self._run(brokers.shut_down(self.core, one, -1))), self.model.shuts_down(one)

    def _refuses(self) -> tuple[Any, Any]:
        one = self._one()
        epoch = self.model.brokers.get(one, 0) - self.random.choice((0, 0, 0, 1))
        return self._run(brokers.refused(self.core, broker_of(one, epoch))), self.model.refuses(one, epoch)

    def _is_reached(self) -> tuple[Any, Any]:
        one = self._one()
        epoch = self.model.brokers.get(one, 0) - self.random.choice((0, 0, 0, 1))
        steps = brokers.reached(self.core, broker_of(one, epoch))
        return self._run(steps), self.model.is_reached(one, epoch)

    def _unclean_is_allowed(self) -> tuple[Any, Any]:
        topic = self.random.choice((None, *TOPICS))
        steps = leaders.unclean_enabled(self.core, topic)
        return self._run(steps), self.model.unclean_is_allowed(topic)

    def _elects(self) -> tuple[Any, Any]:
        asked = self.random.choice((None, self._some()))
        kind = self.random.choice((ElectionType.PREFERRED, ElectionType.UNCLEAN))
        found = self._run(leaders.elect(self.core, kind, asked))
        elect = self.model.elects_preferred if kind is ElectionType.PREFERRED else self.model.elects_unclean
        return {one: _name(error) for one, error in found.items()}, elect(asked or list(self.model.replicas))

    def _rebalances(self) -> tuple[Any, Any]:
        return self._run(leaders.rebalance(self.core)), self.model.rebalances()

    def _target(self) -> tuple[int, ...]:
        return tuple(self.random.sample((*BROKERS, 5), self.random.choice((0, 1, 1, 2, 2, 3))))

    def _reassigns(self) -> tuple[Any, Any]:
        wanted = {one: self.random.choice((None, self._target(), self._target())) for one in self._some()}
        keeps_factor = self.random.random() < 0.3
        found = self._run(reassignment.alter(self.core, wanted, keeps_factor=keeps_factor))
        expected = self.model.reassigns(wanted, keeps_factor=keeps_factor)
        return {one: _name(error) for one, error in found.items()}, expected

    def _isr_grows(self) -> tuple[Any, Any]:
        one = self.random.choice([*self.model.moving, *self.model.replicas])
        if one not in self.model.states:
            return None, None
        others = [each for each in self.model.replicas[one] if each not in self.model.states[one].isr]
        isr = (*self.model.states[one].isr, *others[: self.random.randint(1, 3)])
        self.core.state.states[one] = replace(self.core.state.states[one], isr=isr)
        return self._run(reassignment.isr_changed(self.core, [one])), self.model.isr_grows(one, isr)

    def _is_ordered(self) -> tuple[Any, Any]:
        order = {one: self._target() for one in self._some()} if self.random.random() < 0.9 else None
        self.shell.order = self.model.order = order
        return self._run(reassignment.from_znode(self.core)), self.model.is_ordered()

    # --- what was sent ----------------------------------------------------------------------------------------

    def _read(self, step: Send, expected: Sent) -> tuple[Any, ...]:
        registered = expected.brokers
        sent, order = Sent(), [type(one.request) for one in step.requests]
        assert order == sorted(order, key=KINDS.index), "leaders first, then metadata, then stops"
        for one in step.requests:
            request = one.request
            epoch = registered[one.broker_id]
            assert (one.broker_epoch, request.broker_epoch) == (epoch, epoch)
            assert (request.controller_id, request.controller_epoch) == (1, CONTROLLER_EPOCH)
            for topic in request.topic_states:
                for item in topic.partition_states:
                    partition = topic.topic_name, item.partition_index
                    self._note(sent, one.broker_id, partition, item, expected.moves.get(partition))
            if isinstance(request, UpdateMetadataRequest):
                sent.metadata.setdefault(one.broker_id, {})
                assert {live.id for live in request.live_brokers} == registered.keys()
            if isinstance(request, LeaderAndIsrRequest):
                led = {state.leader for topic in request.topic_states for state in topic.partition_states}
                assert [live.broker_id for live in request.live_leaders] == sorted(led & registered.keys())
            if isinstance(request, StopReplicaRequest):
                stops = sent.stops[one.broker_id]
                assert one.deleting == {partition for partition, (_, deletes) in stops.items() if deletes}
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
        tuple(one for one in move.replicas if one in some) for some in (move.adding, move.removing)
    )
    return Assignment(move.replicas, adding, removing)


def broker_of(broker: int, epoch: int) -> Broker:
    return Broker(broker, epoch, (endpoint(broker),))


def _name(error: RequestError | None) -> str:
    return ErrorCode(error.code).name if error is not None else ""


def _without_zxid(state: State) -> tuple[Any, ...]:
    return state.leader, state.isr, state.epoch, state.recovering


def _comparable(sent: Sent, tells_recovery: bool = True) -> tuple[Any, ...]:
    """As requests tell it: without zxids; metadata say of nobody that he recovers."""

    def plain(state: State) -> tuple[Any, ...]:
        return state.leader, state.isr, state.epoch

    leads = {
        broker: {
            one: (plain(state), state.recovering and tells_recovery, new)
            for one, (state, new) in found.items()
        }
        for broker, found in sent.leads.items()
    }
    metadata = {
        broker: {one: plain(state) for one, state in found.items()} for broker, found in sent.metadata.items()
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

"""The controller's rules one at a time: each refusal with its reason, and what is sent to whom after each event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster.ports import AcceptedState, ElectionType, ProposedState
from barnabas.controller import brokers, in_sync, partitions, reassignment, topics
from barnabas.controller.core import ControllerSettings, Core
from barnabas.controller.embedded import EmbeddedController
from barnabas.controller.state import Assignment, Broker, ControllerState, Deletion, Endpoint, PartitionState
from barnabas.controller.steps import (
    PIECE,
    CreateStates,
    GiveWay,
    ReadStates,
    ReadUnclean,
    Send,
    WriteAssignment,
    WriteStates,
    Written,
)
from barnabas.errors import RequestError
from barnabas.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest

ID = b"i" * 16
T = ("t", 0)
LED = PartitionState(1, (1, 2), leader_epoch=5, controller_epoch=6, version=9)


def endpoint(broker: int, port: int = 9092) -> Endpoint:
    return Endpoint("PLAINTEXT", f"h{broker}", port)


def cluster(
    count: int = 1, state: PartitionState | None = LED, replicas: tuple[int, ...] = (1, 2, 3)
) -> Core:
    """Brokers 1 to 4, registered with epochs 101 to 104, and a topic of three replicas."""
    known = ControllerState(epoch=7)
    for one in (1, 2, 3, 4):
        known.brokers[one] = Broker(one, 100 + one, (endpoint(one),))
    known.add_topic("t", ID, {index: Assignment(replicas) for index in range(count)})
    if state is not None:
        known.states = {("t", index): state for index in range(count)}
    return Core(ControllerSettings(broker_id=1), known)


class Shell:
    """Carries out steps: writes are done but for `conflicts`, which find `found` instead."""

    def __init__(self, core: Core, *, found: PartitionState | None = None, conflicts: int = 1) -> None:
        """The first writes, `conflicts` of them, meet another one, of the state `found`."""
        self.core = core
        self.found = found
        self.conflicts = conflicts if found is not None else 0
        self.steps: list[Any] = []
        self.unclean: set[str] = set()

    def run(self, steps: Any) -> Any:
        outcome = None
        try:
            while True:
                step = steps.send(outcome)
                self.steps.append(step)
                outcome = self._outcome(step)
        except StopIteration as end:
            return end.value

    def _outcome(self, step: Any) -> Any:
        match step:
            case WriteStates(states) | CreateStates(states):
                if self.conflicts:
                    self.conflicts -= 1
                    return Written(conflicts=list(states))
                return Written({one: replace(new, version=new.version + 1) for one, new in states.items()})
            case ReadStates(wanted):
                return dict.fromkeys(wanted, self.found) if self.found is not None else {}
            case ReadUnclean():
                return self.unclean
            case WriteAssignment():
                return True
        return None

    def sent(self) -> Iterator[tuple[int, Any]]:
        for step in self.steps:
            if isinstance(step, Send):
                for one in step.requests:
                    yield one.broker_id, one.request

    def receivers(self, kind: type) -> list[int]:
        return [broker for broker, request in self.sent() if isinstance(request, kind)]

    @property
    def turns(self) -> int:
        return sum(isinstance(step, GiveWay) for step in self.steps)


# --- proposals of leaders -----------------------------------------------------------------------------------------


def proposal(*isr: int, index: int = 0, **fields: Any) -> ProposedState:
    given: dict[str, Any] = {
        "topic": "t", "topic_id": None, "index": index, "leader_epoch": 5, "partition_epoch": 9, "recovering": False,
    } | fields  # fmt: skip
    epochs = given.pop("epochs", {})
    return ProposedState(isr=tuple((one, epochs.get(one, 100 + one)) for one in isr), **given)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (proposal(1, 2, 3), 0),
        (proposal(1), 0),
        (proposal(1, 2, 3, epochs={3: -1}), 0),
        (proposal(1, 2, 3, topic=None, topic_id=ID), 0),
        (proposal(1, 2, 3, topic=None, topic_id=b"j" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (proposal(1, 2, 3, topic=None), ErrorCode.UNKNOWN_TOPIC_ID),
        (proposal(1, 2, 3, topic="u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, 2, 3, index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, 2, 3, partition_epoch=10), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(1, 2, 3, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(2, 3), ErrorCode.INVALID_REQUEST),
        (proposal(1, 1), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 4), ErrorCode.INVALID_REQUEST),
        (proposal(1, recovering=True), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, recovering=True), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 3, epochs={3: 102}), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(1, 2, 3, epochs={1: 100}), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_is_taken_or_refused_with_its_reason(asked: ProposedState, code: int) -> None:
    core = cluster()
    shell = Shell(core)
    [answer] = shell.run(in_sync.alter(core, 1, 101, [asked]))
    if code:
        assert isinstance(answer, RequestError)
        assert answer.code == code
        assert core.state.states[T] == LED
        assert list(shell.sent()) == []
    else:
        isr = tuple(one for one, _ in asked.isr)
        assert answer == AcceptedState(1, 5, 10, isr, False)
        assert core.state.states[T] == replace(LED, isr=isr, controller_epoch=7, version=10)
        assert shell.receivers(UpdateMetadataRequest) == [1, 2, 3, 4]
        assert shell.receivers(LeaderAndIsrRequest) == []


def test_who_does_not_lead_proposes_nothing() -> None:
    core = cluster()
    [answer] = Shell(core).run(in_sync.alter(core, 2, 102, [proposal(1, 2)]))
    assert isinstance(answer, RequestError)
    assert answer.code == ErrorCode.INVALID_REQUEST


def test_a_proposal_that_is_there_already_has_the_same_answer_and_is_not_written() -> None:
    core = cluster()
    shell = Shell(core)
    answers = shell.run(in_sync.alter(core, 1, 101, [proposal(2, 1), proposal(1, 2, partition_epoch=7)]))
    assert answers == [AcceptedState(1, 5, 9, (1, 2), False)] * 2
    assert shell.steps == []


@pytest.mark.parametrize(
    ("isr", "recovering", "is_taken"),
    [((1,), False, True), ((1,), True, True), ((1, 2), True, False), ((1, 2), False, True)],
)
def test_a_leader_that_recovers_is_alone_until_it_has(
    isr: tuple[int, ...], recovering: bool, is_taken: bool
) -> None:
    core = cluster(state=replace(LED, isr=(1,), recovering=True))
    [answer] = Shell(core).run(in_sync.alter(core, 1, 101, [proposal(*isr, recovering=recovering)]))
    assert isinstance(answer, AcceptedState) is is_taken
    assert core.state.states[T].recovering is (recovering or not is_taken)


@pytest.mark.parametrize(
    ("spoil", "is_taken"),
    [
        (lambda state: None, True),
        (lambda state: state.brokers.pop(3), False),
        (lambda state: state.shutting_down.add(3), False),
        (lambda state: state.offline_dirs.update({3: {T}}), False),
        (lambda state: state.offline_dirs.update({3: {("t", 1)}}), True),
        (lambda state: state.offline_dirs.update({2: {T}}), True),  # who is in already leaves by itself
        (lambda state: state.shutting_down.add(2), False),
    ],
    ids=["fine", "gone", "stops", "its log dir", "another log dir", "in already", "in already and stops"],
)
def test_only_who_lives_is_in_sync(spoil: Any, is_taken: bool) -> None:
    core = cluster()
    spoil(core.state)
    [answer] = Shell(core).run(in_sync.alter(core, 1, 101, [proposal(1, 2, 3)]))
    assert isinstance(answer, AcceptedState) is is_taken
    if not is_taken:
        assert answer.code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(("broker", "epoch"), [(1, 100), (1, 102), (9, 109)])
def test_another_registration_of_a_broker_proposes_nothing(broker: int, epoch: int) -> None:
    core = cluster()
    with pytest.raises(RequestError) as caught:
        Shell(core).run(in_sync.alter(core, broker, epoch, [proposal(1)]))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_each_proposal_has_its_own_answer_in_its_place() -> None:
    core = cluster(3)
    asked = [
        proposal(1, index=2),
        proposal(1, 2, index=1),
        proposal(1, index=0),
        proposal(1, 2, 3, index=0),
        proposal(1, index=7),
    ]
    answers = Shell(core).run(in_sync.alter(core, 1, 101, asked))
    found = [one.code if isinstance(one, RequestError) else one.isr for one in answers]
    assert found == [(1,), (1, 2), (1,), ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("now", "deleting", "told"), [(LED, False, [1]), (replace(LED, leader=2), False, []), (LED, True, [])]
)
def test_a_leader_whose_proposal_met_another_write_is_told_of_it(
    now: PartitionState, deleting: bool, told: list[int]
) -> None:
    core = cluster()
    newer = replace(now, version=12)
    if deleting:
        core.state.deletions["t"] = Deletion(begun=True)
    shell = Shell(core, found=newer)
    [answer] = shell.run(in_sync.alter(core, 1, 101, [proposal(1)]))
    assert isinstance(answer, RequestError)
    assert answer.code == ErrorCode.INVALID_UPDATE_VERSION
    assert core.state.states[T] == newer
    assert shell.receivers(LeaderAndIsrRequest) == told


def test_an_accepted_proposal_may_end_a_reassignment() -> None:
    core = cluster(2)
    for index in (0, 1):
        core.state.assignments["t"][index] = Assignment((3, 1, 2), adding=(3,), removing=(1,))
        core.state.reassigning["t", index] = None
    shell = Shell(core)
    asked = [proposal(1, 2, 3), proposal(1, index=1), proposal(1, 2, 4, index=1)]
    answers = shell.run(in_sync.alter(core, 1, 101, asked))
    shell.run(in_sync.after(core, answers, asked))
    assert core.state.assignments["t"][0] == Assignment((3, 2))
    assert core.state.assignments["t"][1].is_reassigned
    assert list(core.state.reassigning) == [("t", 1)]
    assert core.state.states[T].leader == 3
    stops = [(broker, request) for broker, request in shell.sent() if isinstance(request, StopReplicaRequest)]
    assert [broker for broker, _ in stops] == [1]


# --- reassignments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((1, 2, 4), 0),
        ((3, 2, 1), 0),
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1, 1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 5), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 3, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
@pytest.mark.parametrize("keeps_factor", [True, False])
def test_a_reassignment_is_refused_with_its_reason(
    target: tuple[int, ...] | None, code: int, keeps_factor: bool
) -> None:
    core = cluster()
    if code == ErrorCode.INVALID_REPLICATION_FACTOR and not keeps_factor:
        code = 0
    results = Shell(core).run(reassignment.alter(core, {T: target}, keeps_factor=keeps_factor))
    assert (results[T].code if results[T] else 0) == code
    assert core.state.assignments["t"][0].is_reassigned is (not code and target not in ((3, 2, 1), (1, 2)))


@pytest.mark.parametrize(("topic", "index"), [("u", 0), ("t", 1)])
def test_what_is_not_there_or_goes_is_not_reassigned(topic: str, index: int) -> None:
    core = cluster()
    for target in ((1, 2, 4), None):
        results = Shell(core).run(reassignment.alter(core, {(topic, index): target}, keeps_factor=False))
        assert results[topic, index].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    core.state.deletions["t"] = Deletion()
    results = Shell(core).run(reassignment.alter(core, {T: (1, 2, 4)}, keeps_factor=False))
    assert results[T].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_that_stops_gets_no_partition_but_keeps_its_own() -> None:
    core = cluster()
    core.state.shutting_down |= {3, 4}
    for target, code in (((1, 2, 4), ErrorCode.INVALID_REPLICA_ASSIGNMENT), ((1, 3), 0)):
        results = Shell(core).run(reassignment.alter(core, {T: target}, keeps_factor=False))
        assert (results[T].code if results[T] else 0) == code


def test_new_replicas_are_told_that_they_are_new_and_old_ones_of_the_new_epoch() -> None:
    core = cluster()
    shell = Shell(core)
    shell.run(reassignment.alter(core, {T: (1, 2, 4)}, keeps_factor=True))
    assert core.state.assignments["t"][0] == Assignment((1, 2, 4, 3), adding=(4,), removing=(3,))
    told = {
        broker: request.topic_states[0].partition_states[0]
        for broker, request in shell.sent()
        if isinstance(request, LeaderAndIsrRequest)
    }
    assert {broker: one.is_new for broker, one in told.items()} == {1: False, 2: False, 3: False, 4: True}
    assert {one.leader_epoch for one in told.values()} == {6}
    assert shell.receivers(StopReplicaRequest) == []


def test_a_reassignment_that_is_cancelled_takes_back_what_it_had_added() -> None:
    core = cluster()
    core.state.assignments["t"][0] = Assignment((4, 1, 2, 3), adding=(4,), removing=(3,))
    core.state.reassigning[T] = None
    shell = Shell(core)
    assert shell.run(reassignment.alter(core, {T: None}, keeps_factor=True)) == {T: None}
    assert core.state.assignments["t"][0] == Assignment((1, 2, 3))
    assert core.state.reassigning == {}
    stops = [(broker, request) for broker, request in shell.sent() if isinstance(request, StopReplicaRequest)]
    assert [broker for broker, _ in stops] == [4]
    assert stops[0][1].topic_states[0].partition_states[0].delete_partition


def test_a_reassignment_that_would_leave_nobody_in_sync_is_refused_and_forgotten() -> None:
    core = cluster(state=replace(LED, isr=(4,), leader=4), replicas=(4, 1))
    core.state.assignments["t"][0] = Assignment((4, 1), adding=(4,))
    core.state.reassigning[T] = None
    results = Shell(core).run(reassignment.alter(core, {T: None}, keeps_factor=False))
    assert results[T].code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert list(core.state.reassigning) == [T]  # the one that goes on


# --- brokers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "is_told"),
    [
        (Broker(2, 102, (endpoint(2, 9099),)), True),
        (Broker(2, 102, (endpoint(2),)), False),
        (Broker(2, 103, (endpoint(2, 9099),)), False),
        (Broker(9, 109, (endpoint(9),)), False),
    ],
)
def test_all_are_told_that_a_broker_listens_elsewhere(broker: Broker, is_told: bool) -> None:
    core = cluster()
    shell = Shell(core)
    shell.run(brokers.updated(core, broker))
    assert shell.receivers(UpdateMetadataRequest) == ([1, 2, 3, 4] if is_told else [])
    assert (core.state.brokers.get(broker.id) == broker) is (
        is_told or broker == Broker(2, 102, (endpoint(2),))
    )


def test_a_broker_that_refuses_leads_nothing_until_it_answers() -> None:
    core = cluster()
    shell = Shell(core)
    for stranger in (Broker(1, 100), Broker(9, 109)):
        shell.run(brokers.refused(core, stranger))
        shell.run(brokers.reached(core, stranger))
    assert shell.steps == []
    one = core.state.brokers[1]
    shell.run(brokers.refused(core, one))
    assert (core.state.refusing, core.state.shutting_down) == ({1}, {1})
    assert (core.state.states[T].leader, core.state.states[T].isr) == (2, (2,))
    assert shell.receivers(StopReplicaRequest) == []
    count = len(shell.steps)
    shell.run(brokers.refused(core, one))
    shell.run(brokers.reached(core, replace(one, epoch=100)))
    assert len(shell.steps) == count
    shell.run(brokers.reached(core, one))
    assert (core.state.refusing, core.state.shutting_down) == (set(), set())
    assert {broker for broker, _ in list(shell.sent())[-2:]} == {1}
    count = len(shell.steps)
    shell.run(brokers.reached(core, one))
    assert len(shell.steps) == count


def test_a_broker_that_stops_by_itself_is_not_taken_back() -> None:
    core = cluster()
    shell = Shell(core)
    assert shell.run(brokers.shut_down(core, 1, 101)) == []
    shell.run(brokers.refused(core, core.state.brokers[1]))
    shell.run(brokers.reached(core, core.state.brokers[1]))
    assert core.state.shutting_down == {1}
    assert (core.state.states[T].leader, core.state.states[T].isr) == (2, (2,))


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(1, 101, 0), (1, -1, 0), (1, 100, ErrorCode.STALE_BROKER_EPOCH), (9, 1, ErrorCode.BROKER_NOT_AVAILABLE)],
)
def test_a_controlled_shutdown_is_asked_for_by_a_registration(broker: int, epoch: int, code: int) -> None:
    core = cluster()
    try:
        Shell(core).run(brokers.shut_down(core, broker, epoch))
        found = 0
    except RequestError as error:
        found = error.code
    assert found == code
    assert core.state.shutting_down == (set() if code else {broker})


def test_a_broker_that_stops_keeps_what_nobody_else_can_lead() -> None:
    core = cluster(4)
    core.state.states["t", 1] = replace(LED, isr=(1,))
    core.state.states["t", 2] = replace(LED, leader=2, isr=(1, 2))
    core.state.assignments["t"][3] = Assignment((1,))
    core.state.states["t", 3] = replace(LED, isr=(1,))
    shell = Shell(core)
    assert shell.run(brokers.shut_down(core, 1, 101)) == [("t", 1)]
    found = {index: (state.leader, state.isr) for (_, index), state in core.state.states.items()}
    assert found == {0: (2, (2,)), 1: (1, (1,)), 2: (2, (2,)), 3: (1, (1,))}
    stops = [(broker, request) for broker, request in shell.sent() if isinstance(request, StopReplicaRequest)]
    [(broker, request)] = stops
    [stopped] = request.topic_states[0].partition_states
    assert (broker, stopped.partition_index, stopped.delete_partition) == (1, 2, False)


def test_replicas_that_a_broker_has_lost_are_noted_and_led_by_others() -> None:
    core = cluster(2)
    shell = Shell(core)
    lost, fine = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE
    stranger = Broker(1, 100)
    shell.run(brokers.replicas_answered(core, stranger, {T: lost}))
    assert (shell.steps, core.state.offline_dirs) == ([], {})
    one = core.state.brokers[1]
    shell.run(brokers.replicas_answered(core, one, {T: lost, ("t", 1): fine}))
    assert core.state.offline_dirs == {1: {T}}
    assert (core.state.states[T].leader, core.state.states["t", 1].leader) == (2, 1)
    assert shell.receivers(StopReplicaRequest) == [1]
    count = len(shell.steps)
    shell.run(brokers.replicas_answered(core, one, {T: lost}))  # known
    assert len(shell.steps) == count
    shell.run(brokers.replicas_answered(core, one, {T: fine}))
    assert core.state.offline_dirs == {1: set()}
    assert len(shell.steps) == count


@pytest.mark.parametrize(
    ("epoch", "is_away", "is_here"),
    [(None, True, False), (201, True, True), (101, False, True), (100, False, True)],
)
def test_a_broker_that_has_gone_or_comes_back_has_been_away(
    epoch: int | None, is_away: bool, is_here: bool
) -> None:
    core = cluster()
    state = core.state
    state.offline_dirs = {1: {("t", 7)}}
    state.shutting_down = {1}
    registered = dict(state.brokers)
    del registered[1]
    if epoch is not None:
        registered[1] = Broker(1, epoch, (endpoint(1),))
    shell = Shell(core)
    shell.run(brokers.changed(core, registered))
    now = state.states[T]
    assert (now.leader, now.isr, now.leader_epoch) == ((2, (2,), 6) if is_away else (1, (1, 2), 5))
    assert (1 in state.brokers) is is_here
    assert state.offline_dirs == ({} if is_away else {1: {("t", 7)}})
    assert state.shutting_down == (set() if is_away else {1})
    living = [1, 2, 3, 4] if is_here else [2, 3, 4]
    assert set(shell.receivers(UpdateMetadataRequest)) == (set(living) if is_away else set())
    if is_away and is_here:
        assert state.brokers[1].epoch == 201
        assert 1 in shell.receivers(LeaderAndIsrRequest)  # it is told what it follows


def test_a_broker_that_comes_is_told_of_all_and_all_are_told_of_it() -> None:
    core = cluster(state=replace(LED, leader=-1, isr=(3,)))
    newcomer = core.state.brokers.pop(3)
    shell = Shell(core)
    shell.run(brokers.changed(core, {**core.state.brokers, 3: newcomer}))
    assert (core.state.states[T].leader, core.state.states[T].isr) == (3, (3,))
    assert set(shell.receivers(UpdateMetadataRequest)) == {1, 2, 3, 4}
    assert set(shell.receivers(LeaderAndIsrRequest)) == {1, 2, 3}
    [first, *_] = shell.sent()
    assert isinstance(first[1], UpdateMetadataRequest)


@pytest.mark.parametrize("conflicts", [0, 1, 3])
def test_what_somebody_else_has_written_is_read_and_decided_on_again(conflicts: int) -> None:
    """A leader has changed the ISR meanwhile: who is not in it any more is not elected."""
    core = cluster(state=replace(LED, leader=3, isr=(1, 2, 3)))
    shell = Shell(core, found=replace(LED, leader=3, isr=(2, 3), version=20), conflicts=conflicts)
    shell.run(partitions.elect_after_loss(core, [T], unclean=False))
    now = core.state.states[T]
    assert (now.leader, now.isr) == ((2, (2, 3)) if conflicts else (1, (1, 2, 3)))
    assert now.version == (21 if conflicts else 10)
    assert sum(isinstance(step, ReadStates) for step in shell.steps) == conflicts


def test_a_reassignment_whose_target_is_out_of_sync_after_all_goes_on() -> None:
    core = cluster(state=replace(LED, isr=(1, 2, 3)))
    moving = Assignment((3, 1, 2), adding=(3,), removing=(1,))
    core.state.assignments["t"][0] = moving
    core.state.reassigning[T] = None
    shell = Shell(core, found=replace(LED, isr=(1, 2), version=20))
    shell.run(reassignment.isr_changed(core, [T]))
    assert core.state.assignments["t"][0] == moving
    assert list(core.state.reassigning) == [T]
    assert shell.receivers(StopReplicaRequest) == []


# --- topics -------------------------------------------------------------------------------------------------------


def test_a_topic_gets_partitions_but_not_while_it_is_deleted() -> None:
    core = cluster()
    shell = Shell(core)
    more = {0: Assignment((1, 2, 3)), 1: Assignment((2, 3))}
    shell.run(topics.partitions_changed(core, "u", more))
    shell.run(topics.partitions_changed(core, "t", {0: Assignment((3,))}))
    assert shell.steps == []
    assert core.state.assignments["t"][0] == Assignment((1, 2, 3))
    core.state.deletions["t"] = Deletion()
    shell.run(topics.partitions_changed(core, "t", more))
    assert shell.steps == [WriteAssignment("t", ID, {0: Assignment((1, 2, 3))})]
    assert list(core.state.assignments["t"]) == [0]
    core.state.deletions.clear()
    shell.run(topics.partitions_changed(core, "t", more))
    assert core.state.states["t", 1] == PartitionState(2, (2, 3), 0, 7, 1)


def test_topics_that_are_gone_are_forgotten() -> None:
    core = cluster()
    core.state.offline_dirs = {1: {T, ("u", 0)}}
    core.state.reassigning[T] = None
    core.state.deletions["t"] = Deletion()
    shell = Shell(core)
    shell.run(topics.changed(core, {"u"}, {"u": (b"u" * 16, {0: Assignment((2, 1))})}))
    state = core.state
    assert (list(state.assignments), list(state.states), state.reassigning, state.deletions) == (
        ["u"], [("u", 0)], {}, {},
    )  # fmt: skip
    assert (state.topic_ids, state.topic_names) == ({"u": b"u" * 16}, {b"u" * 16: "u"})
    assert state.offline_dirs == {1: {("u", 0)}}
    assert state.states["u", 0].leader == 2


# --- giving way ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, 3 * PIECE, 3 * PIECE + 1])
def test_others_run_after_each_piece_of_many_partitions(count: int) -> None:
    core = cluster(count, state=None)
    shell = Shell(core)
    shell.run(partitions.begin(core, core.state.partitions_of("t")))
    assert shell.turns == 2 * (count // PIECE)
    core = cluster(count)
    shell = Shell(core)
    shell.run(in_sync.alter(core, 1, 101, [proposal(9, index=index) for index in range(count)]))
    assert shell.turns == count // PIECE
    shell = Shell(core)
    for partition in core.state.partitions_of("t"):
        core.batch.tell_replicas([2], partition)
    shell.run(core.send())
    assert shell.turns == count // PIECE + 1  # and after the request


# --- a broker that is a cluster by itself -------------------------------------------------------------------------


class Alone:
    """Replicas of which some are offline, and log dirs of which some are lost."""

    def __init__(self, code: int, *, is_lost: bool) -> None:
        self.code = code
        self.is_lost = is_lost
        self.begun: list[tuple[str, int]] = []

    def leader(self, topic: str, index: int) -> object:
        if self.code:
            raise RequestError(ErrorCode(self.code), "why")
        return self

    async def begin_again(self, topic: str, index: int) -> bool:
        self.begun.append((topic, index))
        return self.is_lost


@pytest.mark.parametrize(
    ("code", "is_lost", "election", "result"),
    [
        (0, True, ElectionType.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (0, True, ElectionType.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            True,
            ElectionType.UNCLEAN,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            ErrorCode.KAFKA_STORAGE_ERROR,
            True,
            ElectionType.PREFERRED,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (ErrorCode.KAFKA_STORAGE_ERROR, True, ElectionType.UNCLEAN, 0),
        (
            ErrorCode.KAFKA_STORAGE_ERROR,
            False,
            ElectionType.UNCLEAN,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ),
    ],
)
async def test_alone_only_what_is_lost_is_elected(
    code: int, is_lost: bool, election: ElectionType, result: int
) -> None:
    alone = Alone(code, is_lost=is_lost)
    controller = EmbeddedController(None, alone, alone, LoopBudget())  # type: ignore[arg-type]
    found = (await controller.elect_leaders(election, [("t", 3)], 0))["t", 3]
    assert (found.code if found is not None else 0) == result
    is_unclean = election is ElectionType.UNCLEAN and code == ErrorCode.KAFKA_STORAGE_ERROR
    assert alone.begun == ([("t", 3)] if is_unclean else [])


async def test_alone_no_other_broker_is_served() -> None:
    alone = Alone(0, is_lost=False)
    controller = EmbeddedController(None, alone, alone, LoopBudget())  # type: ignore[arg-type]
    assert controller.is_active
    assert await controller.reassignments(None) == {}
    for ask in (
        controller.alter_partitions(1, 1, []),
        controller.allocate_producer_ids(1, 1),
        controller.controlled_shutdown(1, 1),
    ):
        with pytest.raises(RequestError) as caught:
            await ask
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION

"""Brokers that come, go, come back, refuse or stop: who leads then, and who is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.cluster.controller import brokers, partitions, reassignment
from barnabas.cluster.controller.state import Assignment, Broker
from barnabas.cluster.controller.steps import (
    ReadStates,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.controller_steps import LED, Shell, T, cluster, endpoint

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


@pytest.mark.parametrize(
    ("stops", "is_gone", "lost", "online", "with_those_that_stop"),
    [
        (False, False, None, True, True),
        (True, False, None, False, True),
        (False, True, None, False, False),
        (False, False, T, False, False),
        (True, False, T, False, False),
        (False, False, ("t", 1), True, True),
    ],
)
def test_a_replica_is_online_with_its_broker_and_its_log_dir(
    stops: bool, is_gone: bool, lost: tuple[str, int] | None, online: bool, with_those_that_stop: bool
) -> None:
    state = cluster().state
    state.shutting_down = {1} if stops else set()
    state.offline_dirs = {1: {lost}} if lost else {}
    if is_gone:
        del state.brokers[1]
    assert state.is_online(1, T) is online
    assert state.is_online(1, T, also_shutting_down=True) is with_those_that_stop
    assert state.online((2, 1), T) == ((2, 1) if online else (2,))
    assert state.is_offline(T) is not with_those_that_stop  # one that stops leads still

"""Brokers that come, go, come back, refuse or stop: who leads then, and who is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.cluster.controller import brokers, reassignment
from barnabas.cluster.controller.state import Assignment, Broker
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.controller_steps import LED, Shell, T, cluster, endpoint

# --- brokers ------------------------------------------------------------------------------------------------------


def test_lost_replicas_are_led_by_others() -> None:
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


def test_reassignment_continues_while_a_target_is_out_of_sync() -> None:
    core = cluster(state=replace(LED, isr=(1, 2, 3)))
    moving = Assignment((3, 1, 2), adding=(3,), removing=(1,))
    core.state.assignments["t"][0] = moving
    core.state.reassigning[T] = None
    shell = Shell(core, found=replace(LED, isr=(1, 2), version=20))
    shell.run(reassignment.isr_changed(core, [T]))
    assert core.state.assignments["t"][0] == moving
    assert list(core.state.reassigning) == [T]
    assert shell.receivers(StopReplicaRequest) == []

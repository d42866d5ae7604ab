"""Brokers that come, go, come back, refuse or stop: who leads then, and who is told."""

from __future__ import annotations

from dataclasses import replace

from barnabas.cluster.controller import brokers, reassignment
from barnabas.cluster.controller.state import Assignment, Broker
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from tests.support.controller_steps import LED, Shell, T, cluster

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

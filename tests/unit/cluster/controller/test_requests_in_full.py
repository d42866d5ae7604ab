"""Control requests field by field, in the forms that they have in old and new clusters."""

from __future__ import annotations

from typing import Any

from barnabas.cluster.controller.batches import Batch
from barnabas.cluster.controller.state import (
    Assignment,
    Broker,
    ControllerState,
    Endpoint,
    PartitionState,
)
from barnabas.cluster.controller.steps import Outgoing, Send
from barnabas.cluster.metadata.protocol_version import ProtocolVersion

ID, NO_ID = b"t" * 16, bytes(16)
T0, T1, OLD = ("t", 0), ("t", 1), ("old", 0)


def cluster() -> ControllerState:
    """Three brokers, one without the listener of brokers; a topic of two partitions, and one without an id."""
    state = ControllerState(epoch=7)
    state.brokers = {
        3: Broker(3, 103, (Endpoint("PLAINTEXT", "p3", 93, 0),)),
        1: Broker(1, 101, (Endpoint("SSL", "s1", 81, 1), Endpoint("PLAINTEXT", "p1", 91, 0)), "r1"),
        2: Broker(2, 102, (Endpoint("SSL", "s2", 82, 1),)),
    }
    state.shutting_down = {2}
    state.offline_dirs = {3: {T1}}
    moving = Assignment((1, 2, 3), adding=(3,), removing=(2,))
    state.add_topic("t", ID, {0: moving, 1: Assignment((3, 1))})
    state.add_topic("old", None, {0: Assignment((2,))})
    state.states = {
        T0: PartitionState(1, (1, 2), 5, 6, 9, recovering=True),
        T1: PartitionState(3, (3,), 8, 4, 2),
        OLD: PartitionState(-1, (2,), 3, 7, 1),
    }
    return state


def sent(protocol: str, state: ControllerState, fill: Any) -> list[Outgoing]:
    batch = Batch(1, "SSL", ProtocolVersion.parse(protocol))
    fill(batch)
    [requests] = [step.requests for step in batch.send(state) if isinstance(step, Send)]
    assert list(batch.send(state)) == [], "the batch is empty then"
    return requests


def test_a_broker_is_told_nothing_of_partitions_without_a_state_and_nobody_else_hears_of_them() -> None:
    state = cluster()
    batch = Batch(1, "SSL", ProtocolVersion.parse("3.9"))
    batch.tell_replicas([1, 2], ("gone", 0))
    batch.tell_replicas([9], T0)
    batch.update_metadata([9], [T0])
    batch.stop_replica(state, 9, T0, delete=True)
    assert list(batch.send(state)) == []

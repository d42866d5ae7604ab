"""Control requests field by field, in the forms that they have in old and new clusters."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.controller.batches import Batch
from barnabas.cluster.controller.state import (
    Assignment,
    Broker,
    ControllerState,
    Deletion,
    Endpoint,
    PartitionState,
)
from barnabas.cluster.controller.steps import Outgoing, Send
from barnabas.cluster.metadata.protocol_version import ProtocolVersion
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest

ID, NO_ID = b"t" * 16, bytes(16)
T0, T1, OLD = ("t", 0), ("t", 1), ("old", 0)
Lead = LeaderAndIsrRequest
Metadata = UpdateMetadataRequest


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


def leads(**fields: Any) -> Any:
    return Lead.LeaderAndIsrPartitionState(**fields)


def lead_states(*, recovers: bool) -> dict[tuple[str, int], Any]:
    return {
        T0: leads(
            topic_name="t", partition_index=0, controller_epoch=6, leader=1, leader_epoch=5, isr=[1, 2],
            partition_epoch=9, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2], is_new=True,
            leader_recovery_state=int(recovers),
        ),
        T1: leads(
            topic_name="t", partition_index=1, controller_epoch=4, leader=3, leader_epoch=8, isr=[3],
            partition_epoch=2, replicas=[3, 1], adding_replicas=[], removing_replicas=[], is_new=False,
            leader_recovery_state=0,
        ),
        OLD: leads(
            topic_name="old", partition_index=0, controller_epoch=7, leader=-1, leader_epoch=3, isr=[2],
            partition_epoch=1, replicas=[2], adding_replicas=[], removing_replicas=[], is_new=False,
            leader_recovery_state=0,
        ),
    }  # fmt: skip


def lead_topic(name: str, *states: Any) -> Any:
    topic_id = {"t": ID, "old": NO_ID}[name]
    return Lead.LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=list(states))


def fill_leads(batch: Batch) -> None:
    batch.tell_replicas([2, 9], T0, new=True)
    batch.tell_replicas([2], T1)
    batch.tell_replicas([2], OLD)
    batch.tell_replicas([2], ("gone", 0))
    batch.tell_replicas([2], T0)  # it is new all the same


def lead_request(**fields: Any) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=7, broker_epoch=102, **fields)


LIVE_ONE = Lead.LeaderAndIsrLiveLeader(broker_id=1, host_name="s1", port=81)


@pytest.mark.parametrize("protocol", ["3.9", "3.2", "2.8", "2.7", "1.0", "0.9.0"])
def test_leaders_and_isrs_are_sent_in_full(protocol: str) -> None:
    requests = sent(protocol, cluster(), fill_leads)
    state = lead_states(recovers=protocol in ("3.9", "3.2"))
    by_id = {"3.9": 7, "3.2": 6, "2.8": 5}
    if protocol in by_id:  # what has no id is told in a version that is answered by name
        expected = [
            (by_id[protocol], {"topic_states": [lead_topic("t", state[T0], state[T1])], "live_leaders": [LIVE_ONE]}),
            (4, {"topic_states": [lead_topic("old", state[OLD])], "live_leaders": []}),
        ]  # fmt: skip
    elif protocol == "2.7":
        topics = [lead_topic("t", state[T0], state[T1]), lead_topic("old", state[OLD])]
        expected = [(4, {"topic_states": topics, "live_leaders": [LIVE_ONE]})]
    else:
        every = [state[T0], state[T1], state[OLD]]
        version = 1 if protocol == "1.0" else 0
        expected = [(version, {"ungrouped_partition_states": every, "live_leaders": [LIVE_ONE]})]
    assert requests == [Outgoing(2, 102, version, lead_request(**fields)) for version, fields in expected]


def metadata_states(*, is_going: bool) -> dict[tuple[str, int], Any]:
    def state(**fields: Any) -> Any:
        return Metadata.UpdateMetadataPartitionState(**fields)

    leader = {"leader": -2, "leader_epoch": 0, "zk_version": 0} if is_going else {}
    return {
        T0: state(
            topic_name="t", partition_index=0, controller_epoch=6, isr=[1, 2], replicas=[1, 2, 3],
            offline_replicas=[2], **{"leader": 1, "leader_epoch": 5, "zk_version": 9} | leader,
        ),
        T1: state(
            topic_name="t", partition_index=1, controller_epoch=4, isr=[3], replicas=[3, 1], offline_replicas=[3],
            **{"leader": 3, "leader_epoch": 8, "zk_version": 2} | leader,
        ),
        OLD: state(
            topic_name="old", partition_index=0, controller_epoch=7, isr=[2], replicas=[2], offline_replicas=[2],
            leader=-1, leader_epoch=3, zk_version=1,
        ),
    }  # fmt: skip


def live(version: int) -> list[Any]:
    def at(broker: int, listener: str, port: int) -> Any:
        protocol = {"SSL": 1, "PLAINTEXT": 0}[listener]
        host = f"{listener[0].lower()}{broker}"
        return Metadata.UpdateMetadataEndpoint(
            port=port, host=host, listener=listener, security_protocol=protocol
        )

    def plain(broker: int, rack: str | None, host: str, port: int) -> Any:
        return Metadata.UpdateMetadataBroker(id=broker, rack=rack, v0_host=host, v0_port=port)

    if version == 0:
        return [
            plain(1, "r1", "p1", 91),
            Metadata.UpdateMetadataBroker(id=2, rack=None),
            plain(3, None, "p3", 93),
        ]
    return [
        Metadata.UpdateMetadataBroker(id=1, rack="r1", endpoints=[at(1, "SSL", 81), at(1, "PLAINTEXT", 91)]),
        Metadata.UpdateMetadataBroker(id=2, rack=None, endpoints=[at(2, "SSL", 82)]),
        Metadata.UpdateMetadataBroker(id=3, rack=None, endpoints=[at(3, "PLAINTEXT", 93)]),
    ]  # fmt: skip


def fill_metadata(batch: Batch) -> None:
    batch.update_metadata([3, 2, 9], [T0, OLD])
    batch.update_metadata([], [T1, ("gone", 0), T0])


@pytest.mark.parametrize("is_going", [False, True])
@pytest.mark.parametrize(
    ("protocol", "version"), [("3.9", 8), ("2.2", 5), ("2.1", 4), ("0.9.0", 1), ("0.8.2", 0)]
)
def test_metadata_are_sent_in_full(protocol: str, version: int, is_going: bool) -> None:
    elected = cluster()
    elected.deletions["t"] = Deletion(begun=is_going)
    state = metadata_states(is_going=is_going)
    topics = [
        Metadata.UpdateMetadataTopicState("t", ID, [state[T0], state[T1]]),
        Metadata.UpdateMetadataTopicState("old", NO_ID, [state[OLD]]),
    ]
    assert sent(protocol, elected, fill_metadata) == [
        Outgoing(broker, epoch, version, UpdateMetadataRequest(
            controller_id=1, controller_epoch=7, broker_epoch=epoch,
            ungrouped_partition_states=[state[T0], state[OLD], state[T1]] if version < 5 else [],
            topic_states=topics if version >= 5 else [], live_brokers=live(version),
        ))
        for broker, epoch in ((2, 102), (3, 103))
    ]  # fmt: skip


def test_partitions_without_a_state_are_not_sent() -> None:
    state = cluster()
    batch = Batch(1, "SSL", ProtocolVersion.parse("3.9"))
    batch.tell_replicas([1, 2], ("gone", 0))
    batch.tell_replicas([9], T0)
    batch.update_metadata([9], [T0])
    batch.stop_replica(state, 9, T0, delete=True)
    assert list(batch.send(state)) == []

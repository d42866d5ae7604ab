"""Control requests: in the versions of Apache Kafka, in order, with what each broker needs."""

from __future__ import annotations

import pytest

from barnabas.cluster.controller.batches import PARTITIONS_PER_REQUEST, Batch, RequestVersions
from barnabas.cluster.controller.state import (
    Assignment,
    Broker,
    ControllerState,
    Deletion,
    Endpoint,
    PartitionState,
)
from barnabas.cluster.controller.steps import Send
from barnabas.cluster.metadata.protocol_version import ProtocolVersion
from barnabas.wire import registry
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from barnabas.wire.headers import encode_request, parse_request_header

ID = b"i" * 16


def cluster(partitions=1):
    state = ControllerState(epoch=7)
    for id_ in (1, 2, 3):
        endpoints = (Endpoint("INTERNAL", f"h{id_}", 9000 + id_), Endpoint("PLAINTEXT", f"h{id_}", 9092))
        state.brokers[id_] = Broker(id_, 100 + id_, endpoints, rack="r" if id_ == 1 else None)
    state.add_topic("t", ID, {index: Assignment((1, 2, 4), adding=(4,)) for index in range(partitions)})
    for index in range(partitions):
        state.states["t", index] = PartitionState(1, (1, 2), 5, 6, 9, recovering=True)
    return state


def sent(batch, state):
    requests = []
    for step in batch.send(state):
        if isinstance(step, Send):
            requests += step.requests
    return requests


def batch(protocol="3.9-IV0"):
    return Batch(1, "INTERNAL", ProtocolVersion.parse(protocol))


# What Apache Kafka 3.9 sends: LeaderAndIsr, UpdateMetadata, StopReplica.
PUBLISHED = {
    "0.8.2": (0, 0, 0), "0.9.0.1": (0, 1, 0), "0.10.0-IV0": (0, 1, 0), "0.10.0-IV1": (0, 2, 0), "0.10.1": (0, 2, 0),
    "0.10.2-IV0": (0, 3, 0), "0.11.0.3": (0, 3, 0), "1.0": (1, 4, 0), "2.1": (1, 4, 0), "2.2-IV0": (2, 5, 1),
    "2.4-IV0": (3, 5, 1), "2.4-IV1": (4, 6, 2), "2.4": (4, 6, 2), "2.5": (4, 6, 2), "2.6": (4, 6, 3), "2.8-IV0": (4, 6, 3),
    "2.8-IV1": (5, 7, 3), "3.1": (5, 7, 3), "3.2": (6, 7, 3), "3.3.2": (6, 7, 3), "3.4": (7, 8, 4), "3.9": (7, 8, 4),
}  # fmt: skip


@pytest.mark.parametrize(("protocol", "expected"), PUBLISHED.items())
def test_versions_follow_the_protocol_of_the_cluster(protocol, expected):
    chosen = RequestVersions.of(ProtocolVersion.parse(protocol))
    assert (chosen.leader_and_isr, chosen.update_metadata, chosen.stop_replica) == expected


@pytest.mark.parametrize("text", ["", "3", "3.9-IV", "three", "3.9-IV0x"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError, match="is no version"):
        ProtocolVersion.parse(text)


@pytest.mark.parametrize("protocol", PUBLISHED)
def test_every_version_can_be_encoded_and_says_the_same(protocol):
    state, requests = cluster(2), batch(protocol)
    requests.lead_or_follow(state, (1, 2), ("t", 0), new=True)
    requests.stop_replica(state, 2, ("t", 1), delete=True)
    requests.stop_replica(state, 2, ("t", 0), delete=False)
    seen = sent(requests, state)
    for out in seen:
        key = registry.key_of(type(out.request).__name__.removesuffix("Request"))
        data = b"".join(bytes(chunk) for chunk in encode_request(key, out.version, 1, "c", out.request))[4:]
        header = parse_request_header(data)
        pos = header.body_position
        read, end = registry.request_codec(key).decoders[out.version](data, pos)
        assert (end, header.api_version, read.controller_epoch) == (len(data), out.version, 7)
        if isinstance(read, LeaderAndIsrRequest):
            (partition,) = read.ungrouped_partition_states or read.topic_states[0].partition_states
            assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 5, [1, 2])
            assert partition.replicas == [1, 2, 4]
            assert [(leader.broker_id, leader.port) for leader in read.live_leaders] == [(1, 9001)]
        elif isinstance(read, UpdateMetadataRequest):
            (partition,) = read.ungrouped_partition_states or read.topic_states[0].partition_states
            assert (partition.leader, partition.zk_version) == (1, 9)
            assert [broker.id for broker in read.live_brokers] == [1, 2, 3]
    stops = [out for out in seen if isinstance(out.request, StopReplicaRequest)]
    assert len(stops) == (1 if stops[0].version >= 3 else 2)
    assert {key for stop in stops for key in stop.deleting} == {("t", 1)}


def test_requests_to_a_broker_have_its_epoch_and_their_order():
    state, requests = cluster(), batch()
    requests.stop_replica(state, 2, ("t", 0), delete=False)
    requests.lead_or_follow(state, (1, 2, 4), ("t", 0))
    kinds = {}
    for out in sent(requests, state):
        assert out.request.broker_epoch == out.broker_epoch == 100 + out.broker_id
        kinds.setdefault(out.broker_id, []).append(type(out.request))
    assert kinds == {
        1: [LeaderAndIsrRequest, UpdateMetadataRequest],
        2: [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest],
        3: [UpdateMetadataRequest],
    }, "broker 4 is not registered"
    assert sent(requests, state) == []


def test_ids_offline_replicas_and_recovery_are_sent():
    state, requests = cluster(), batch()
    requests.lead_or_follow(state, (1,), ("t", 0))
    leaders, metadata = (out.request for out in sent(requests, state) if out.broker_id == 1)
    assert leaders.topic_states[0].topic_id == metadata.topic_states[0].topic_id == ID
    assert leaders.topic_states[0].partition_states[0].leader_recovery_state == 1
    assert leaders.topic_states[0].partition_states[0].adding_replicas == [4]
    assert metadata.topic_states[0].partition_states[0].offline_replicas == [4]
    assert [broker.rack for broker in metadata.live_brokers] == ["r", None, None]


def test_nobody_leads_a_topic_that_is_being_deleted():
    state, requests = cluster(), batch()
    state.deletions["t"] = Deletion(begun=True)
    requests.update_metadata([1], [("t", 0)])
    requests.stop_replica(state, 1, ("t", 0), delete=True)
    metadata, stop = (out.request for out in sent(requests, state))
    assert metadata.topic_states[0].partition_states[0].leader == -2
    assert stop.topic_states[0].partition_states[0].leader_epoch == -2


def test_many_partitions_are_several_requests():
    state, requests = cluster(PARTITIONS_PER_REQUEST + 1), batch()
    for partition in state.partitions_of("t"):
        requests.lead_or_follow(state, (1,), partition)
    sizes = [
        len(out.request.topic_states[0].partition_states)
        for out in sent(requests, state)
        if out.broker_id == 1
    ]
    assert sizes == [PARTITIONS_PER_REQUEST, 1] * 2

"""Control requests that their model does not draw: ids that come later, impossible indexes, listeners without names."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.control_requests import INDEX_MAX, of_leader_and_isr, of_update_metadata
from barnabas.cluster.metadata.image import NO_TOPIC_ID, ClusterImage
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest

HERE = 2
ID, OTHER_ID = b"i" * 16, b"o" * 16
EMPTY = ClusterImage("cluster")


def state(index=0, leader=1, epoch=0, version=0, replicas=(1, 2, 3), isr=None, **more):
    return LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=index, leader=leader, leader_epoch=epoch, partition_epoch=version,
        replicas=list(replicas), isr=list(replicas if isr is None else isr), **more,
    )  # fmt: skip


def leader_and_isr(image, *states, topic_id=ID, name="t", controller_epoch=1):
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch)
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState
    request.topic_states = [topic(topic_name=name, topic_id=topic_id, partition_states=list(states))]
    learned = of_leader_and_isr(image, request, HERE)
    return image.apply(learned.changes), learned.errors


def told(index=0, leader=1, epoch=0, version=0, replicas=(1, 2, 3), isr=None, **more):
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=index, leader=leader, leader_epoch=epoch, zk_version=version,
        replicas=list(replicas), isr=list(replicas if isr is None else isr), **more,
    )  # fmt: skip


def update_metadata(image, *states, topic_id=ID, name="t", brokers=()):
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=list(brokers))
    topic = UpdateMetadataRequest.UpdateMetadataTopicState
    request.topic_states = [topic(topic_name=name, topic_id=topic_id, partition_states=list(states))]
    return image.apply(of_update_metadata(image, request, HERE, 77).changes)


def broker(broker_id, port=9092, listener="PLAINTEXT", rack=""):
    endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(port=port, host="h", listener=listener)
    return UpdateMetadataRequest.UpdateMetadataBroker(id=broker_id, endpoints=[endpoint], rack=rack)


def test_a_topic_gets_its_id_later_and_keeps_it():
    image, _ = leader_and_isr(EMPTY, state(), topic_id=NO_TOPIC_ID, name="a_b")
    before = image.topics["a_b"]
    image = update_metadata(image, told(), topic_id=OTHER_ID, name="a_b")
    assert image.names_by_id == {OTHER_ID: "a_b"}
    assert image.topics["a_b"].partitions == before.partitions
    image, errors = leader_and_isr(image, state(), topic_id=NO_TOPIC_ID, name="a_b")
    assert errors == {}
    assert image.topics["a_b"].id == OTHER_ID
    image = update_metadata(image, told(leader=-2), topic_id=OTHER_ID, name="a_b")
    assert not image.topics
    assert not image.names_by_id


@pytest.mark.parametrize("index", [-1, INDEX_MAX + 1, 2**31 - 1])
def test_a_partition_that_cannot_be_is_refused(index):
    with pytest.raises(RequestError) as caught:
        leader_and_isr(EMPTY, state(index))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_listener_names_default_to_their_protocols():
    one_broker = UpdateMetadataRequest.UpdateMetadataBroker(id=1, v0_host="h", v0_port=5)
    endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(port=6, host="i", security_protocol=1)
    two = UpdateMetadataRequest.UpdateMetadataBroker(id=2, endpoints=[endpoint])
    image = update_metadata(EMPTY, brokers=[one_broker, two])
    assert image.brokers[1].endpoints == {"PLAINTEXT": ("h", 5)}
    assert image.brokers[2].endpoints == {"SSL": ("i", 6)}

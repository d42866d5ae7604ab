"""LeaderAndIsr, UpdateMetadata and StopReplica teach a broker the cluster, whichever comes first and in every version."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.control_requests import (
    INDEX_MAX,
    UNKNOWN,
    of_leader_and_isr,
    of_stop_replica,
    of_update_metadata,
    stopped_replicas,
)
from barnabas.cluster.metadata.image import NO_TOPIC_ID, BrokerInfo, ClusterImage, PartitionInfo
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
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


def test_a_new_topic_is_learnt_with_its_controller():
    image, errors = leader_and_isr(EMPTY, state(0, epoch=4, version=9, adding_replicas=[3]))
    assert (image.controller_id, image.controller_epoch, errors) == (1, 1, {})
    assert image.topics["t"].id == ID
    assert image.topics["t"].partitions == (PartitionInfo(1, (1, 2, 3), (1, 2, 3), 4, 9, adding=(3,)),)


def test_partitions_without_a_state_are_unknown():
    image, _ = leader_and_isr(EMPTY, state(2))
    assert image.topics["t"].partitions[:2] == (UNKNOWN, UNKNOWN)
    image = update_metadata(image, told(0), told(1, leader=3), told(2), told(3))
    assert [info.leader for info in image.topics["t"].partitions] == [1, 3, 1, 1]


@pytest.mark.parametrize("first", ["leader_and_isr", "update_metadata"])
def test_the_second_of_both_changes_nothing_of_what_both_say(first):
    if first == "leader_and_isr":
        image, _ = leader_and_isr(EMPTY, state(epoch=5, version=6, adding_replicas=[3]))
        after = update_metadata(image, told(epoch=5, version=6))
    else:
        image = update_metadata(EMPTY, told(epoch=5, version=6, offline_replicas=[3]))
        after, _ = leader_and_isr(image, state(epoch=5, version=6))
    assert after.topics == image.topics


def test_what_one_of_them_does_not_say_stays():
    image, _ = leader_and_isr(EMPTY, state(epoch=5, version=6, adding_replicas=[3]))
    image = update_metadata(image, told(epoch=5, version=6, offline_replicas=[1]))
    (info,) = image.topics["t"].partitions
    assert (info.adding, info.offline) == ((3,), (1,))
    image = update_metadata(image, told(epoch=6, version=7, replicas=(2, 3)))
    (info,) = image.topics["t"].partitions
    assert (info.adding, info.offline) == ((), ())


def test_older_states_are_left_out():
    image, _ = leader_and_isr(EMPTY, state(epoch=5, version=6, leader=3))
    after, errors = leader_and_isr(image, state(epoch=4, version=9))
    assert errors == {("t", 0): ErrorCode.STALE_CONTROLLER_EPOCH}
    assert after.topics == image.topics
    assert update_metadata(image, told(epoch=5, version=5)).topics == image.topics
    after = update_metadata(image, told(epoch=5, version=7, leader=3, isr=(3,)))
    assert after.topics["t"].partitions[0].isr == (3,)


def test_a_broker_without_a_replica_says_so():
    image, errors = leader_and_isr(EMPTY, state(0, replicas=(1, 3)), state(1))
    assert errors == {("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert image.topics["t"].partitions[0] is UNKNOWN


def test_topic_name_is_refused_until_the_old_topic_is_gone():
    image, _ = leader_and_isr(EMPTY, state(epoch=5))
    after, errors = leader_and_isr(image, state(), topic_id=OTHER_ID)
    assert errors == {("t", 0): ErrorCode.INCONSISTENT_TOPIC_ID}
    assert after.topics == image.topics
    image = update_metadata(image, told(leader=-2))
    image, errors = leader_and_isr(image, state(), topic_id=OTHER_ID)
    assert errors == {}
    assert image.names_by_id == {OTHER_ID: "t"}


def test_a_leader_of_minus_2_deletes_the_topic_and_no_other():
    image, _ = leader_and_isr(EMPTY, state())
    assert update_metadata(image, told(leader=-2), topic_id=OTHER_ID).topics == image.topics
    assert not update_metadata(image, told(leader=-2)).topics
    assert not update_metadata(EMPTY, told(leader=-2)).topics


def test_topics_of_old_controllers_have_no_id():
    image = EMPTY
    for name in ("a", "b"):
        image, errors = leader_and_isr(image, state(), topic_id=NO_TOPIC_ID, name=name)
        assert errors == {}
    assert image.names_by_id == {}
    for name in ("a", "b"):
        image = update_metadata(image, told(leader=-2), topic_id=NO_TOPIC_ID, name=name)
    assert not image.topics


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


def test_old_versions_name_the_topic_of_each_partition():
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1)
    request.ungrouped_partition_states = [
        state(0, topic_name="a"),
        state(0, topic_name="b"),
        state(1, topic_name="a"),
    ]
    image = EMPTY.apply(of_leader_and_isr(EMPTY, request, HERE).changes)
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"a": 2, "b": 1}


@pytest.mark.parametrize("index", [-1, INDEX_MAX + 1, 2**31 - 1])
def test_a_partition_that_cannot_be_is_refused(index):
    with pytest.raises(RequestError) as caught:
        leader_and_isr(EMPTY, state(index))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_live_brokers_come_change_and_go():
    image = update_metadata(EMPTY, brokers=[broker(1, rack="r"), broker(HERE)])
    assert image.brokers == {
        1: BrokerInfo(1, "r", {"PLAINTEXT": ("h", 9092)}),
        HERE: BrokerInfo(HERE, None, {"PLAINTEXT": ("h", 9092)}, 77),
    }
    image = update_metadata(image, brokers=[broker(HERE), broker(3, 1)])
    assert set(image.brokers) == {HERE, 3}
    assert update_metadata(image).brokers == image.brokers


def test_listener_names_default_to_their_protocols():
    one = UpdateMetadataRequest.UpdateMetadataBroker(id=1, v0_host="h", v0_port=5)
    endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(port=6, host="i", security_protocol=1)
    two = UpdateMetadataRequest.UpdateMetadataBroker(id=2, endpoints=[endpoint])
    image = update_metadata(EMPTY, brokers=[one, two])
    assert image.brokers[1].endpoints == {"PLAINTEXT": ("h", 5)}
    assert image.brokers[2].endpoints == {"SSL": ("i", 6)}


def stop(image, *, epoch=-1, deletes=True, index=0):
    request = StopReplicaRequest(controller_id=1, controller_epoch=1)
    item = StopReplicaRequest.StopReplicaPartitionState(
        partition_index=index, leader_epoch=epoch, delete_partition=deletes
    )
    request.topic_states = [StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[item])]
    learned = of_stop_replica(image, request, HERE)
    return image.apply(learned.changes), learned.errors


@pytest.mark.parametrize("epoch", [-2, -1, 5, 6])
def test_a_replica_that_is_deleted_is_no_longer_one(epoch):
    image, _ = leader_and_isr(EMPTY, state(epoch=5, leader=HERE))
    after, errors = stop(image, epoch=epoch)
    assert (after.topics["t"].partitions[0].replicas, after.topics["t"].partitions[0].leader) == ((1, 3), -1)
    assert errors == {}


def test_an_older_stop_and_one_without_delete_change_nothing():
    image, _ = leader_and_isr(EMPTY, state(epoch=5))
    assert stop(image, epoch=4) == (image, {("t", 0): ErrorCode.FENCED_LEADER_EPOCH})
    assert stop(image, deletes=False)[0].topics == image.topics
    assert stop(image, index=7)[0].topics == image.topics


def test_replicas_to_stop_are_named_in_three_ways():
    request = StopReplicaRequest(delete_partitions=True)
    request.ungrouped_partitions = [
        StopReplicaRequest.StopReplicaPartitionV0(topic_name="a", partition_index=1)
    ]
    request.topics = [StopReplicaRequest.StopReplicaTopicV1(name="b", partition_indexes=[2, 3])]
    found = [(one.key, one.leader_epoch, one.deletes) for one in stopped_replicas(request)]
    assert found == [(("a", 1), -1, True), (("b", 2), -1, True), (("b", 3), -1, True)]

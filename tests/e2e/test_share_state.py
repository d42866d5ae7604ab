"""The share coordinator's own APIs over a bare socket, and what is left of them after a restart."""

from __future__ import annotations

import pytest

from barnabas.wire import registry
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.generated.read_share_group_state import ReadShareGroupStateRequest
from barnabas.wire.generated.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.wire.generated.write_share_group_state import WriteShareGroupStateRequest

from .conftest import BrokerProcess, StartBroker
from .test_versions import ask

pytestmark = pytest.mark.e2e

KEYS = {
    InitializeShareGroupStateRequest: ("InitializeShareGroupState", "InitializeStateData", 0),
    ReadShareGroupStateRequest: ("ReadShareGroupState", "ReadStateData", 0),
    WriteShareGroupStateRequest: ("WriteShareGroupState", "WriteStateData", 1),
    DeleteShareGroupStateRequest: ("DeleteShareGroupState", "DeleteStateData", 0),
    ReadShareGroupStateSummaryRequest: ("ReadShareGroupStateSummary", "ReadStateSummaryData", 1),
}


def topic_id_of(broker: BrokerProcess, name: str) -> bytes:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    created = ask(broker, 19, 7, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    assert created.topics[0].error_code == 0
    return created.topics[0].topic_id  # type: ignore[no-any-return]


def state(broker: BrokerProcess, kind: type, topic_id: bytes, group: str = "group", **fields: object):  # type: ignore[no-untyped-def]
    name, struct, version = KEYS[kind]
    data = getattr(kind, struct)(topic_id=topic_id, partitions=[kind.PartitionData(**fields)])  # type: ignore[attr-defined]
    answer = ask(broker, registry.key_of(name), version, kind(group_id=group, topics=[data]))
    assert answer.results[0].topic_id == topic_id
    return answer.results[0].partitions[0]


def test_state_is_kept_over_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker("share.coordinator.state.topic.num.partitions=3")
    topic = topic_id_of(broker, "topic")
    assert state(broker, ReadShareGroupStateRequest, topic).error_code == ErrorCode.INVALID_REQUEST
    assert not state(
        broker, InitializeShareGroupStateRequest, topic, state_epoch=2, start_offset=5
    ).error_code
    batch = WriteShareGroupStateRequest.StateBatch(
        first_offset=7, last_offset=9, delivery_state=2, delivery_count=1
    )
    written = state(
        broker, WriteShareGroupStateRequest, topic,
        state_epoch=2, start_offset=6, delivery_complete_count=3, state_batches=[batch],
    )  # fmt: skip
    assert not written.error_code
    broker.stop()
    broker = start_broker("share.coordinator.state.topic.num.partitions=3", data=broker.data)
    read = state(broker, ReadShareGroupStateRequest, topic, leader_epoch=4)
    assert (read.error_code, read.state_epoch, read.start_offset) == (0, 2, 6)
    assert [
        (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read.state_batches
    ] == [(7, 9, 2, 1)]
    fenced = state(broker, WriteShareGroupStateRequest, topic, state_epoch=2, leader_epoch=3)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    summary = state(broker, ReadShareGroupStateSummaryRequest, topic)
    assert (summary.start_offset, summary.leader_epoch, summary.delivery_complete_count) == (6, 4, 3)
    assert state(broker, ReadShareGroupStateRequest, topic, "").error_code == ErrorCode.INVALID_REQUEST
    assert not state(broker, DeleteShareGroupStateRequest, topic).error_code
    assert state(broker, ReadShareGroupStateSummaryRequest, topic).start_offset == -1


def test_the_state_goes_with_its_topic(start_broker: StartBroker) -> None:
    broker = start_broker("share.coordinator.state.topic.num.partitions=1")
    topic = topic_id_of(broker, "topic")
    state(broker, InitializeShareGroupStateRequest, topic, state_epoch=0, start_offset=0)
    deleted = ask(broker, 20, 5, DeleteTopicsRequest(topic_names=["topic"], timeout_ms=60_000))
    assert deleted.responses[0].error_code == 0
    gone = state(broker, ReadShareGroupStateSummaryRequest, topic)
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_its_coordinator_is_found_by_group_and_partition(start_broker: StartBroker) -> None:
    broker = start_broker()
    keys = ["group:AAECAwQFBgcICQoLDA0ODw:0", "group", "group:topic:0"]
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
    codes = [result.error_code for result in ask(broker, 10, 6, request).coordinators]
    assert codes == [0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert {result.error_code for result in ask(broker, 10, 5, request).coordinators} == {
        ErrorCode.INVALID_REQUEST
    }

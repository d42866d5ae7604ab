"""Answers of the coordinators' handlers where what Kafka says is not what one would guess."""

import struct

import pytest
import trio

from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest
from barnabas.wire.generated.describe_groups import DescribeGroupsRequest
from barnabas.wire.generated.end_txn import EndTxnRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.list_groups import ListGroupsRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_delete import OffsetDeleteRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        yield asked


def joining(**fields):
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    return JoinGroupRequest(
        **{
            "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer", "protocols": [protocol], **fields,
        }
    )  # fmt: skip


async def producer_of(ask, transactional_id="txn"):
    answer = await ask(
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4
    )
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def add(ask, producer, *places, version=3, verify_only=False):
    topics = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[index])
        for name, index in places
    ]
    if version <= 3:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="txn", v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1], v3_and_below_topics=topics,
        )  # fmt: skip
        results = (await ask(request, version)).results_by_topic_v3_and_below
    else:
        asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id="txn", producer_id=producer[0], producer_epoch=producer[1], topics=topics,
            verify_only=verify_only,
        )  # fmt: skip
        answer = await ask(AddPartitionsToTxnRequest(transactions=[asked]), version)
        results = answer.results_by_transaction[0].topic_results
    return [part.partition_error_code for topic in results for part in topic.results_by_partition]


async def write(ask, producer, sequence=0, *, transactional_id="txn", version=12):
    records = batch(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic])
    return (await ask(request, version)).responses[0].partition_responses[0]


FIRST_BEAT = ConsumerGroupHeartbeatRequest(
    group_id="g", member_id="me", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
)


# --- groups -----------------------------------------------------------------------------------------------------


async def test_an_error_of_join_group_names_no_protocol(ask):
    required = await ask(joining(), 9)
    assert (required.error_code, required.protocol_name) == (ErrorCode.MEMBER_ID_REQUIRED, None)
    assert (await ask(joining(), 6)).protocol_name == ""


async def test_an_empty_instance_id_begins_the_member_id(ask):
    assert (await ask(joining(group_instance_id=""), 9)).member_id.startswith("-")


async def test_the_oldest_join_group_has_one_timeout_for_everything(ask):
    await ask(joining(rebalance_timeout_ms=-1), 0)
    [member] = (
        (await ask.services.group_coordinator.read("g", lambda machine: machine)).groups["g"].members.values()
    )
    assert member.rebalance_timeout_ms == member.session_timeout_ms == 10_000


async def test_assignments_are_described_while_members_gather(ask):
    me = (await ask(joining(), 3)).member_id
    entry = SyncGroupRequest.SyncGroupRequestAssignment(member_id=me, assignment=b"mine")
    await ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=me, assignments=[entry]), 3)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"new")
    await ask(joining(member_id=me, protocols=[protocol]), 3)
    [group] = (await ask(DescribeGroupsRequest(groups=["g"]), 5)).groups
    [member] = group.members
    assert (group.group_state, member.member_metadata, member.member_assignment) == (
        "CompletingRebalance", b"", b"mine",
    )  # fmt: skip


async def test_commit_is_authorized_before_metadata_is_measured(ask):
    async def commit(**fields):
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        parts = [
            partition(partition_index=0, committed_offset=1),
            partition(partition_index=1, committed_offset=1, committed_metadata="m" * 4097),
        ]
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=parts)
        answer = await ask(OffsetCommitRequest(group_id="g", topics=[topic], **fields), 8)
        return [part.error_code for part in answer.topics[0].partitions]

    assert await commit() == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert (
        await commit(member_id="nobody", generation_id_or_member_epoch=1) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    )


async def test_a_group_that_is_named_twice_is_deleted_once(ask):
    answer = await ask(DeleteGroupsRequest(groups_names=["x", "x"]), 2)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("x", ErrorCode.GROUP_ID_NOT_FOUND)
    ]


async def test_offsets_of_unknown_partitions_cannot_be_deleted(ask):
    await ask(joining(), 0)
    parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in (1, 2, -1)]
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=parts)
    members = (await ask.services.group_coordinator.read("g", lambda machine: machine)).groups["g"].members
    for member_id in tuple(members):
        members.take(member_id)
    answer = await ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert [part.error_code for part in answer.topics[0].partitions] == [
        0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip


async def test_a_classic_member_of_a_consumer_group_has_a_bare_id(ask):
    assert (await ask(FIRST_BEAT, 1)).member_epoch == 2
    metadata = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    required = await ask(joining(protocols=[protocol]), 9)
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(required.member_id) == 22
    [group] = (await ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
    assert group.members[0].subscribed_topic_regex == ""
    operator = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=name) for name in ("me", "nobody")]
    )
    codes = [member.error_code for member in (await ask(operator, 5)).members]
    assert codes == [0, ErrorCode.UNKNOWN_MEMBER_ID]


async def test_many_leaving_members_take_events_and_get_their_codes(ask, monkeypatch):
    monkeypatch.setattr("barnabas.handlers.leave_group.MEMBERS_PER_BATCH", 2)
    ids = [(await ask(joining(group_id="many"), 9)).member_id for _ in range(5)]
    named = [*ids[:3], "nobody", *ids[3:]]
    request = LeaveGroupRequest(
        group_id="many", members=[LeaveGroupRequest.MemberIdentity(member_id=name) for name in named]
    )
    answer = await ask(request, 5)
    assert [member.member_id for member in answer.members] == named
    codes = [member.error_code for member in answer.members]
    assert codes == [0, 0, 0, ErrorCode.UNKNOWN_MEMBER_ID, 0, 0]
    assert (await ask(LeaveGroupRequest(group_id="many"), 5)).members == []


async def test_pending_member_id_does_not_keep_a_group_classic(ask):
    member_id = (await ask(joining(), 9)).member_id
    assert (await ask(FIRST_BEAT, 1)).error_code == 0
    refused = await ask(joining(member_id=member_id), 9)
    assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


# --- transactions -----------------------------------------------------------------------------------------------


async def test_an_error_of_init_producer_id_gives_no_epoch(ask):
    answer = await ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
        ErrorCode.INVALID_REQUEST, -1, -1,
    )  # fmt: skip


async def test_producers_add_no_internal_topics(ask):
    producer = await producer_of(ask)
    codes = await add(ask, producer, ("__consumer_offsets", 0), ("t", 0))
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED]


async def test_who_only_asks_is_told_of_unknown_partitions_first(ask):
    producer = await producer_of(ask)
    for version in (4, 5):
        assert await add(ask, producer, ("t", 0), version=version, verify_only=True) == [
            ErrorCode.TRANSACTION_ABORTABLE
        ]
        assert await add(ask, producer, ("x", 0), version=version, verify_only=True) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]


async def test_a_transaction_of_version_2_begins_with_sequence_0(ask):
    producer = await producer_of(ask)
    assert (await write(ask, producer, 5)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await write(ask, producer, 0)).error_code == 0
    late = await producer_of(ask, "other")
    await add(ask, late, ("t", 0))
    assert (await write(ask, (late[0], late[1]), 5, transactional_id="other", version=9)).error_code


async def test_what_is_refused_as_a_whole_has_no_base_offset(ask):
    answer = await write(ask, (1, 0), transactional_id=None)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answer.base_offset == -1


async def test_a_partition_knows_old_epochs_by_itself(ask):
    old = await producer_of(ask)
    await write(ask, old)
    await markers_answered(ask, marker((old[0], old[1] + 1), 0, commit=False))
    assert (
        await write(ask, old, 1, transactional_id="another")
    ).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def marker(producer, *partitions, commit=True, version=0):
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=list(partitions))
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer[0], producer_epoch=producer[1], transaction_result=commit,
        topics=[topic] if partitions else [], coordinator_epoch=0, transaction_version=version,
    )  # fmt: skip


async def markers_answered(ask, *markers):
    answer = await ask(WriteTxnMarkersRequest(markers=list(markers)), 2)
    return [
        (
            result.producer_id,
            [(p.partition_index, p.error_code) for topic in result.topics for p in topic.partitions],
        )
        for result in answer.markers
    ]


async def test_markers_are_answered_once_for_each_producer(ask):
    assert await markers_answered(ask, marker((7, 0), 0), marker((7, 0), 1), marker((8, 0))) == [
        (7, [(0, 0), (1, 0)])
    ]
    assert await markers_answered(ask, marker((9, -1), 0)) == [(9, [(0, ErrorCode.UNKNOWN_SERVER_ERROR)])]


async def test_a_marker_of_nobody_is_not_written(ask):
    before = await ask(ListOffsetsRequest(topics=[latest()]), 7)
    answers = await markers_answered(ask, marker((-1, 0), 0), marker((9, -2), 0))
    assert answers == [
        (-1, [(0, ErrorCode.UNKNOWN_SERVER_ERROR)]),
        (9, [(0, ErrorCode.INVALID_PRODUCER_EPOCH)]),
    ]
    assert await ask(ListOffsetsRequest(topics=[latest()]), 7) == before


def latest():
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])


async def test_marker_of_version_2_has_a_higher_epoch_than_its_data(ask):
    producer = await producer_of(ask)
    await write(ask, producer)
    fenced = [(producer[0], [(0, ErrorCode.INVALID_PRODUCER_EPOCH)])]
    assert await markers_answered(ask, marker(producer, 0, version=2)) == fenced
    higher = (producer[0], producer[1] + 1)
    assert await markers_answered(ask, marker(higher, 0, version=2)) == [(producer[0], [(0, 0)])]
    assert await markers_answered(ask, marker(higher, 0, version=2)) == [
        (producer[0], [(0, 0)])
    ]  # nothing is open


async def test_transaction_is_checked_before_its_offsets(ask):
    producer = await producer_of(ask)

    async def commit(producer, transactional_id="txn", group_id="in-txn", metadata="", **fields):
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=3, committed_metadata=metadata
        )
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id, group_id=group_id, producer_id=producer[0],
            producer_epoch=producer[1], topics=[topic], **fields,
        )  # fmt: skip
        return (await ask(request, 5)).topics[0].partitions[0].error_code

    too_long = "m" * 4097
    assert await commit((producer[0] + 1, 0), metadata=too_long) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await commit(producer, metadata=too_long) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await commit(producer, transactional_id="") == ErrorCode.INVALID_REQUEST
    assert await commit(producer) == 0
    assert await commit(producer, transactional_id="") == 0  # the partition is in the transaction already
    nobody = {"member_id": "nobody", "generation_id_or_member_epoch": 1}
    assert await commit(producer, **nobody) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(producer, group_id="absent", **nobody) == ErrorCode.ILLEGAL_GENERATION
    listed = (await ask(ListGroupsRequest(), 5)).groups
    assert [(group.group_id, group.group_state) for group in listed] == [("in-txn", "Empty")]


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), -2, 0])
async def test_offsets_are_committed_whatever_their_retention(ask, retention_ms):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, retention_time_ms=retention_ms, topics=[topic]
    )
    answer = await ask(request, 3)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    (shard,) = await ask.services.group_coordinator.machines()
    assert shard.offsets["g"]["t", 0].offset == 7
    await ask.services.group_coordinator.expire_offsets()
    assert ("g" in shard.offsets) == (retention_ms > 0)


@pytest.mark.parametrize("version", range(7))
async def test_located_coordinator_comes_with_the_none_message(ask, version):
    asked = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    answer = await ask(asked, version)
    (coordinator,) = answer.coordinators or [answer]
    assert coordinator.error_code == ErrorCode.NONE
    assert coordinator.error_message == (
        "NONE" if 1 <= version <= 3 else ""
    )  # as in Kafka 4.3; v0 has no such field


async def states_of(ask, *group_ids):
    described = [(await ask(DescribeGroupsRequest(groups=[group_id]), 5)).groups[0] for group_id in group_ids]
    listed = {group.group_id: group.group_state for group in (await ask(ListGroupsRequest(), 5)).groups}
    return [(group.group_state, listed.get(group.group_id)) for group in described]


async def test_group_without_offsets_is_empty_until_expiry(ask):
    await ask(commit_of(0), 8)
    part = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[part])
    for _ in range(2):
        answer = await ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
        assert await states_of(ask, "g", "nobody") == [("Empty", "Empty"), ("Dead", None)]
    assert (await ask(commit_of(1), 8)).topics[0].partitions[0].error_code == 0
    assert (await ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)).error_code == 0
    [deleted] = (await ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == 0
    assert await states_of(ask, "g") == [("Dead", None)]


async def test_empty_group_without_offsets_ends_with_the_next_expiry(ask):
    await ask(commit_of(0), 8)
    part = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[part])
    await ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    await ask.services.group_coordinator.expire_offsets()
    assert await states_of(ask, "g") == [("Dead", None)]


def commit_of(index):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


async def test_group_with_only_aborted_offsets_is_empty(ask):
    producer = await producer_of(ask)
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
    request = TxnOffsetCommitRequest(
        transactional_id="txn", group_id="g", producer_id=producer[0], producer_epoch=producer[1],
        topics=[topic],
    )  # fmt: skip
    assert (await ask(request, 5)).topics[0].partitions[0].error_code == 0
    end = EndTxnRequest(
        transactional_id="txn", producer_id=producer[0], producer_epoch=producer[1], committed=False
    )
    assert (await ask(end, 5)).error_code == 0
    with trio.fail_after(5):
        while (await ask.services.group_coordinator.read("g", lambda machine: machine)).pending.has("g"):
            await trio.sleep(0.01)
    assert await states_of(ask, "g") == [("Empty", "Empty")]

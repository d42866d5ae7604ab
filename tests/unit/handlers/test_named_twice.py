"""Requests that name something twice, or a topic without partitions, over all versions: answered as Apache Kafka does."""

import pytest

from barnabas.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.generated.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_delete import OffsetDeleteRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch

NAMED = [("t", [0, 1, 0]), ("u", []), ("v", [0]), ("t", [1, 2])]
"""Topics with indexes of partitions: `t` twice, two of its partitions twice, and one without any."""
ONCE = {"t": [0, 1, 2], "v": [0]}
AS_NAMED = [("t", [0, 1, 0]), ("v", [0]), ("t", [1, 2])]
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        for name in ("t", "u", "v"):
            await ask_for_topic(asked, name, partitions=3)
        yield asked


def indexes(topics, name="name", partitions="partitions"):
    """Partitions of an answer, by topic; a topic that is there twice fails."""
    lists = [(getattr(row, name), [of.partition_index for of in getattr(row, partitions)]) for row in topics]
    assert len(dict(lists)) == len(lists)
    return dict(lists)


@pytest.mark.parametrize("version", range(1, 12))
async def test_listed_offsets_refuse_what_is_named_twice_once(ask, version):
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
                for index in partitions
            ],
        )
        for name, partitions in NAMED
    ]
    answer = await ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)
    assert indexes(answer.topics) == ONCE
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0, 0]


@pytest.mark.parametrize("version", range(3))
async def test_of_records_to_delete_the_last_offset_counts(ask, version):
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(*[b"v"] * 5))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    await ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 8)
    offsets = iter((4, 0, 2, 0, 0, 0))
    topics = [
        DeleteRecordsRequest.DeleteRecordsTopic(
            name=name,
            partitions=[
                DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=next(offsets))
                for index in partitions
            ],
        )
        for name, partitions in NAMED
    ]
    answer = await ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    assert indexes(answer.topics) == ONCE
    assert [part.low_watermark for topic in answer.topics for part in topic.partitions] == [2, 0, 0, 0]


@pytest.mark.parametrize("version", range(3))
async def test_replicas_move_to_the_last_log_dir(ask, version):
    topics = [
        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=partitions)
        for name, partitions in NAMED
    ]
    dirs = [AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=topics) for path in ("/a", "/b")]
    answer = await ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
    assert indexes(answer.results, "topic_name") == ONCE
    codes = {partition.error_code for topic in answer.results for partition in topic.partitions}
    assert codes == {ErrorCode.LOG_DIR_NOT_FOUND}


async def added(ask, version, **about):
    """Topics with partitions and codes in the answer about one transaction."""
    topics = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=partitions)
        for name, partitions in about.pop("named", NAMED)
    ]
    if version < 4:
        old = {f"v3_and_below_{name}": value for name, value in about.items()}
        answer = await ask(AddPartitionsToTxnRequest(v3_and_below_topics=topics, **old), version)
        results = answer.results_by_topic_v3_and_below
    else:
        txn = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(topics=topics, **about)
        (result,) = (await ask(AddPartitionsToTxnRequest(transactions=[txn]), version)).results_by_transaction
        results = result.topic_results
    return [
        (row.name, [(part.partition_index, part.partition_error_code) for part in row.results_by_partition])
        for row in results
    ]


def with_code(code, named=NAMED):
    return [(name, [(index, code) for index in partitions]) for name, partitions in named]


@pytest.mark.parametrize("version", [4, 5])
async def test_verifying_brokers_hear_of_each_partition_once(ask, version):
    results = await added(ask, version, transactional_id="txn", producer_id=1, verify_only=True)
    assert results == with_code(ErrorCode.INVALID_PRODUCER_ID_MAPPING, [*ONCE.items()])


@pytest.mark.parametrize("version", range(6))
async def test_partitions_added_together_are_answered_as_named(ask, version):
    results = await added(ask, version, transactional_id="txn", producer_id=1)
    assert results == with_code(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    begun = await ask(InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=1000), 4)
    who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    assert await added(ask, version, transactional_id="txn", **who) == with_code(0)
    assert await added(ask, version, transactional_id="") == with_code(ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("transactional_id", ["txn", ""])
@pytest.mark.parametrize("version", range(6))
async def test_partitions_beside_an_unknown_one_are_answered_once(ask, version, transactional_id):
    named = [*NAMED, ("nowhere", [0, 0])]
    results = await added(ask, version, transactional_id=transactional_id, named=named)
    assert results == [
        *with_code(ErrorCode.OPERATION_NOT_ATTEMPTED, [*ONCE.items()]),
        ("nowhere", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


@pytest.mark.parametrize("version", range(2, 10))
async def test_commit_omits_topics_without_partitions(ask, version):
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                for index in partitions
            ],
        )
        for name, partitions in NAMED
    ]
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    answer = await ask(request, version)
    assert [(row.name, [of.partition_index for of in row.partitions]) for row in answer.topics] == AS_NAMED


async def test_other_offsets_omit_topics_without_partitions(ask):
    in_transaction = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="u", partitions=[])
    for version in range(6):
        request = TxnOffsetCommitRequest(transactional_id="txn", group_id="g", topics=[in_transaction])
        assert (await ask(request, version)).topics == []
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    await ask(OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic]), 8)
    gone = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[])
    answer = await ask(OffsetDeleteRequest(group_id="g", topics=[gone]), 0)
    assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize("version", range(3))
async def test_elections_name_every_topic_or_each_as_it_is_named(ask, version):
    def found(answer):
        return [
            (result.topic, [of.partition_id for of in result.partition_result])
            for result in answer.replica_election_results
        ]

    everything = await ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), version)
    assert sorted(found(everything)) == [("t", []), ("u", []), ("v", [])]
    named = [
        ElectLeadersRequest.TopicPartitions(topic=name, partitions=partitions) for name, partitions in NAMED
    ]
    answer = await ask(ElectLeadersRequest(topic_partitions=named, timeout_ms=1000), version)
    assert found(answer) == NAMED


async def test_a_leader_epoch_below_minus_one_is_an_old_one(ask):
    query = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=-2, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[query])]
    for version in range(4, 12):
        answer = await ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-2, leader_epoch=0
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[partition])
    for version in range(2, 5):
        answer = await ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), version)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

"""Internal topics that are deleted: each coordinator answers again with its next request, and knows nothing of before."""

import pytest

from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.read_share_group_state import ReadShareGroupStateRequest
from tests.support.broker import ask_for_topic, broker_to_ask

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked, partitions=1)
        yield asked


async def delete(ask, name):
    (answer,) = (await ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)).responses
    assert answer.error_code == 0
    assert name not in ask.services.metadata.image.topics


async def commit(ask, offset):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await ask(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    return answer.topics[0].partitions[0].error_code


async def committed(ask):
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await ask(OffsetFetchRequest(group_id="g", topics=[topic]), 5)
    assert answer.error_code == 0
    return answer.topics[0].partitions[0].committed_offset


async def test_offsets(ask):
    for offset in (5, 6):
        assert await committed(ask) == -1
        assert await commit(ask, offset) == 0
        assert await committed(ask) == offset
        await delete(ask, "__consumer_offsets")


async def test_transactional_ids(ask):
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
    ids = []
    for _ in range(3):
        for epoch in range(2):
            answer = await ask(request, 4)
            assert (answer.error_code, answer.producer_epoch) == (0, epoch)
        ids.append(answer.producer_id)
        await delete(ask, "__transaction_state")
    assert len(set(ids)) == 3


async def test_states_of_share_groups(ask):
    topic_id = ask.services.metadata.image.topics["t"].id
    for start in (3, 4):
        begin = InitializeShareGroupStateRequest
        partition = begin.PartitionData(partition=0, state_epoch=1, start_offset=start)
        topic = begin.InitializeStateData(topic_id=topic_id, partitions=[partition])
        answer = await ask(begin(group_id="g", topics=[topic]), 0)
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        read = ReadShareGroupStateRequest
        topic = read.ReadStateData(topic_id=topic_id, partitions=[read.PartitionData(partition=0)])
        answer = await ask(read(group_id="g", topics=[topic]), 0)
        assert answer.results[0].partitions[0].start_offset == start
        await delete(ask, "__share_group_state")


async def test_looking_for_the_coordinator_makes_the_topic_again(ask):
    for key_type, name in ((0, "__consumer_offsets"), (1, "__transaction_state")):
        for _ in range(2):
            assert (await ask(FindCoordinatorRequest(key="g", key_type=key_type), 2)).error_code == 0
            assert len(ask.services.metadata.image.topics[name].partitions) == 2
            await delete(ask, name)

"""OffsetCommit and OffsetFetch v0 where there is ZooKeeper: kept where consumers before 0.9 look."""

import pytest

from barnabas.cluster.zookeeper.consumer_offsets import ZooKeeperConsumerOffsets
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from tests.support.broker import broker_to_ask

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        await asked(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        asked.zookeeper = SimulatedZooKeeper()
        offsets = ZooKeeperConsumerOffsets(asked.zookeeper.session())
        asked.services = asked.services._replace(consumer_offsets=offsets)
        yield asked


def commit(*offsets, group="g", topic="t"):
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset, metadata in offsets
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return OffsetCommitRequest(group_id=group, topics=topics)


def fetch(*indexes, group="g", topic="t"):
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))]
    return OffsetFetchRequest(group_id=group, topics=topics)


def found(answer):
    return [
        (part.partition_index, part.committed_offset, part.error_code) for part in answer.topics[0].partitions
    ]


async def test_version_0_is_kept_in_zookeeper_and_nowhere_else(ask):
    answer = await ask(commit((0, 7, "m"), (9, 1, ""), (1, 8, "x" * 5000)), 0)
    codes = [partition.error_code for partition in answer.topics[0].partitions]
    assert codes == [0, UNKNOWN, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    znodes = ask.zookeeper.dump()
    assert znodes["/consumers/g/offsets/t/0"] == b"7"
    assert "/consumers/g/offsets/t/1" not in znodes
    assert found(await ask(fetch(0, 1, 9), 0)) == [(0, 7, 0), (1, -1, UNKNOWN), (9, -1, UNKNOWN)]
    assert found(await ask(fetch(0), 1)) == [(0, -1, 0)], "the group coordinator knows nothing of it"


async def test_later_versions_are_the_group_coordinators(ask):
    await ask(commit((0, 7, "")), 0)
    assert (await ask(commit((0, 9, "")), 2)).topics[0].partitions[0].error_code == 0
    assert found(await ask(fetch(0), 1)) == [(0, 9, 0)]
    assert found(await ask(fetch(0), 0)) == [(0, 7, 0)]


async def test_a_group_that_zookeeper_cannot_keep_is_refused(ask):
    answer = await ask(commit((0, 7, ""), group="a/b"), 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert found(await ask(fetch(0, group="a/b"), 0)) == [(0, -1, ErrorCode.INVALID_GROUP_ID)]

"""Coordinators forget a topic that is deleted, whichever broker has deleted it: they follow the metadata, not a request."""

import pytest
import trio

from barnabas.cluster.metadata.changes import PartitionsAdded, TopicDeleted
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from tests.support.broker import broker_to_ask

SETTINGS = {"offsets.topic.num.partitions": "2", "share.coordinator.state.topic.num.partitions": "2"}
GROUPS = ("g", "h")


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        for name in ("t", "u"):
            await create(asked, name)
        yield asked


async def create(ask, name):
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = await ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert answer.topics[0].error_code == 0


async def delete_without_a_request(ask, name):
    await ask.services.metadata.change(lambda image: [TopicDeleted(name)])


async def commit(ask, group_id, name, offset):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])
    answer = await ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), 7)
    assert answer.topics[0].partitions[0].error_code == 0


async def committed(ask, group_id):
    answer = await ask(OffsetFetchRequest(group_id=group_id, topics=None), 5)
    return {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}


async def until(condition):
    with trio.fail_after(10):
        while not await condition():
            await trio.lowlevel.checkpoint()


async def test_its_committed_offsets_are_forgotten(ask):
    for group_id in GROUPS:
        await commit(ask, group_id, "t", 5)
        await commit(ask, group_id, "u", 6)
    await delete_without_a_request(ask, "t")

    async def forgotten():
        return [await committed(ask, group_id) for group_id in GROUPS] == [{"u": 6}, {"u": 6}]

    await until(forgotten)


async def test_offsets_of_a_topic_of_the_same_name_stay(ask):
    for group_id in GROUPS:
        await commit(ask, group_id, "t", 5)
    await delete_without_a_request(ask, "t")
    ask.clock.now_ms += 1
    await create(ask, "t")
    await commit(ask, "h", "t", 7)

    async def forgotten():
        return await committed(ask, "g") == {}

    await until(forgotten)
    await trio.testing.wait_all_tasks_blocked()
    assert await committed(ask, "h") == {"t": 7}


async def test_its_states_of_share_groups_are_forgotten(ask):
    topic_id = ask.services.metadata.image.topics["t"].id
    begin = InitializeShareGroupStateRequest
    partition = begin.PartitionData(partition=0, state_epoch=1, start_offset=3)
    topic = begin.InitializeStateData(topic_id=topic_id, partitions=[partition])
    answer = await ask(begin(group_id="g", topics=[topic]), 0)
    assert answer.results[0].partitions[0].error_code == 0
    await delete_without_a_request(ask, "t")

    async def forgotten():
        return not any(machine.states for machine in await ask.services.shares.state.machines())

    await until(forgotten)


async def test_share_groups_are_not_set_up_for_it(ask):
    await delete_without_a_request(ask, "t")
    await trio.testing.wait_all_tasks_blocked()
    assert ask.services.lazy_shares.if_made is None


async def test_partitions_that_are_added_change_no_shard(ask):
    await commit(ask, "g", "t", 5)
    machines = await ask.services.group_coordinator.machines()
    image = ask.services.metadata.image
    more = image.topics["t"].partitions
    await ask.services.metadata.change(lambda image: [PartitionsAdded("t", more)])
    assert await ask.services.group_coordinator.machines() == machines
    assert await committed(ask, "g") == {"t": 5}

"""Requests for much of what coordinators know: others may run in between, and nothing is decided in one long event.

Judged by counts: how often a request lets others run, and how many records an event makes at most.
"""

import pytest
import trio

from barnabas.coordinators.groups.shard import OFFSETS_PER_EVENT
from barnabas.coordinators.runtime.internal_topics import InternalTopic
from barnabas.handlers.shared.committing import COMMITS_PER_BATCH, PARTITIONS_PER_CHECKPOINT
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_delete import OffsetDeleteRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.broker import broker_to_ask

PARTITIONS = 600
SETTINGS = {
    "offsets.retention.minutes": "1", "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
}  # fmt: skip


class Counts:
    """Counters since `reset`; only the checkpoints of the task that has called it are counted."""

    def __init__(self):
        self.task = None
        self.checkpoints = self.largest_batch = 0

    def reset(self):
        self.task = trio.lowlevel.current_task()
        self.checkpoints = 0
        self.largest_batch = 0


@pytest.fixture
def counts(monkeypatch):
    counted = Counts()
    append = InternalTopic.append

    async def checkpoint(self):
        counted.checkpoints += trio.lowlevel.current_task() is counted.task

    def counted_append(self, partition, records, *args):
        counted.largest_batch = max(counted.largest_batch, len(records))
        return append(self, partition, records, *args)

    monkeypatch.setattr(LoopBudget, "checkpoint", checkpoint)
    monkeypatch.setattr(InternalTopic, "append", counted_append)
    return counted


@pytest.fixture
async def ask(tmp_path, counts):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("one", 1), ("many", PARTITIONS))
        ]
        await asked(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        yield asked


def commit_of(group_id, topic, count):
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(count)
    ]
    committed = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
    return OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=[committed])


async def test_many_offsets_of_a_group_come_and_go_in_steps(ask, counts):
    counts.reset()
    (topic,) = (await ask(commit_of("g", "many", PARTITIONS), 8)).topics
    assert [answer.error_code for answer in topic.partitions] == [0] * PARTITIONS
    assert counts.checkpoints >= PARTITIONS // PARTITIONS_PER_CHECKPOINT
    assert counts.largest_batch == COMMITS_PER_BATCH

    counts.reset()
    everything = OffsetFetchRequest(group_id="g", topics=None)
    (topic,) = (await ask(everything, 7)).topics
    assert [answer.committed_offset for answer in topic.partitions] == [1] * PARTITIONS
    assert counts.checkpoints >= PARTITIONS

    counts.reset()
    some = [
        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in range(PARTITIONS)
    ]
    named = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="many", partitions=some)
    (topic,) = (await ask(OffsetDeleteRequest(group_id="g", topics=[named]), 0)).topics
    assert {answer.error_code for answer in topic.partitions} == {0}
    assert counts.largest_batch == OFFSETS_PER_EVENT
    assert counts.checkpoints >= PARTITIONS
    assert (await ask(everything, 7)).topics == []


@pytest.mark.parametrize("how", ["DeleteGroups", "DeleteTopics", "expiry"])
async def test_a_group_with_many_offsets_is_forgotten_in_steps(ask, counts, how):
    await ask(commit_of("g", "many", PARTITIONS), 8)
    counts.reset()
    if how == "DeleteGroups":
        (result,) = (await ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
        assert result.error_code == ErrorCode.NONE
    elif how == "DeleteTopics":
        await ask(DeleteTopicsRequest(topic_names=["many"], timeout_ms=60_000), 5)
        with trio.fail_after(10):  # coordinators follow the metadata in the background
            while (await ask.services.group_coordinator.machines())[0].offsets.get("g"):
                await trio.lowlevel.checkpoint()
        await ask.services.group_coordinator.expire_offsets()  # until then it is an empty group, as in Kafka
    else:
        ask.clock.now_ms += 3_600_000
        await ask.services.group_coordinator.expire_offsets()
    (shard,) = await ask.services.group_coordinator.machines()
    assert not shard.exists("g")
    assert 0 < counts.largest_batch <= OFFSETS_PER_EVENT + 1
    if how != "DeleteTopics":
        assert counts.checkpoints >= PARTITIONS // OFFSETS_PER_EVENT


async def test_offsets_beyond_a_batch_are_refused_before_any_change(ask, counts):
    await ask(FindCoordinatorRequest(key="g"), 2)  # which makes the topic
    counts.reset()
    (topic,) = (await ask(commit_of("g", "one", 30_000), 8)).topics
    assert {answer.error_code for answer in topic.partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    partitions = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=index)
        for index in range(30_000)
    ]
    named = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="one", partitions=partitions)
    (topic,) = (await ask(TxnOffsetCommitRequest(group_id="g", topics=[named]), 3)).topics
    assert {answer.error_code for answer in topic.partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert counts.largest_batch == 0

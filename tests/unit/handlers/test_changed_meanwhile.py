"""A request that waits decides on the metadata of the moment when it decides, not of that when it began."""

import pytest
import trio

from barnabas.cluster.metadata.changes import TopicDeleted
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.sources import failure_in_sources, is_source

PARTITIONS = 20


class Waiting:
    """A group coordinator with events that are decided after something else has happened."""

    def __init__(self, coordinator, meanwhile):
        self._coordinator = coordinator
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._coordinator, name)

    async def read(self, *args, **options):
        await self._do_meanwhile()
        return await self._coordinator.read(*args, **options)

    async def write(self, *args, **options):
        await self._do_meanwhile()
        return await self._coordinator.write(*args, **options)

    async def _do_meanwhile(self):
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        for name in ("t", "u"):
            await ask_for_topic(asked, name, partitions=PARTITIONS)
        yield asked


def id_of(ask, name):
    return ask.services.metadata.image.topics[name].id


async def replace(ask, name):
    """Have a topic deleted, and another one made that has its name."""
    await ask.services.metadata.change(lambda image: [TopicDeleted(name)])
    for _ in range(100):  # what was committed for it is forgotten in the background
        await trio.lowlevel.checkpoint()
    await ask_for_topic(ask, name, partitions=PARTITIONS)


def commit_request(ask, by_id, *names):
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name="" if by_id else name,
            topic_id=id_of(ask, name) if by_id else bytes(16),
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=7)
                for index in range(PARTITIONS)
            ],
        )
        for name in names
    ]
    return OffsetCommitRequest(group_id="g", topics=topics)


@pytest.mark.parametrize(
    ("version", "told"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_no_offset_is_committed_for_a_topic_that_was_replaced(ask, version, told, request):
    if not is_source(LoopBudget, "checkpoint"):  # where nothing can stand in for it
        assert not failure_in_sources(request.node.nodeid)
        return

    class Interrupted(LoopBudget):
        """Lets something happen when a request gives way for the last time."""

        def __init__(self, calls_left):
            super().__init__()
            self.calls_left = calls_left

        async def checkpoint(self):
            self.calls_left -= 1
            if self.calls_left == 0:
                await replace(ask, "t")

    services, often = ask.services, Interrupted(-1)
    ask.services = services._replace(budget=often)
    await ask(commit_request(ask, version >= 10, "t", "u"), version)
    ask.services = services._replace(budget=Interrupted(-1 - often.calls_left))
    answer = await ask(commit_request(ask, version >= 10, "t", "u"), version)
    codes = [{partition.error_code for partition in topic.partitions} for topic in answer.topics]
    assert codes == [{told}, {0}]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    (group_offsets,) = (await ask(OffsetFetchRequest(groups=[group]), 9)).groups
    assert {topic.name for topic in group_offsets.topics} == {"u"}


async def test_offsets_of_the_former_topic_are_not_told_for_the_new(ask):
    before = id_of(ask, "t")

    async def replace_and_commit():
        await replace(ask, "t")
        answer = await ask(commit_request(ask, False, "t"), 9)
        assert not answer.topics[0].partitions[0].error_code

    services = ask.services
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=before, partition_indexes=[0])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    ask.services = services._replace(
        group_coordinator=Waiting(services.group_coordinator, _with(ask, services, replace_and_commit))
    )
    (group_offsets,) = (await ask(OffsetFetchRequest(groups=[group]), 10)).groups
    (partition,) = group_offsets.topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


async def test_group_is_described_with_its_assigned_topics(ask):
    services = ask.services

    async def join():
        await ask_for_topic(ask, "new", partitions=1)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["new"], topic_partitions=[],
        )  # fmt: skip
        assert not (await ask(request, 1)).error_code

    ask.services = services._replace(
        group_coordinator=Waiting(services.group_coordinator, _with(ask, services, join))
    )
    (group,) = (await ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
    (member,) = group.members
    assert [topic.topic_name for topic in member.assignment.topic_partitions] == ["new"]


def _with(ask, services, action):
    """Return an action that asks a broker with requests that do not wait."""

    async def act():
        waiting, ask.services = ask.services, services
        await action()
        ask.services = waiting

    return act

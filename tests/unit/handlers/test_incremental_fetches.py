"""Answers in a fetch session (KIP-227) name the partitions of which there is news, and no others."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import broker_to_ask
from tests.support.logs import batch

TOPIC, COUNT = "t", 4


class Consumer:
    """Fetches from all partitions of a topic in one session."""

    def __init__(self, asked, *, version: int = 12, isolation_level: int = 0) -> None:
        self.asked = asked
        self.version = version
        self.isolation_level = isolation_level
        self.session_id = self.epoch = 0

    async def fetch(
        self, offsets=None, *, leader_epoch: int = -1, last_epoch: int = -1
    ) -> dict[int, tuple[int, int, int]]:
        """The partitions that are named, each with error, high watermark and bytes; `offsets` are news of positions."""
        request = FetchRequest(
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=self.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[
                FetchRequest.FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=index, current_leader_epoch=leader_epoch, fetch_offset=offset,
                            last_fetched_epoch=last_epoch, partition_max_bytes=1 << 20,
                        )
                        for index, offset in (offsets or {}).items()
                    ],
                )
            ]
            if offsets
            else [],
        )  # fmt: skip
        response = await self.asked(request, self.version)
        assert response.error_code == 0
        self.session_id = response.session_id
        self.epoch += 1
        return {
            data.partition_index: (data.error_code, data.high_watermark, len(data.records or b""))
            for topic in response.responses
            for data in topic.partitions
        }


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path) as broker:
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=COUNT, replication_factor=1)
        await broker(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
        yield broker


async def produce(asked, index: int, *values: bytes, **options) -> None:
    data = ProduceRequest.PartitionProduceData(index=index, records=batch(*values, **options))
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    response = await asked(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 7)
    assert response.responses[0].partition_responses[0].error_code == 0


async def delete_records(asked, index: int, offset: int) -> None:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    await asked(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)


async def test_only_partitions_with_news_are_named(asked):
    consumer = Consumer(asked)
    assert (await consumer.fetch(dict.fromkeys(range(COUNT), 0))).keys() == set(range(COUNT))
    assert await consumer.fetch() == {}
    await produce(asked, 2, b"one")
    named = await consumer.fetch()
    assert named.keys() == {2}
    assert named[2][1] == 1
    assert named[2][2] > 0
    assert (await consumer.fetch()).keys() == {2}  # it is still to be read
    assert await consumer.fetch({2: 1}) == {}
    assert await consumer.fetch() == {}


async def test_a_log_start_that_moved_is_news(asked):
    consumer = Consumer(asked)
    await produce(asked, 1, b"one", b"two")
    await consumer.fetch(dict.fromkeys(range(COUNT), 2) | {0: 0, 2: 0, 3: 0})
    assert await consumer.fetch() == {}
    await delete_records(asked, 1, 1)
    assert (await consumer.fetch()).keys() == {1}
    assert await consumer.fetch() == {}


async def test_log_start_is_told_again_after_a_divergence(asked):
    """A follower that is told to truncate takes no watermarks from that answer."""
    consumer = Consumer(asked)
    await produce(asked, 1, b"one", b"two")
    await consumer.fetch({1: 2})
    await delete_records(asked, 1, 1)
    assert (await consumer.fetch({1: 4}, last_epoch=0)).keys() == {1}
    assert (await consumer.fetch({1: 2}, last_epoch=0)).keys() == {1}
    assert await consumer.fetch() == {}


async def test_a_position_beyond_the_end_is_an_error_each_time(asked):
    consumer = Consumer(asked)
    for _ in range(2):
        assert (await consumer.fetch({3: 7}))[3][0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await consumer.fetch({3: 0}))[3][0] == 0  # the end of an error is news
    assert await consumer.fetch() == {}


async def test_a_leader_epoch_that_is_not_the_leaders_is_an_error(asked):
    consumer = Consumer(asked)
    await consumer.fetch({0: 0})
    assert (await consumer.fetch({0: 0}, leader_epoch=9))[0][0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await consumer.fetch({0: 0}, leader_epoch=0))[0][0] == 0


async def test_who_may_no_longer_read_is_told_in_the_session(asked):
    class DeniesEverything:
        def allows(self, requester, operation, resource_type, name):
            return False

        def reason(self, requester, operation, resource_type, name):
            return "nobody may"

    consumer = Consumer(asked)
    await consumer.fetch({0: 0, 1: 0})
    assert await consumer.fetch() == {}
    before, asked.authorizer = asked.authorizer, DeniesEverything()
    named = await consumer.fetch()
    assert {index: error for index, (error, _, _) in named.items()} == dict.fromkeys(
        (0, 1), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    asked.authorizer = before
    assert (await consumer.fetch()).keys() == {0, 1}


async def test_committed_reader_hears_of_the_last_stable_offset(asked):
    consumer = Consumer(asked, isolation_level=1)
    await consumer.fetch({0: 0})
    assert await consumer.fetch() == {}
    await produce(asked, 0, b"one")
    named = await consumer.fetch()
    assert named[0][2] > 0
    assert await consumer.fetch({0: 1}) == {}


async def test_a_session_that_waits_is_woken_by_a_quiet_partition(asked):
    """A partition that is left out of the answer is waited for all the same."""
    consumer = Consumer(asked)
    await consumer.fetch(dict.fromkeys(range(COUNT), 0))
    await consumer.fetch()
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_id=consumer.session_id, session_epoch=2
    )
    async with trio.open_nursery() as nursery:

        async def wait():
            response = await asked(request, 12)
            (topic,) = response.responses
            assert [data.partition_index for data in topic.partitions] == [3]

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await produce(asked, 3, b"one")

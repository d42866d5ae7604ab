"""A fetch in a session costs what has changed: of the partitions that it does not look at there is no news (KIP-227)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import Asked, broker_to_ask
from tests.support.effort import examples
from tests.support.logs import batch

TOPIC = "t"
FOLLOWER = 900
EPOCH = 3


class CountingClock:
    """A clock of a budget that stands, and counts the pieces of work: it is looked at after each."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return 0.0


class Fetcher:
    """Fetches from partitions of a topic in one session, as a consumer or as a follower in the ISR."""

    def __init__(self, asked: Asked, replica_id: int = -1) -> None:
        self.asked = asked
        self.replica_id = replica_id
        self.session_id = self.epoch = 0

    async def __call__(
        self,
        offsets: dict[int, int] | None = None,
        *,
        last: dict[int, int] | None = None,
        forgotten: list[int] | None = None,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> dict[int, Any]:
        """Return the partitions that the answer names; `offsets` are new positions, `last` epochs of what is there."""
        request = FetchRequest(
            replica_id=self.replica_id, max_wait_ms=max_wait_ms, min_bytes=1 if max_wait_ms else 0,
            max_bytes=max_bytes, session_id=self.session_id, session_epoch=self.epoch,
        )  # fmt: skip
        if offsets:
            partitions = [
                FetchRequest.FetchPartition(
                    partition=index, fetch_offset=offset,
                    current_leader_epoch=-1 if self.replica_id < 0 else EPOCH,
                    last_fetched_epoch=(last or {}).get(index, -1), log_start_offset=0,
                    partition_max_bytes=1 << 20,
                )
                for index, offset in offsets.items()
            ]  # fmt: skip
            request.topics = [FetchRequest.FetchTopic(topic=TOPIC, partitions=partitions)]
        if forgotten:
            request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic=TOPIC, partitions=forgotten)]
        response = await self.asked(request, 12)
        assert response.error_code == 0
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}


async def create(asked: Asked, count: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=count, replication_factor=1)
    response = await asked(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
    assert response.topics[0].error_code == 0


async def replicate(asked: Asked, index: int, *replicas: int, epoch: int = EPOCH, isr: Any = None) -> None:
    """Have the metadata say which brokers have replicas of a partition, led here."""
    me = asked.services.broker_id
    current = asked.services.metadata.image.topics[TOPIC].partitions[index]
    info = PartitionInfo(me, (me, *replicas), isr or (me, *replicas), epoch, current.partition_epoch + 1)
    await asked.services.metadata.change(lambda image: [PartitionChanged(TOPIC, index, info)])


async def produce(asked: Asked, index: int, *values: bytes) -> None:
    data = ProduceRequest.PartitionProduceData(index=index, records=batch(*values))
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    response = await asked(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 7)
    assert response.responses[0].partition_responses[0].error_code == 0


async def delete_before(asked: Asked, index: int, offset: int, *, timeout_ms: int = 1000) -> None:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    await asked(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)


@pytest.mark.parametrize("replica_id", [-1, FOLLOWER])
async def test_quiet_partitions_cost_nothing(tmp_path, replica_id: int) -> None:
    clock, count = CountingClock(), 400
    async with broker_to_ask(tmp_path, budget=LoopBudget(clock=clock, measures=False)) as asked:
        await create(asked, count)
        if replica_id >= 0:
            for index in range(count):
                await replicate(asked, index, FOLLOWER)
        fetch = Fetcher(asked, replica_id)
        await fetch(dict.fromkeys(range(count), 0))
        clock.count = 0
        assert await fetch() == {}
        assert clock.count > 20
        counts = []
        for _ in range(5):  # what the broker does by itself meanwhile counts, too, and comes now and then
            clock.count = 0
            assert await fetch() == {}
            counts.append(clock.count)
        await produce(asked, 7, b"x")
        assert (await fetch()).keys() == {7}
        assert min(counts) < 3


@pytest.mark.parametrize("seed", range(examples(8)))
async def test_what_a_consumer_is_not_told_has_not_changed(tmp_path, seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    async with broker_to_ask(tmp_path) as asked:
        await create(asked, 6)
        logs = [asked.services.replicas.leader(TOPIC, index).log for index in range(6)]
        fetch = Fetcher(asked)
        positions = dict.fromkeys(range(4), 0)
        told_offsets: dict[int, tuple[int, int]] = {}
        news = dict(positions)
        forgotten: list[int] = []
        for _ in range(60):
            answer = await fetch(news, forgotten=forgotten)
            for index in forgotten:
                told_offsets.pop(index, None)
            news, forgotten = {}, []
            assert answer.keys() <= positions.keys()
            for index, data in answer.items():
                if data.error_code:
                    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                    assert not logs[index].log_start_offset <= positions[index] <= logs[index].log_end_offset
                    told_offsets.pop(index, None)
                else:
                    told_offsets[index] = data.high_watermark, data.log_start_offset
            for index, position in positions.items():
                log = logs[index]
                if log.log_start_offset <= position <= log.log_end_offset:
                    assert told_offsets[index] == (log.high_watermark, log.log_start_offset)
                    assert (position < log.high_watermark) <= bool(index in answer and answer[index].records)
                else:
                    assert answer[index].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            for index in random.sample(range(6), random.randrange(3)):
                match random.randrange(6):
                    case 0 | 1:
                        await produce(asked, index, b"x")
                    case 2:
                        await delete_before(asked, index, random.randint(0, logs[index].high_watermark))
                    case 3 if index in positions and len(positions) > 1:
                        del positions[index]
                        news.pop(index, None)
                        forgotten.append(index)
                    case _ if index not in forgotten:
                        end = logs[index].log_end_offset
                        news[index] = positions[index] = (
                            end if random.random() < 0.8 else random.randint(0, end + 1)
                        )


async def test_a_size_limit_starves_no_partition(tmp_path) -> None:
    async with broker_to_ask(tmp_path) as asked:
        await create(asked, 8)
        fetch = Fetcher(asked)
        positions = dict.fromkeys(range(8), 0)
        await fetch(positions)
        assert await fetch() == {}
        for index in range(8):
            await produce(asked, index, b"x" * 1000)
        served: list[int] = []
        news: dict[int, int] = {}
        for n in range(16):
            await produce(asked, n % 3, b"x" * 1000)  # these would fill every answer
            answer = await fetch(news, max_bytes=1)
            (index,) = (index for index, data in answer.items() if data.records)
            served.append(index)
            positions[index] += 1
            news = {index: positions[index]}
        assert set(served[:8]) == set(range(8))


async def test_a_follower_hears_of_what_happens_to_quiet_partitions(tmp_path) -> None:
    async with broker_to_ask(tmp_path) as asked:
        await create(asked, 4)
        for index in range(4):
            await replicate(asked, index, FOLLOWER)
        fetch = Fetcher(asked, FOLLOWER)
        await fetch(dict.fromkeys(range(4), 0))
        assert await fetch() == {}

        await produce(asked, 1, b"one", b"two")
        assert (await fetch()).keys() == {1}
        assert (await fetch({1: 2}, last={1: EPOCH}))[1].high_watermark == 2
        assert await fetch() == {}

        await delete_before(asked, 1, 1, timeout_ms=0)
        assert (await fetch())[1].log_start_offset == 1
        assert await fetch() == {}

        await replicate(asked, 2, FOLLOWER, epoch=EPOCH + 1)
        assert {index: data.error_code for index, data in (await fetch()).items()} == {
            2: ErrorCode.FENCED_LEADER_EPOCH
        }
        await replicate(asked, 3, FOLLOWER + 1)
        assert (await fetch())[3].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_follower_out_of_the_isr_is_noted_with_each_fetch(tmp_path) -> None:
    async with broker_to_ask(tmp_path) as asked:
        me = asked.services.broker_id
        await create(asked, 1)
        await replicate(asked, 0, FOLLOWER, isr=(me,))
        replica = asked.services.replicas.leader(TOPIC, 0)
        fetch = Fetcher(asked, FOLLOWER)
        await fetch({0: 0})
        assert await fetch() == {}
        await replicate(asked, 0, FOLLOWER, isr=(me,))
        assert FOLLOWER not in replica.in_sync_replicas
        await fetch()
        assert [replica.log_end_offset for replica in replica.read_replicas(0)] == []
        await replicate(asked, 0, FOLLOWER)
        await fetch()
        assert len(replica.read_replicas(0)) == 1


@pytest.mark.parametrize("replica_id", [-1, FOLLOWER])
async def test_waiting_fetch_is_woken_by_a_quiet_partition(tmp_path, replica_id: int) -> None:
    async with broker_to_ask(tmp_path) as asked:
        await create(asked, 3)
        if replica_id >= 0:
            for index in range(3):
                await replicate(asked, index, FOLLOWER)
        fetch = Fetcher(asked, replica_id)
        await fetch(dict.fromkeys(range(3), 0))
        assert await fetch() == {}
        for index in (2, 0, 1):
            async with trio.open_nursery() as nursery:

                async def wait(index: int = index) -> None:
                    answer = await fetch(max_wait_ms=60_000)
                    assert answer.keys() == {index}
                    await fetch({index: 1}, last={index: EPOCH if replica_id >= 0 else -1})

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                await produce(asked, index, b"one")


@pytest.mark.parametrize("replica_id", [-1, FOLLOWER])
async def test_waiting_fetch_learns_that_a_quiet_partition_moved(tmp_path, replica_id: int) -> None:
    async with broker_to_ask(tmp_path) as asked:
        await create(asked, 2)
        if replica_id >= 0:
            for index in range(2):
                await replicate(asked, index, FOLLOWER)
        fetch = Fetcher(asked, replica_id)
        await fetch({0: 0, 1: 0})
        assert await fetch() == {}
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                answer = await fetch(max_wait_ms=60_000)
                assert answer[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            replicas = asked.services.replicas
            replicas.lose([replicas.leader(TOPIC, 1).log])

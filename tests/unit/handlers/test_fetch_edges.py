"""Fetch and ListOffsets with what no client should send, over all versions: answered as Apache Kafka does."""

import pytest

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch

VERSIONS = range(4, 19)
"""Those that say which transactions were aborted."""


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked)
        for _ in range(3):
            await produce(asked, batch(b"v"))
        yield asked


async def produce(ask, records, index=0):
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    answer = await ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 8)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def topic_id(ask):
    (topic,) = (await ask(MetadataRequest(topics=None), 12)).topics
    return topic.topic_id


async def fetched(ask, version, partitions, **request):
    """Fetch partitions, each a dict of fields; the whole answer."""
    asked = [FetchRequest.FetchPartition(**{"partition_max_bytes": 1 << 20} | part) for part in partitions]
    topic = FetchRequest.FetchTopic(topic="t", topic_id=await topic_id(ask), partitions=asked)
    values = {"max_bytes": 1 << 20, "session_epoch": -1, "topics": [topic] if asked else []} | request
    return await ask(FetchRequest(**values), version)


def in_short(answer):
    return [
        (part.partition_index, part.error_code, part.high_watermark, len(part.records or b""))
        for topic in answer.responses
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(4, 19))
async def test_of_a_partition_named_twice_the_last_offset_is_read(ask, version):
    whole, last = [in_short(await fetched(ask, version, [{"fetch_offset": at}]))[0][3] for at in (0, 2)]
    named = [{"fetch_offset": 0}, {"partition": 1}, {"fetch_offset": 2}]
    assert last < whole
    assert in_short(await fetched(ask, version, named)) == [(0, 0, 3, last), (1, 0, 0, 0)]
    if version >= 7:
        assert in_short(await fetched(ask, version, named, session_epoch=0)) == [
            (0, 0, 3, last),
            (1, 0, 0, 0),
        ]


@pytest.mark.parametrize("version", range(7, 19))
async def test_a_session_of_no_partitions_takes_them_later(ask, version):
    begun = await fetched(ask, version, [], session_epoch=0)
    assert (begun.error_code, begun.responses, begun.session_id > 0) == (0, [], True)
    more = await fetched(ask, version, [{"fetch_offset": 3}], session_id=begun.session_id, session_epoch=1)
    assert (more.error_code, in_short(more)) == (0, [(0, 0, 3, 0)])


@pytest.mark.parametrize("level", [-1, 2, 7])
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_isolation_level_that_there_is_not_is_refused(ask, version, level):
    answer = await fetched(ask, version, [{}, {"partition": 9}], isolation_level=level)
    if version >= 7:
        assert (answer.error_code, answer.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    else:
        assert in_short(answer) == [(0, -1, -1, 0), (9, -1, -1, 0)]
        assert [partition.aborted_transactions for partition in answer.responses[0].partitions] == [[], []]
    query = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[query])
    asked = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic])
    (listed,) = (await ask(asked, max(2, version % 12))).topics[0].partitions
    assert (listed.error_code, listed.offset, listed.timestamp) == (-1, -1, -1)


@pytest.mark.parametrize("version", range(3, 19))
async def test_negative_max_bytes_are_an_error_if_there_is_data(ask, version):
    for limits in ({"max_bytes": -1}, {"max_bytes": -5}):
        assert in_short(await fetched(ask, version, [{}], **limits)) == [(0, -1, -1, 0)]
        assert in_short(await fetched(ask, version, [{"fetch_offset": 3}], **limits)) == [(0, 0, 3, 0)]
    negative = [{"partition_max_bytes": -1}, {"partition": 1, "partition_max_bytes": -1}]
    assert in_short(await fetched(ask, version, negative)) == [(0, -1, -1, 0), (1, 0, 0, 0)]
    beyond = [{"fetch_offset": 9, "partition_max_bytes": -1}]
    assert in_short(await fetched(ask, version, beyond)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_aborted_transactions_are_null_beside_a_log_error(ask, version):
    of_the_log = [{"fetch_offset": 9}, {"fetch_offset": -1}, {"partition_max_bytes": -1}]
    if version >= 9:
        of_the_log.append({"current_leader_epoch": 9})
    for asked in of_the_log:
        (part,) = (await fetched(ask, version, [asked])).responses[0].partitions
        assert part.error_code
        assert part.aborted_transactions is None
    (part,) = (await fetched(ask, version, [{"partition": 9}])).responses[0].partitions
    assert (part.error_code, part.aborted_transactions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


async def max_timestamp(ask, version, index=1):
    query = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-3)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[query])
    (part,) = (await ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), version)).topics[0].partitions
    assert part.error_code == 0
    return part.offset, part.timestamp, part.leader_epoch


@pytest.mark.parametrize("version", range(7, 12))
async def test_first_record_without_timestamps_has_the_largest(ask, version):
    assert await max_timestamp(ask, version) == (-1, -1, -1)
    for _ in range(2):
        await produce(ask, batch(b"v", b"w", timestamp=-1), index=1)
    assert await max_timestamp(ask, version) == (0, -1, 0)
    await produce(ask, batch(b"v", timestamp=5), index=1)
    assert await max_timestamp(ask, version) == (4, 5, 0)

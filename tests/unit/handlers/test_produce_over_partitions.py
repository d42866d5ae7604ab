"""A Produce over many partitions: each is answered in its place, whatever becomes of those before and after it."""

import pytest

from barnabas.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, compute_crc, read_header
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch

PARTITIONS = 40  # more than are validated together


@pytest.fixture(params=["CreateTime", "LogAppendTime"])
async def ask(tmp_path, request):
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, partitions=PARTITIONS, settings={"message.timestamp.type": request.param})
        yield asked


async def produced(ask, records, acks=1):
    """Produce what `records` has of each partition; the answers of all, in their order."""
    partitions = [ProduceRequest.PartitionProduceData(index=index, records=data) for index, data in records]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=partitions)
    answer = await ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), 8)
    (told,) = answer.responses
    return told.partition_responses


def ends(ask):
    return [ask.services.replicas.leader("t", index).log.log_end_offset for index in range(PARTITIONS)]


def sequence(number):
    return batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number)


async def test_refused_partitions_keep_no_other_from_its_records(ask):
    # The first and the last of those that are validated together, two in a row, and the last of all.
    refused = (0, 5, 6, 15, 16, 39)
    await produced(ask, [(index, sequence(0)) for index in range(PARTITIONS)])
    answers = await produced(
        ask, [(index, sequence(9 if index in refused else 1)) for index in range(PARTITIONS)]
    )
    assert [answer.index for answer in answers] == list(range(PARTITIONS))
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [answer.error_code for answer in answers] == [
        out_of_order if index in refused else 0 for index in range(PARTITIONS)
    ]
    assert [answer.base_offset for answer in answers] == [
        -1 if index in refused else 1 for index in range(PARTITIONS)
    ]
    assert ends(ask) == [1 if index in refused else 2 for index in range(PARTITIONS)]


async def test_bad_partitions_between_usual_ones_get_their_own_answers(ask):
    broken = batch(b"v")
    broken[-1] ^= 1
    large = batch(*[b"v"] * 2_000)
    records = [
        (0, batch(b"v")), (1, broken), (2, batch(b"v")), (99, batch(b"v")), (3, large), (4, batch(b"v")),
    ]  # fmt: skip
    answers = await produced(ask, [*records, (5, broken), (6, None), (7, batch(b"v"))])
    assert [(answer.index, answer.error_code) for answer in answers] == [
        (0, 0),
        (1, ErrorCode.CORRUPT_MESSAGE),
        (2, 0),
        (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, 0),
        (4, 0),
        (5, ErrorCode.CORRUPT_MESSAGE),
        (6, ErrorCode.INVALID_RECORD),
        (7, 0),
    ]
    assert ends(ask)[:8] == [1, 0, 1, 2_000, 1, 0, 0, 1]


async def told(ask, topics, version):
    """Produce to topics, each a name and what it has for each of its partitions; answers as the codes of each index."""
    ids = {topic.name: topic.topic_id for topic in (await ask(MetadataRequest(topics=None), 12)).topics}
    data = [
        ProduceRequest.TopicProduceData(
            name=name if version < 13 else "",
            topic_id=ids.get(name, bytes(range(16))),
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=records)
                for index, records in partitions
            ],
        )
        for name, partitions in topics
    ]
    answer = await ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), version)
    return [[(row.index, row.error_code) for row in topic.partition_responses] for topic in answer.responses]


@pytest.mark.parametrize("version", range(3, 14))
async def test_partition_named_twice_appends_its_last_records_once(ask, version):
    await ask_for_topic(ask, "u")
    v, vw = (lambda: batch(b"v")), (lambda: batch(b"v", b"w"))
    assert await told(ask, [("t", [(0, v()), (1, v()), (0, vw())])], version) == [[(0, 0), (1, 0)]]
    assert ends(ask)[:2] == [2, 1]
    topics = [("t", [(2, v())]), ("u", [(0, v())]), ("t", [(2, vw()), (3, v())]), ("u", [])]
    assert await told(ask, topics, version) == [[(2, 0), (3, 0)], [(0, 0)]]
    assert ends(ask)[2:4] == [2, 1]
    assert await told(ask, [("t", [])], version) == []


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_without_a_name_is_one_that_there_is_not(ask, version):
    records = batch(b"v") if version >= 3 else b""
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await told(ask, [("", [(0, records)])], version) == [[(0, code)]]


def with_attributes(records, bits):
    """A batch with bits set in its attributes, under a checksum that fits."""
    records[ATTRIBUTES_OFFSET + 1] |= bits
    crc = compute_crc(records, 0, read_header(records))
    records[CRC_OFFSET : CRC_OFFSET + 4] = crc.to_bytes(4, "big")
    return records


async def test_what_a_leader_refuses_says_where_its_log_begins(ask):
    broken = batch(b"v")
    broken[-1] ^= 1
    await produced(ask, [(0, batch(b"v")), (0, sequence(0))])
    refused = {
        "gap": (sequence(9), 0),
        "old epoch": (batch(b"v", producer_id=7, producer_epoch=-2, base_sequence=1), 0),
        "control": (with_attributes(batch(b"v"), 32), 0),
        "codec": (with_attributes(batch(b"v"), 5), 0),
        "corrupt": (broken, -1),
        "none": (b"", -1),
        "two": (batch(b"v") + batch(b"v"), -1),
    }
    starts = {}
    for label, (records, _) in refused.items():
        (answer,) = await produced(ask, [(0, records)])
        assert answer.error_code, label
        starts[label] = answer.log_start_offset
    assert starts == {label: start for label, (_, start) in refused.items()}
    (answer,) = await produced(ask, [(99, batch(b"v"))])
    assert answer.log_start_offset == -1

"""Internal topics belong to their coordinators: clients may not write to them, and not delete what is in them."""

import pytest

from barnabas.handlers.produce.naming import LOOKS_PER_CHECKPOINT
from barnabas.log.background_write import BACKGROUND_BYTES
from barnabas.log.format.names import INTERNAL_TOPICS
from barnabas.serving import apis
from barnabas.tools.probing.harmless import records_of
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.registry import key_of
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.brokers import running
from tests.support.logs import batch

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
PRODUCE = apis.BY_KEY[key_of("Produce")]
VERSIONS = range(PRODUCE.min_version, PRODUCE.max_version + 1)
INTERNAL = sorted(INTERNAL_TOPICS)
REFUSED = ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        for name in INTERNAL:
            await asked.services.topic_creation.ensure(name)
        yield asked


async def produced(ask, version, *parts, acks=1, transactional_id=None):
    """Produce the (topic, partition, records) of `parts`, a topic each; return the codes by topic and partition."""
    topics = [
        ProduceRequest.TopicProduceData(
            name=name,
            topic_id=ask.services.metadata.image.topics[name].id,
            partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
        )
        for name, index, records in parts
    ]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)
    answer = await ask(request, version)
    names = ask.services.metadata.image.names_by_id
    return {
        (told.name or names[told.topic_id], response.index): response.error_code
        for told in answer.responses
        for response in told.partition_responses
    }


def ends(ask):
    """End offsets of the internal topics."""
    logs = ask.services.logs
    return {name: [logs.get(name, index).log_end_offset for index in (0, 1)] for name in INTERNAL}


NOTHING = {name: [0, 0] for name in INTERNAL}


@pytest.mark.parametrize("name", INTERNAL)
@pytest.mark.parametrize("version", VERSIONS)
async def test_no_version_of_produce_writes_to_them(ask, name, version):
    few, many = records_of(version, b"v"), records_of(version, *[b"v"] * 2_000)
    parts = [("t", 0, few), (name, 0, few), ("t", 1, few), (name, 1, many)]
    told = {("t", 0): 0, (name, 0): REFUSED, ("t", 1): 0, (name, 1): REFUSED}
    assert await produced(ask, version, *parts) == told
    assert ends(ask) == NOTHING


@pytest.mark.parametrize("name", INTERNAL)
async def test_what_is_written_in_a_thread_is_refused(ask, name):
    ask.connection.is_among_others = True
    large = batch(b"v" * (BACKGROUND_BYTES // 2), b"v" * (BACKGROUND_BYTES // 2))
    assert await produced(ask, 9, (name, 0, large), ("t", 0, batch(b"v"))) == {
        (name, 0): REFUSED,
        ("t", 0): 0,
    }
    assert ends(ask) == NOTHING


async def test_one_among_very_many_partitions_is_refused(ask):
    few = batch(b"v")
    parts = [("t", number, few) for number in range(LOOKS_PER_CHECKPOINT)]
    told = await produced(ask, 9, *parts, *[(name, 0, few) for name in INTERNAL])
    assert {place for place, code in told.items() if code == 0} == {("t", 0), ("t", 1)}
    assert {place for place, code in told.items() if code == REFUSED} == {(name, 0) for name in INTERNAL}
    assert ends(ask) == NOTHING


async def test_without_an_answer_the_connection_is_closed(tmp_path):
    topic = "__share_group_state"
    async with running([tmp_path], share_coordinator_state_topic_num_partitions="1") as client:
        await client.services.topic_creation.ensure(topic)
        with pytest.raises(AssertionError, match="answered by closing"):
            await client.produce(topic, 0, b"v", acks=0)
        assert client.services.logs.get(topic, 0).log_end_offset == 0


@pytest.mark.parametrize("version", [11, 12])
async def test_transactions_get_no_further_and_do_not_grow(ask, version):
    begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
    producer = await ask(begin, 4)
    assert producer.error_code == 0
    before = ends(ask)
    records = batch(
        b"v", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0,
        transactional=True,
    )  # fmt: skip
    parts = [(name, 0, records) for name in INTERNAL]
    assert await produced(ask, version, *parts, transactional_id="x") == {
        (name, 0): REFUSED for name in INTERNAL
    }
    assert ends(ask) == before
    (described,) = (await ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0)).transaction_states
    assert (described.transaction_state, described.topics) == ("Empty", [])


@pytest.mark.parametrize("name", INTERNAL)
async def test_what_else_is_wrong_is_told_first_as_by_kafka(ask, name):
    few = batch(b"v")
    assert await produced(ask, 9, (name, 99, few)) == {(name, 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await produced(ask, 9, (name, 0, few), acks=7) == {(name, 0): ErrorCode.INVALID_REQUIRED_ACKS}


@pytest.mark.parametrize("name", INTERNAL)
async def test_the_admin_client_of_kafka_may(ask, name):
    ask.client_id = "__admin_client"
    assert await produced(ask, 9, (name, 1, batch(b"v"))) == {(name, 1): 0}
    assert ends(ask)[name] == [0, 1]


@pytest.mark.parametrize("name", INTERNAL)
@pytest.mark.parametrize("version", range(3))
async def test_nobody_deletes_records_of_them(ask, name, version):
    ask.client_id = "__admin_client"
    assert await produced(ask, 9, (name, 0, batch(b"v"))) == {(name, 0): 0}
    partitions = [
        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=1) for index in (0, 99)
    ]
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=partitions)
    answer = await ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), version)
    told = [(partition.error_code, partition.low_watermark) for partition in answer.topics[0].partitions]
    assert told == [(REFUSED, -1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert ask.services.logs.get(name, 0).log_start_offset == 0

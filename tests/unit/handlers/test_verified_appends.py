"""What the coordinator said of a transaction holds until an end marker comes to the partition (KIP-890)."""

import pytest

from barnabas.transactions.transaction import Producer
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch

PRODUCER = Producer(7, 0)
PLACE = ("t", 0)


class Verifier:
    """A coordinator elsewhere: `codes` are its answer, `meanwhile` happens before that."""

    def __init__(self, codes=None, meanwhile=None):
        self.codes = codes or {}
        self.meanwhile = meanwhile
        self.asked = []

    async def verify(self, transactional_id, producer, topic_partitions, *, implicit):
        self.asked.append((transactional_id, producer, sorted(topic_partitions), implicit))
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.codes


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, partitions=1)
        yield asked


async def produced(ask, version, sequence=0, topic="t"):
    records = batch(
        b"v",
        producer_id=PRODUCER.id,
        producer_epoch=PRODUCER.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = ProduceRequest.TopicProduceData(
        name=topic,
        topic_id=ask.services.metadata.image.topics[topic].id,
        partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)],
    )
    answer = await ask(
        ProduceRequest(transactional_id="id", acks=1, timeout_ms=1000, topic_data=[data]), version
    )
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (13, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_a_transaction_that_ends_between_verification_and_append_lets_nothing_in(ask, version, told):
    async def end():
        await ask.services.markers.write(PLACE, PRODUCER, 0, True)

    verifier = Verifier(meanwhile=end)
    ask.services = ask.services._replace(transaction_verifier=verifier)
    assert await produced(ask, version) == told
    assert verifier.asked == [("id", PRODUCER, [PLACE], version >= 12)]
    verifier.meanwhile = None
    assert await produced(ask, version) == 0, "the next transaction may begin"
    assert len(verifier.asked) == 2
    assert await produced(ask, version, sequence=1) == 0
    assert len(verifier.asked) == 2, "one that has begun in the partition needs nobody's word"


async def test_the_end_of_another_producers_transaction_changes_nothing(ask):
    async def end():
        await ask.services.markers.write(PLACE, Producer(8, 0), 0, True)

    ask.services = ask.services._replace(transaction_verifier=Verifier(meanwhile=end))
    assert await produced(ask, 11) == 0


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 13, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 13, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_what_the_coordinator_says_is_told_as_clients_know_it(ask, code, version, told):
    ask.services = ask.services._replace(transaction_verifier=Verifier({PLACE: code}))
    assert await produced(ask, version) == told


async def test_a_transaction_may_write_to_a_topic_whose_timestamps_are_the_brokers(ask):
    await ask_for_topic(ask, "stamped", partitions=1, settings={"message.timestamp.type": "LogAppendTime"})
    ask.services = ask.services._replace(transaction_verifier=Verifier())
    assert await produced(ask, 13, topic="stamped") == 0
    assert await produced(ask, 13, sequence=1, topic="stamped") == 0

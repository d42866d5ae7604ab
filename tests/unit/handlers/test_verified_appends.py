"""The verification of a transaction by its coordinator holds until an end marker comes to the partition (KIP-890)."""

import pytest

from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch

PRODUCER = Producer(7, 1)
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


async def produced(ask, version, **about):
    return (await answered(ask, version, **about)).error_code


async def answered(ask, version, sequence=0, topic="t", producer=PRODUCER, transactional=True, acks=1):
    records = batch(
        b"v", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=sequence,
        transactional=transactional,
    )  # fmt: skip
    data = ProduceRequest.TopicProduceData(
        name=topic,
        topic_id=ask.services.metadata.image.topics[topic].id,
        partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)],
    )
    answer = await ask(
        ProduceRequest(transactional_id="id", acks=acks, timeout_ms=1000, topic_data=[data]), version
    )
    return answer.responses[0].partition_responses[0]


async def committed(ask, version, producer=PRODUCER):
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[part])
    answer = await ask(
        TxnOffsetCommitRequest(
            transactional_id="id", group_id="g", producer_id=producer.id, producer_epoch=producer.epoch,
            topics=[topic],
        ),
        version,
    )  # fmt: skip
    return answer.topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("version", "told"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_transaction_ended_before_its_append_admits_nothing(ask, version, told):
    async def end():
        await ask.services.markers.write(PLACE, PRODUCER, 0, True, 1)

    verifier = Verifier(meanwhile=end)
    ask.services = ask.services._replace(transaction_verifier=verifier)
    assert await produced(ask, version) == told
    assert verifier.asked == [("id", PRODUCER, [PLACE], False)]
    verifier.meanwhile = None
    assert await produced(ask, version) == 0, "the next transaction may begin"
    assert len(verifier.asked) == 2
    assert await produced(ask, version, sequence=1) == 0
    assert len(verifier.asked) == 2, "one that has begun in the partition needs nobody's word"


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("version", [12, 13])
async def test_previous_end_ends_no_transaction_begun_since(ask, version, is_known):
    # In version 2 of transactions the end of one already has the epoch of the next.
    async def end():
        await ask.services.markers.write(PLACE, PRODUCER, 0, True, 2)

    if is_known:
        ask.services = ask.services._replace(transaction_verifier=Verifier())
        assert await produced(ask, version, producer=Producer(PRODUCER.id, PRODUCER.epoch - 1)) == 0
    ask.services = ask.services._replace(transaction_verifier=Verifier(meanwhile=end))
    assert await produced(ask, version) == 0
    assert await produced(ask, version, sequence=1) == 0


@pytest.mark.parametrize("version", [12, 13])
async def test_a_transaction_whose_own_end_has_come_lets_nothing_in(ask, version):
    async def end():
        await ask.services.markers.write(PLACE, Producer(PRODUCER.id, PRODUCER.epoch + 1), 0, False, 2)

    ask.services = ask.services._replace(transaction_verifier=Verifier(meanwhile=end))
    assert await produced(ask, version) == ErrorCode.INVALID_PRODUCER_EPOCH
    partition = ask.services.replicas.leader(*PLACE)
    assert partition.log.log_end_offset == 1, "the marker alone"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_what_the_coordinator_refuses_tells_no_start_of_the_log(ask, code, told):
    ask.services = ask.services._replace(transaction_verifier=Verifier(codes={PLACE: code}))
    answer = await answered(ask, 8)
    assert (answer.error_code, answer.log_start_offset) == (told, -1)


async def test_old_epoch_tells_the_log_start_only_after_a_look(ask):
    async def end():
        await ask.services.markers.write(PLACE, Producer(PRODUCER.id, PRODUCER.epoch + 1), 0, False, 2)

    ask.services = ask.services._replace(transaction_verifier=Verifier(meanwhile=end))
    for log_start_offset in (
        0,
        -1,
    ):  # the second time the partition knows the epoch before the coordinator is asked
        answer = await answered(ask, 12)
        assert (answer.error_code, answer.log_start_offset) == (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            log_start_offset,
        )


async def test_record_outside_a_transaction_tells_the_log_start(ask):
    ask.services = ask.services._replace(transaction_verifier=Verifier())
    assert await produced(ask, 8) == 0
    answer = await answered(ask, 8, sequence=1, transactional=False)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_TXN_STATE, 0)


async def test_offsets_are_let_in_by_the_same_rule(ask, caplog):
    caplog.set_level("INFO")
    meanwhile = []
    ask.services = ask.services._replace(
        transaction_verifier=Verifier(meanwhile=lambda: ask.services.markers.write(*meanwhile.pop()))
    )
    index = await ask.services.group_coordinator.partition_of("g")
    place = ("__consumer_offsets", index)
    meanwhile.append((place, PRODUCER, 0, True, 2))
    assert await committed(ask, 5) == 0
    meanwhile.append((place, Producer(8, 1), 0, True, 2))
    assert await committed(ask, 5, Producer(8, 0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    meanwhile.append((place, Producer(9, 0), 0, True, 1))
    assert await committed(ask, 4, Producer(9, 0)) == ErrorCode.TRANSACTION_ABORTABLE
    refused = [line for line in caplog.messages if "offsets of group 'g' in transaction 'id' refused" in line]
    assert len(refused) == 2


async def test_end_of_another_producer_changes_nothing(ask):
    async def end():
        await ask.services.markers.write(PLACE, Producer(8, 0), 0, True, 1)

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


async def test_transaction_may_write_to_a_log_append_time_topic(ask):
    await ask_for_topic(ask, "stamped", partitions=1, settings={"message.timestamp.type": "LogAppendTime"})
    ask.services = ask.services._replace(transaction_verifier=Verifier())
    assert await produced(ask, 13, topic="stamped") == 0
    assert await produced(ask, 13, sequence=1, topic="stamped") == 0


async def test_late_repeated_end_ends_no_later_transaction(ask):
    ask.services = ask.services._replace(transaction_verifier=Verifier())
    write = ask.services.markers.write
    assert await produced(ask, 12, producer=Producer(PRODUCER.id, PRODUCER.epoch - 1)) == 0
    await write(PLACE, PRODUCER, 0, True, 2)
    assert await produced(ask, 12) == 0, "the next transaction has begun"
    with pytest.raises(RequestError) as raised:
        await write(PLACE, PRODUCER, 0, True, 2)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    producer = ask.services.replicas.leader(*PLACE).log.producers.get(PRODUCER.id)
    assert producer.current_txn_first_offset == 2
    await write(PLACE, Producer(PRODUCER.id, PRODUCER.epoch + 1), 0, False, 2)
    assert producer.current_txn_first_offset < 0


@pytest.mark.parametrize("version", [11, 13])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.TRANSACTION_ABORTABLE,
    ],
)  # fmt: skip
async def test_no_later_batch_takes_the_place_of_one_not_verified(ask, version, code):
    ask.services = ask.services._replace(transaction_verifier=Verifier({PLACE: code}))
    assert await produced(ask, version) != 0
    ask.services = ask.services._replace(transaction_verifier=Verifier())
    assert await produced(ask, version, sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produced(ask, version) == 0
    assert await produced(ask, version, sequence=1) == 0


@pytest.mark.parametrize(("version", "told"), [(11, 0), (13, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
async def test_a_new_producer_begins_anywhere_but_in_version_2(ask, version, told):
    ask.services = ask.services._replace(transaction_verifier=Verifier())
    assert await produced(ask, version, sequence=5) == told

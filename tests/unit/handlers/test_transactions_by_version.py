"""APIs of transactions, version by version: a fenced, unknown or nameless client is told so as its version knows it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinators.transactions.coordinator import PATIENCE_SECONDS
from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.plain_requests import ask, codes

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BAD = ErrorCode.INVALID_REQUEST


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        yield asked


async def begun(asked: Asked, transactional_id: str = "x") -> tuple[int, int]:
    producer = await ask(
        asked, "InitProducerId", 4, {"TransactionalId": transactional_id, "TransactionTimeoutMs": 60_000}
    )
    assert producer.error_code == 0
    return producer.producer_id, producer.producer_epoch


def request_of(
    api: str, transactional_id: str, producer: tuple[int, int], group: str = "g"
) -> dict[str, Any]:
    """Return a request of a producer."""
    fields = {"TransactionalId": transactional_id, "ProducerId": producer[0], "ProducerEpoch": producer[1]}
    topics = [{"Name": "t", "Partitions": [0, 1]}]
    if api == "AddPartitionsToTxn":
        old = {f"V3AndBelow{name}": value for name, value in fields.items()}
        return {**old, "V3AndBelowTopics": topics, "Transactions": [{**fields, "Topics": topics}]}
    if api == "TxnOffsetCommit":
        part = {"PartitionIndex": 0, "CommittedOffset": 7, "CommittedMetadata": "m"}
        return {**fields, "GroupId": group, "Topics": [{"Name": "t", "Partitions": [part]}]}
    if api == "InitProducerId":
        return {**fields, "TransactionTimeoutMs": 60_000}
    return {**fields, **({"Committed": True} if api == "EndTxn" else {"GroupId": group})}


@pytest.mark.parametrize(
    ("api", "version", "code"),
    [
        ("AddPartitionsToTxn", 0, OLD_EPOCH),
        ("AddPartitionsToTxn", 1, OLD_EPOCH),
        ("AddPartitionsToTxn", 2, FENCED),
        ("AddPartitionsToTxn", 3, FENCED),
        ("AddPartitionsToTxn", 4, FENCED),
        ("AddOffsetsToTxn", 1, OLD_EPOCH),
        ("AddOffsetsToTxn", 2, FENCED),
        ("EndTxn", 1, OLD_EPOCH),
        ("EndTxn", 2, FENCED),
        ("EndTxn", 5, FENCED),
        ("InitProducerId", 3, OLD_EPOCH),
        ("InitProducerId", 4, FENCED),
    ],
)
async def test_fenced_producer_gets_the_error_of_its_version(asked, api, version, code):
    first = await begun(asked)
    again = await begun(asked)
    assert again[1] > first[1]
    answer = await ask(asked, api, version, request_of(api, "x", first))
    assert set(codes(answer)) == {code}
    other = await ask(asked, api, version, request_of(api, "nobody", first))
    if api != "InitProducerId":
        assert set(codes(other)) == {UNKNOWN}, "no other error is translated"
    nameless = await ask(asked, api, version, request_of(api, "", first))
    assert set(codes(nameless)) == {BAD}


@pytest.mark.parametrize(("producer", "code"), [((-1, -1), 0), ((-1, 0), BAD), ((5, -1), BAD)], ids=str)
@pytest.mark.parametrize("transactional_id", [None, "x"])
async def test_a_producer_id_and_its_epoch_come_together(asked, transactional_id, producer, code):
    request = request_of("InitProducerId", "x", producer) | {"TransactionalId": transactional_id}
    answer = await ask(asked, "InitProducerId", 4, request)
    assert answer.error_code == code
    assert (answer.producer_epoch == 0) is (not code)
    assert (answer.producer_id >= 0) is (not code)


@pytest.mark.parametrize(("version", "tells"), [(4, False), (5, True)])
async def test_end_of_a_transaction_tells_the_next_epoch_since_v5(asked, version, tells):
    producer = await begun(asked)
    added = await ask(asked, "AddPartitionsToTxn", 3, request_of("AddPartitionsToTxn", "x", producer))
    assert set(codes(added)) == {0}
    ended = await ask(asked, "EndTxn", version, request_of("EndTxn", "x", producer))
    assert ended.error_code == 0
    told = (producer[0], producer[1] + 1) if tells else (-1, -1)
    assert (ended.producer_id, ended.producer_epoch) == told


# --- partitions of several transactions, which brokers ask about ------------------------------------------------------


async def test_brokers_hear_of_each_transaction_and_partition_apart(asked):
    producer, other = await begun(asked), await begun(asked, "y")
    added = request_of("AddPartitionsToTxn", "x", producer)
    added["V3AndBelowTopics"] = [{"Name": "t", "Partitions": [1]}]
    assert codes(await ask(asked, "AddPartitionsToTxn", 3, added)) == [0]

    def verified(name: str, who: tuple[int, int], *topics: tuple[str, list[int]]) -> dict[str, Any]:
        return {
            "TransactionalId": name, "ProducerId": who[0], "ProducerEpoch": who[1], "VerifyOnly": True,
            "Topics": [{"Name": topic, "Partitions": indexes} for topic, indexes in topics],
        }  # fmt: skip

    transactions = [
        verified("x", producer, ("t", [0, 1])),
        verified("x", other, ("t", [1])),
        verified("y", other, ("t", [1])),
        verified("x", producer, ("t", [1, 2]), ("nowhere", [0])),
        verified("", producer, ("t", [1])),
    ]
    answer = await ask(asked, "AddPartitionsToTxn", 4, {"Transactions": transactions})
    abortable, missing, not_tried = (
        ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED,
    )  # fmt: skip
    told = [(result.transactional_id, codes(result)) for result in answer.results_by_transaction]
    assert told == [
        ("x", [abortable, 0]), ("x", [UNKNOWN]), ("y", [abortable]), ("x", [not_tried, missing, missing]),
        ("", [BAD]),
    ]  # fmt: skip


async def test_broker_is_told_of_a_pending_end_at_once(asked, monkeypatch):
    """Others that are asked about in the same request do not wait for it, while a producer waits for its own."""
    gate = trio.Event()

    async def write_later(*args: Any) -> None:
        await gate.wait()

    monkeypatch.setattr(LocalMarkers, "write", write_later)
    producers = {name: await begun(asked, name) for name in ("x", "y", "z")}
    await ask(asked, "AddPartitionsToTxn", 3, request_of("AddPartitionsToTxn", "y", producers["y"]))
    topics = [{"Name": "t", "Partitions": [0]}]
    transactions = [
        {"TransactionalId": name, "ProducerId": id_, "ProducerEpoch": epoch, "Topics": topics}
        for name, (id_, epoch) in producers.items()
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, asked, "EndTxn", 4, request_of("EndTxn", "y", producers["y"]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        began = trio.current_time()
        answer = await ask(asked, "AddPartitionsToTxn", 5, {"Transactions": transactions})
        results = [(result.transactional_id, codes(result)) for result in answer.results_by_transaction]
        assert results == [("x", [0]), ("y", [ErrorCode.CONCURRENT_TRANSACTIONS]), ("z", [0])]
        assert trio.current_time() < began + PATIENCE_SECONDS / 2
        gate.set()


async def test_many_transactions_of_a_request_are_answered_in_order(asked):
    producer = await begun(asked, "n0")
    topics = [{"Name": "t", "Partitions": [0]}]
    transactions = [
        {
            "TransactionalId": f"n{number % 120}", "ProducerId": producer[0], "ProducerEpoch": producer[1],
            "Topics": topics,
        }
        for number in range(250)
    ]  # fmt: skip
    answer = await ask(asked, "AddPartitionsToTxn", 5, {"Transactions": transactions})
    results = [(result.transactional_id, codes(result)) for result in answer.results_by_transaction]
    expected = [(f"n{number % 120}", [0 if number % 120 == 0 else UNKNOWN]) for number in range(250)]
    assert results == expected


# --- records ----------------------------------------------------------------------------------------------------------


def produced(transactional_id: str | None, *data: bytes) -> dict[str, Any]:
    parts = [{"Index": index, "Records": records} for index, records in enumerate(data)]
    topics = [{"Name": "t", "PartitionData": parts}]
    return {"TransactionalId": transactional_id, "Acks": -1, "TimeoutMs": 5000, "TopicData": topics}


def records(producer: tuple[int, int]) -> bytes:
    return bytes(
        batch(b"v", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0)
    )


async def test_transactional_records_need_their_id_and_one_producer(asked):
    producer, other = await begun(asked), await begun(asked, "y")
    await ask(asked, "AddPartitionsToTxn", 3, request_of("AddPartitionsToTxn", "x", producer))
    without = await ask(asked, "Produce", 9, produced(None, records(producer)))
    assert codes(without) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    two = await ask(asked, "Produce", 9, produced("x", records(producer), records(other)))
    assert codes(two) == [UNKNOWN] * 2
    nothing = await ask(asked, "Produce", 9, produced("x", b""))
    assert set(codes(nothing)) <= {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}
    response = await ask(asked, "Produce", 9, produced("x", records(producer), records(producer)))
    assert codes(response) == [0, 0]


# --- what a partition knows of its producers -----------------------------------------------------------------------


async def test_partition_tells_its_producers_and_markers_end_them(asked):
    producer = await begun(asked)
    await ask(asked, "AddPartitionsToTxn", 3, request_of("AddPartitionsToTxn", "x", producer))
    await ask(asked, "Produce", 9, produced(None, bytes(batch(b"before"))))
    assert codes(await ask(asked, "Produce", 9, produced("x", records(producer)))) == [0]
    names = (("t", [1, 0, 2]), ("bad/name", [0]))
    topics = [{"Name": name, "PartitionIndexes": indexes} for name, indexes in names]
    told = await ask(asked, "DescribeProducers", 0, {"Topics": topics})
    assert codes(told) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    quiet, busy, *_ = told.topics[0].partitions
    assert (quiet.partition_index, quiet.active_producers) == (1, [])
    [active] = busy.active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (*producer, 0)
    assert (active.current_txn_start_offset, active.coordinator_epoch) == (1, -1)
    marker = {
        "ProducerId": producer[0],
        "ProducerEpoch": producer[1],
        "TransactionResult": False,
        "CoordinatorEpoch": 5,
        "Topics": [{"Name": "t", "PartitionIndexes": [0, 2]}, {"Name": "nowhere", "PartitionIndexes": [0]}],
    }
    impossible = {**marker, "ProducerId": 77, "ProducerEpoch": -1}
    impossible["Topics"] = [{"Name": "t", "PartitionIndexes": [1]}]
    answer = await ask(asked, "WriteTxnMarkers", 1, {"Markers": [marker, impossible]})
    assert [row.producer_id for row in answer.markers] == [producer[0], 77]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [codes(row) for row in answer.markers] == [[0, missing, missing], [ErrorCode.UNKNOWN_SERVER_ERROR]]
    told = await ask(asked, "DescribeProducers", 0, {"Topics": [{"Name": "t", "PartitionIndexes": [0]}]})
    [ended] = told.topics[0].partitions[0].active_producers
    assert (ended.current_txn_start_offset, ended.coordinator_epoch) == (-1, 5)

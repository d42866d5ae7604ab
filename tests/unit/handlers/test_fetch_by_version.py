"""Fetch: formats of old versions, what committed readers see, sizes and their order, waiting, sessions, ids, epochs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.plain_requests import DenyNamed, ask, codes

SETTINGS = {"transaction.state.log.num.partitions": "1"}
LARGE = 1 << 20
VALUE = b"v" * 100
BATCH_BYTES = len(batch(VALUE))


@pytest.fixture
async def asked(tmp_path):
    """With three batches of one record in the first partition of `t`, and two in the second."""
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        await ask_for_topic(asked)
        for index in (0, 1, 0, 1, 0):
            await produce(asked, batch(VALUE), index)
        yield asked


async def produce(asked: Asked, records: Any, index: int = 0, **more: Any) -> None:
    data = [{"Name": "t", "PartitionData": [{"Index": index, "Records": bytes(records)}]}]
    answer = await ask(asked, "Produce", 9, {"Acks": -1, "TimeoutMs": 5000, "TopicData": data, **more})
    assert codes(answer) == [0]


async def fetch(asked: Asked, version: int, *offsets: tuple[int, int], part: Any = None, **more: Any) -> Any:
    """Fetch partitions from their offsets on; `part` are other fields of each of them."""
    image = asked.services.metadata.image
    parts = [
        {"Partition": index, "FetchOffset": offset, "PartitionMaxBytes": LARGE, **(part or {})}
        for index, offset in offsets
    ]
    topic = {"TopicId": image.topics["t"].id, "Topic": "t", "Partitions": parts}
    request = {
        "ReplicaId": -1, "MaxBytes": LARGE, "SessionEpoch": -1, "Topics": [topic] if parts else [], **more,
    }  # fmt: skip
    if version > 14:
        del request["ReplicaId"]
    return await ask(asked, "Fetch", version, request)


def found(answer: Any) -> dict[int, Any]:
    assert answer.error_code == 0
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


def offsets(part: Any) -> list[int]:
    return [header.base_offset for _, header in iter_batches(bytes(part.records or b""))]


# --- formats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (11, 2)])
async def test_each_version_gets_the_format_that_it_knows(asked, version, magic):
    part = found(await fetch(asked, version, (0, 0)))[0]
    data = bytes(part.records)
    assert data[16] == magic
    assert [record.value for record in iter_any_records(data, 0)][:1] == [VALUE]
    assert part.high_watermark == 3


@pytest.mark.parametrize(("version", "size"), [(0, 50), (1, 50), (2, 50), (3, None), (4, BATCH_BYTES)])
async def test_oversized_first_message_is_cut_up_to_v2_and_then_whole(asked, version, size):
    part = found(await fetch(asked, version, (0, 0), part={"PartitionMaxBytes": 50}))[0]
    if size is None:
        assert [record.value for record in iter_any_records(bytes(part.records), 0)] == [VALUE]
    else:
        assert len(part.records) == size


@pytest.mark.parametrize(("version", "code"), [(3, 76), (9, 76), (10, 0)])
async def test_topics_in_zstd_are_for_those_who_know_it(asked, version, code):
    await ask_for_topic(asked, "z", settings={"compression.type": "zstd"})
    topic = {"Topic": "z", "Partitions": [{"Partition": 0, "PartitionMaxBytes": LARGE}]}
    assert codes(await fetch(asked, version, Topics=[topic])) == [code]


# --- committed records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 11, 12, 13])
async def test_committed_readers_stop_at_open_and_list_aborted(asked, version):
    txn = await ask(asked, "InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000})
    options = {"transactional": True, "producer_id": txn.producer_id, "producer_epoch": txn.producer_epoch}
    added = {
        "V3AndBelowTransactionalId": "x",
        "V3AndBelowProducerId": txn.producer_id,
        "V3AndBelowProducerEpoch": txn.producer_epoch,
        "V3AndBelowTopics": [{"Name": "t", "Partitions": [0]}],
    }
    producer = {"ProducerId": txn.producer_id, "ProducerEpoch": txn.producer_epoch, "TransactionalId": "x"}
    assert codes(await ask(asked, "AddPartitionsToTxn", 3, added)) == [0]
    await produce(asked, batch(VALUE, base_sequence=0, **options), TransactionalId="x")
    await produce(asked, batch(VALUE))
    part = found(await fetch(asked, version, (0, 0), IsolationLevel=1))[0]
    assert (part.last_stable_offset, part.high_watermark, offsets(part)) == (3, 5, [0, 1, 2])
    assert part.aborted_transactions == []
    part = found(await fetch(asked, version, (0, 0), IsolationLevel=0))[0]
    assert (part.last_stable_offset, part.high_watermark, offsets(part)) == (3, 5, [0, 1, 2, 3, 4])
    assert part.aborted_transactions is None
    assert offsets(found(await fetch(asked, version, (0, 3), IsolationLevel=1))[0]) == []
    assert (await ask(asked, "EndTxn", 3, {**producer, "Committed": False})).error_code == 0
    await trio.testing.wait_all_tasks_blocked(0.01)  # until the marker is there
    part = found(await fetch(asked, version, (0, 0), IsolationLevel=1))[0]
    assert (part.last_stable_offset, part.high_watermark, offsets(part)) == (6, 6, [0, 1, 2, 3, 4, 5])
    assert [(txn.producer_id, txn.first_offset) for txn in part.aborted_transactions] == [
        (txn.producer_id, 3)
    ]


# --- sizes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "part", "expected"),
    [
        ({"MaxBytes": BATCH_BYTES}, {}, ([0], [])),
        ({"MaxBytes": BATCH_BYTES - 1}, {}, ([0], [])),  # a first batch is always whole
        ({"MaxBytes": 2 * BATCH_BYTES - 1}, {}, ([0], [])),
        ({"MaxBytes": 2 * BATCH_BYTES}, {}, ([0, 1], [])),
        ({"MaxBytes": 4 * BATCH_BYTES}, {}, ([0, 1, 2], [0])),
        ({}, {"PartitionMaxBytes": BATCH_BYTES}, ([0], [0])),
        ({}, {"PartitionMaxBytes": BATCH_BYTES - 1}, ([0], [])),
        ({}, {"PartitionMaxBytes": 2 * BATCH_BYTES}, ([0, 1], [0, 1])),
        ({"MaxBytes": 0}, {}, ([0], [])),
        ({}, {"PartitionMaxBytes": 0}, ([0], [])),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [4, 12])
async def test_limits_are_those_of_the_request_and_of_each_partition(asked, version, limits, part, expected):
    parts = found(await fetch(asked, version, (0, 0), (1, 0), part=part, **limits))
    assert (offsets(parts[0]), offsets(parts[1])) == expected


async def test_partitions_are_read_in_the_order_of_the_request(asked):
    parts = found(await fetch(asked, 12, (1, 0), (0, 0), MaxBytes=BATCH_BYTES))
    assert [*parts] == [1, 0]
    assert (offsets(parts[1]), offsets(parts[0])) == ([0], [])


async def test_the_broker_has_a_limit_of_its_own(tmp_path):
    async with broker_to_ask(tmp_path, {**SETTINGS, "fetch.max.bytes": "1024"}) as asked:
        await ask_for_topic(asked)
        for _ in range(8):
            await produce(asked, batch(VALUE * 4))
        part = found(await fetch(asked, 12, (0, 0)))[0]
        assert 0 < len(part.records) <= 1024


# --- waiting --------------------------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_so_many_bytes_or_so_long(asked):
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(await fetch(asked, 12, (0, 3), MinBytes=2 * BATCH_BYTES, MaxWaitMs=60_000))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for _ in range(2):
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert answers == []
                await produce(asked, batch(VALUE))
        assert offsets(found(answers[0])[0]) == [3, 4]
        begun = trio.current_time()
        assert offsets(found(await fetch(asked, 12, (0, 5), MinBytes=1, MaxWaitMs=30))[0]) == []
        assert trio.current_time() - begun >= 0.03


@pytest.mark.parametrize(
    "at_once",
    [
        {"MinBytes": 0, "MaxWaitMs": 60_000},
        {"MinBytes": 1, "MaxWaitMs": 0},
        {"MinBytes": 1, "MaxWaitMs": 60_000, "Topics": []},
        {"MinBytes": 3 * BATCH_BYTES, "MaxWaitMs": 60_000, "from": 0},
        {"MinBytes": 3 * BATCH_BYTES + 1, "MaxWaitMs": 60_000, "from": 99},
    ],
    ids=str,
)
async def test_fetch_returns_at_once_where_waiting_is_pointless(asked, at_once):
    more = dict(at_once)
    offset = more.pop("from", 3)
    with trio.fail_after(5):
        answer = await fetch(asked, 12, (0, offset), **more)
    assert answer.error_code == 0
    if offset == 99:
        assert codes(answer) == [ErrorCode.OFFSET_OUT_OF_RANGE]


# --- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12, 13])
async def test_session_continues_at_its_epoch_without_forgotten(asked, version):
    image = asked.services.metadata.image
    begun = await fetch(asked, version, (0, 3), (1, 2), SessionEpoch=0)
    assert begun.session_id > 0
    assert [*found(begun)] == [0, 1], "the first answer names everything"
    more = {"SessionId": begun.session_id}
    assert found(await fetch(asked, version, SessionEpoch=1, **more)) == {}
    for index in (0, 1):
        await produce(asked, batch(VALUE), index)
    topic = {"Topic": "t", "TopicId": image.topics["t"].id, "Partitions": [0]}
    again = await fetch(asked, version, SessionEpoch=2, ForgottenTopicsData=[topic], **more)
    assert {index: offsets(part) for index, part in found(again).items()} == {1: [2]}
    wrong = await fetch(asked, version, SessionEpoch=2, **more)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    moved = await fetch(asked, version, (1, 3), (0, 4), SessionEpoch=3, **more)
    assert {index: offsets(part) for index, part in found(moved).items()} == {0: []}, "it is new again"
    closed = await fetch(asked, version, SessionEpoch=-1, **more)
    assert (closed.error_code, closed.session_id, closed.responses) == (0, 0, [])
    gone = await fetch(asked, version, SessionEpoch=4, **more)
    assert (gone.error_code, gone.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_a_session_that_begins_anew_ends_the_one_that_it_names(asked):
    first = await fetch(asked, 12, (0, 3), SessionEpoch=0)
    second = await fetch(asked, 12, (1, 2), SessionEpoch=0, SessionId=first.session_id)
    assert second.session_id not in (0, first.session_id)
    gone = await fetch(asked, 12, SessionEpoch=1, SessionId=first.session_id)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (await fetch(asked, 12, SessionEpoch=1, SessionId=second.session_id)).error_code == 0


async def test_in_a_session_those_who_were_served_come_last(asked):
    begun = await fetch(asked, 12, (0, 0), (1, 0), SessionEpoch=0, MaxBytes=BATCH_BYTES)
    assert [offsets(part) for part in found(begun).values()] == [[0], []]
    more = {"SessionId": begun.session_id, "MaxBytes": BATCH_BYTES}
    again = found(await fetch(asked, 12, (0, 1), SessionEpoch=1, **more))
    assert {index: offsets(part) for index, part in again.items() if part.records} == {1: [0]}


# --- who, which topic, which epoch ----------------------------------------------------------------------------------


async def test_followers_need_cluster_action_and_no_right_to_read(asked):
    asked.authorizer = DenyNamed((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    assert codes(await fetch(asked, 12, (0, 0), (1, 0), ReplicaId=5)) == [29, 29]
    assert codes(await fetch(asked, 12, (0, 0))) == [0]
    asked.authorizer = DenyNamed((Operation.READ, ResourceType.TOPIC, "t"))
    assert codes(await fetch(asked, 12, (0, 0))) == [29]
    assert codes(await fetch(asked, 12, (0, 0), ReplicaId=5)) not in ([29], [0]), "5 is no replica"


async def test_a_topic_id_that_is_not_known_has_an_error_of_its_own(asked):
    topics = [
        {"TopicId": each, "Partitions": [{"Partition": 0, "PartitionMaxBytes": LARGE}]}
        for each in (b"x" * 16, asked.services.metadata.image.topics["t"].id)
    ]
    answer = await fetch(asked, 13, Topics=topics)
    assert [topic.topic_id for topic in answer.responses] == [topic["TopicId"] for topic in topics]
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
    assert offsets(answer.responses[1].partitions[0]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [(-1, 2, (-1, -1)), (0, 3, (-1, -1)), (0, 2, (-1, -1)), (0, 4, (0, 3))],
)
async def test_reader_of_another_epoch_is_told_where_the_log_diverged(asked, last_epoch, offset, diverging):
    part = found(await fetch(asked, 12, (0, offset), part={"LastFetchedEpoch": last_epoch}))[0]
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == diverging
    assert offsets(part) == ([] if diverging != (-1, -1) else [*range(offset, 3)])


async def test_an_epoch_that_the_leader_has_never_had_leads_nowhere(asked):
    answer = await fetch(asked, 12, (0, 2), (1, 0), part={"LastFetchedEpoch": 7})
    assert codes(answer) == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
    assert found(answer)[0].diverging_epoch.epoch == -1


@pytest.mark.parametrize("version", [12, 16])
@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (-7, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
async def test_a_leader_epoch_that_is_not_there_yet_is_not_known(asked, version, epoch, code):
    answer = await fetch(asked, version, (0, 0), (1, 0), part={"CurrentLeaderEpoch": epoch})
    assert codes(answer) == [code] * 2
    assert answer.node_endpoints == []

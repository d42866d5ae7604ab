"""Looking at a broker: members of groups of each kind, records without aborted ones, from any offset on."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing

from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.looking import Looking, NotThereError, plain
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.plain_requests import ask, codes

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        asked.client_id = "the-client"
        await ask_for_topic(asked)
        yield asked


@pytest.fixture
def looking(asked):
    return Looking(LocalRequests(asked.broker))


async def produce(asked: Asked, *values: bytes, partition: int = 0, **options: Any) -> None:
    data = [{"Index": partition, "Records": bytes(batch(*values, **options))}]
    request = {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": "t", "PartitionData": data}]}
    request["TransactionalId"] = "x" if options else None
    assert codes(await ask(asked, "Produce", 9, request)) == [0]


async def in_transaction(asked: Asked, number: int, *values: bytes, commit: bool) -> None:
    made = await ask(asked, "InitProducerId", 4, {"TransactionalId": "x", "TransactionTimeoutMs": 60_000})
    producer = {"ProducerId": made.producer_id, "ProducerEpoch": made.producer_epoch}
    added = {f"V3AndBelow{name}": value for name, value in producer.items()}
    added |= {"V3AndBelowTransactionalId": "x", "V3AndBelowTopics": [{"Name": "t", "Partitions": [0]}]}
    assert codes(await ask(asked, "AddPartitionsToTxn", 3, added)) == [0]
    await produce(
        asked, *values, transactional=True, producer_id=made.producer_id, producer_epoch=made.producer_epoch,
        base_sequence=0,
    )  # fmt: skip
    end = {"TransactionalId": "x", "Committed": commit, **producer}
    assert (await ask(asked, "EndTxn", 3, end)).error_code == 0
    await trio.testing.wait_all_tasks_blocked(0.01)  # until the marker is there


async def test_records_are_read_from_any_offset_on_without_those_that_were_aborted(asked, looking):
    await produce(asked, b"0", b"1", b"2")
    await in_transaction(asked, 0, b"3", b"4", commit=False)  # and a marker, 5
    await in_transaction(asked, 1, b"6", commit=True)  # and a marker, 7
    await produce(asked, b"8")
    everything = [0, 1, 2, 3, 4, 6, 8]
    committed = [0, 1, 2, 6, 8]

    async def offsets(offset: int = 0, limit: int = 100, **more: Any) -> list[int]:
        found = await looking.read("t", 0, offset, limit=limit, **more)
        assert [one.value for one in found] == [b"%d" % one.offset for one in found]
        return [one.offset for one in found]

    for start in range(10):
        assert await offsets(start) == [one for one in committed if one >= start]
        assert await offsets(start, committed=False) == [one for one in everything if one >= start]
        assert (await looking.count("t", 0, start))[0] == len([one for one in committed if one >= start])
        assert (await looking.count("t", 0, start, committed=False))[0] == len(
            [one for one in everything if one >= start]
        )
    assert (await looking.count("t", 0))[1] == 9
    for limit in (0, 1, 2, 4):
        assert await offsets(1, limit) == committed[1 : 1 + limit]


async def test_records_of_all_partitions_share_a_limit(asked, looking):
    await produce(asked, b"0", b"1")
    await produce(asked, b"0", b"1", partition=1)

    async def places(**more: Any) -> list[tuple[int, int]]:
        return [(one["partition"], one["offset"]) for one in await looking.records("t", **more)]

    assert await places() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert await places(limit=3) == [(0, 0), (0, 1), (1, 0)]
    assert await places(offset=1) == [(0, 1), (1, 1)]
    assert await places(partition=1, limit=1) == [(1, 0)]
    for topic, partition in (("t", 2), ("t", -1), ("none", None), ("none", 0)):
        with pytest.raises(NotThereError):
            await looking.records(topic, partition)


async def test_what_was_deleted_is_not_there(asked, looking):
    await produce(asked, b"0", b"1", b"2")
    parts = [{"PartitionIndex": 0, "Offset": 2}]
    await ask(asked, "DeleteRecords", 2, {"Topics": [{"Name": "t", "Partitions": parts}], "TimeoutMs": 5000})
    assert [one.offset for one in await looking.read("t", 0, limit=9)] == [2]
    assert await looking.count("t", 0) == (1, 3)
    first = looking.topic("t")["partitions"][0]
    assert (first["log_start_offset"], first["high_watermark"], first["last_stable_offset"]) == (2, 3, 3)


async def test_groups_of_each_kind_are_told_with_members_offsets_and_lag(asked, looking):
    await produce(asked, b"0", b"1", b"2")
    assert await looking.groups() == []
    beat = {"MemberId": "m", "MemberEpoch": 0, "SubscribedTopicNames": ["t"]}
    consumer = {**beat, "GroupId": "c", "RebalanceTimeoutMs": 10_000, "TopicPartitions": []}
    assert (await ask(asked, "ConsumerGroupHeartbeat", 1, consumer)).error_code == 0
    assert (await ask(asked, "ShareGroupHeartbeat", 1, {**beat, "GroupId": "s"})).error_code == 0
    join = {
        "GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b""}],
    }  # fmt: skip
    member = (await ask(asked, "JoinGroup", 3, join)).member_id
    parts = [{"PartitionIndex": index, "CommittedOffset": offset} for index, offset in ((1, 5), (0, 1))]
    commit = {
        "GroupId": "kept",
        "GenerationIdOrMemberEpoch": -1,
        "Topics": [{"Name": "t", "Partitions": parts}],
    }
    assert codes(await ask(asked, "OffsetCommit", 8, commit)) == [0, 0]
    assert await looking.groups() == [
        {"group": "c", "type": "consumer", "state": "Stable"},
        {"group": "g", "type": "classic", "state": "CompletingRebalance"},
        {"group": "kept", "type": "classic", "state": "Empty"},
        {"group": "s", "type": "share", "state": "Stable"},
    ]
    for group, name in (("c", "m"), ("s", "m"), ("g", member)):
        found = await looking.group(group)
        assert found["members"] == [{"member": name, "client_id": "the-client", "host": "/127.0.0.1"}]
        assert found["offsets"] == []
    kept = await looking.group("kept")
    assert (kept["members"], kept["state"]) == ([], "Empty")
    assert kept["offsets"] == [
        {"topic": "t", "partition": 0, "offset": 1, "lag": 2},
        {"topic": "t", "partition": 1, "offset": 5, "lag": 0},
    ]
    with pytest.raises(NotThereError, match="there is no group nobody"):
        await looking.group("nobody")


def test_bytes_are_texts_where_they_can_be():
    assert [plain(data) for data in (None, b"", "ä".encode(), b"\xff")] == [None, "", "ä", {"base64": "/w=="}]


async def test_topics_of_coordinators_are_told_when_asked(asked, looking):
    await ask(asked, "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["g"]})
    assert [one["name"] for one in looking.topics()] == ["t"]
    assert [one["name"] for one in looking.topics(internal=True)] == ["__consumer_offsets", "t"]
    assert [one["partition"] for one in looking.topic("t")["partitions"]] == [0, 1]
    with pytest.raises(NotThereError):
        looking.topic("none")

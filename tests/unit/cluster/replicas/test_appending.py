"""Usual partitions of a produce request, appended together, and where that ends."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.cluster.replicas.appending import BYTES_PER_CHECKPOINT, BYTES_PER_PARTITION, Appends
from barnabas.errors import RequestError
from barnabas.log.background_write import BACKGROUND_BYTES
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.logs import NOW_MS, TOPIC_ID, batch
from tests.support.replicas import Node

Response = Any
SOLE = PartitionInfo(1, (1,), (1,), 5, 7)
FOLLOWED = PartitionInfo(2, (1, 2), (1, 2), 5, 7)
REPLICATED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)


async def broker(*partitions: PartitionInfo, **settings: Any) -> Node:
    node = Node(1, **settings)
    brokers = [BrokerRegistered(BrokerInfo(one, None, {})) for one in (1, 2)]
    await node.apply([*brokers, TopicCreated(TopicInfo("t", TOPIC_ID, partitions))])
    return node


def appends(node: Node, *, acks: int = -1, is_among_others: bool = False) -> Appends:
    def refuse(topic: str, index: int, error: RequestError) -> Response:
        return (topic, index, error.code)

    return Appends(
        node.replicas, refuse, acks=acks, api_version=9, now_ms=NOW_MS, is_among_others=is_among_others
    )


def data(index: int, records: Any = None) -> ProduceRequest.PartitionProduceData:
    return ProduceRequest.PartitionProduceData(
        index=index, records=memoryview(batch(b"x", b"y")) if records is None else records
    )


async def test_each_partition_is_answered_in_its_place() -> None:
    node = await broker(SOLE, REPLICATED, SOLE)
    node.produce(b"before")
    together, responses = appends(node), []
    assert not together.append_usual("t", [data(0), data(1), data(2)], responses)
    assert [(one.index, one.error_code, one.base_offset) for one in responses] == [
        (0, 0, 1),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert [one.log_append_time_ms for one in responses] == [-1, -1, -1]
    [(replica, end, response)] = together.pending
    assert (replica.index, end, response) == (1, 2, responses[1])


async def test_what_has_its_answer_is_not_appended_again() -> None:
    node = await broker(SOLE, SOLE)
    responses: list[Any] = ["answered"]
    assert not appends(node).append_usual("t", [data(0), data(1)], responses)
    assert len(responses) == 2
    assert [node.replicas.local("t", index).log.log_end_offset for index in (0, 1)] == [0, 2]


@pytest.mark.parametrize(
    ("unusual", "is_among_others"),
    [
        (bytes(batch(b"x")), False),
        (None, False),
        (
            memoryview(batch(b"x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)),
            False,
        ),
        (memoryview(batch(b"x" * BACKGROUND_BYTES)), True),
    ],
    ids=["not in memory", "null", "transactional", "large beside others"],
)
async def test_what_is_unusual_ends_what_is_appended_together_and_is_left_as_it_is(
    unusual: Any, is_among_others: bool
) -> None:
    node = await broker(SOLE, SOLE, SOLE, max_message_bytes=10 << 20)
    parts = [data(0), data(1), data(2)]
    parts[1].records = unusual
    together, responses = appends(node, is_among_others=is_among_others), []
    assert together.append_usual("t", parts, responses)
    assert [one.index for one in responses] == [0]
    assert [node.replicas.local("t", index).log.log_end_offset for index in range(3)] == [2, 0, 0]


@pytest.mark.parametrize(
    ("bad", "code"),
    [(FOLLOWED, ErrorCode.NOT_LEADER_OR_FOLLOWER), (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
async def test_what_is_refused_is_answered_after_those_before_it(
    bad: PartitionInfo | None, code: int
) -> None:
    node = await broker(SOLE, bad or SOLE, SOLE)
    index = 1 if bad else 9
    parts = [data(0), data(index), data(2)]
    together, responses = appends(node), []
    assert not together.append_usual("t", parts, responses)
    assert (responses[0].index, responses[1:]) == (0, [("t", index, code)])
    assert not together.append_usual("t", parts, responses)
    assert responses[2].index == 2


async def test_what_speaks_against_an_append_is_its_answer_and_no_others() -> None:
    node = await broker(SOLE, SOLE)
    stale = batch(b"x", producer_id=3, producer_epoch=4, base_sequence=0)
    node.replica.log.append_as_leader(stale, leader_epoch=5, now_ms=NOW_MS)
    fenced = memoryview(batch(b"x", producer_id=3, producer_epoch=3, base_sequence=0))
    responses: list[Any] = []
    assert not appends(node).append_usual("t", [data(0, fenced), data(1)], responses)
    assert responses[0] == ("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert (responses[1].index, responses[1].base_offset) == (1, 0)


async def test_acks_all_is_refused_together_as_alone() -> None:
    node = await broker(REPLICATED._replace(isr=(1,)), min_insync_replicas=2)
    for acks, refused in ((-1, True), (1, False)):
        responses: list[Any] = []
        appends(node, acks=acks).append_usual("t", [data(0)], responses)
        assert (responses[0] == ("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS)) is refused


@pytest.mark.parametrize(
    ("sizes", "is_due"),
    [
        ([1] * 15, False),
        ([1] * 16, True),
        ([BYTES_PER_PARTITION] * 15, False),
        ([BYTES_PER_PARTITION + 1] * 15, False),
        ([BYTES_PER_PARTITION + 1] * 15 + [1], True),
        ([BYTES_PER_CHECKPOINT - 1], False),
        ([BYTES_PER_CHECKPOINT], True),
    ],
)
async def test_the_loop_is_looked_at_after_so_many_partitions_or_bytes(
    sizes: list[int], is_due: bool
) -> None:
    together = appends(await broker(SOLE))
    for size in sizes:
        assert not together.is_used_up
        together.count(size)
    assert together.is_used_up is is_due
    assert together.is_checkpoint_due() is is_due
    assert not together.is_checkpoint_due()  # it is said once
    together.count(BYTES_PER_CHECKPOINT - 1)
    assert not together.is_used_up or not is_due


async def test_appending_stops_where_the_loop_must_be_looked_at() -> None:
    node = await broker(*[SOLE] * 20)
    together, responses = appends(node), []
    parts = [data(index) for index in range(20)]
    assert not together.append_usual("t", parts, responses)
    assert len(responses) == 16
    assert not together.append_usual("t", parts, responses)
    assert len(responses) == 16
    assert together.is_checkpoint_due()
    assert not together.append_usual("t", parts, responses)
    assert len(responses) == 20


@pytest.mark.parametrize(
    ("size", "is_among_others", "expected"),
    [(BACKGROUND_BYTES, True, True), (BACKGROUND_BYTES - 1, True, False), (BACKGROUND_BYTES, False, False)],
)
async def test_large_records_are_written_in_a_thread_beside_others(
    size: int, is_among_others: bool, expected: bool
) -> None:
    assert appends(await broker(SOLE), is_among_others=is_among_others).are_in_background(size) is expected

"""Partitions of a produce request, appended without waiting, and where that ends."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, PartitionInfo, TopicInfo
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import OsThreads
from barnabas.handlers.produce.appending import BYTES_PER_CHECKPOINT, BYTES_PER_PARTITION, Appender
from barnabas.handlers.produce.services import ProduceServices
from barnabas.log.background_write import BACKGROUND_BYTES
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.step_runner import StepRunner
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.contexts import new_context
from tests.support.logs import NOW_MS, TOPIC_ID, batch
from tests.support.replicas import Node

Response = Any
SOLE = PartitionInfo(1, (1,), (1,), 5, 7)
REPLICATED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)


async def broker(*partitions: PartitionInfo, **settings: Any) -> Node:
    node = Node(1, **settings)
    brokers = [BrokerRegistered(BrokerInfo(broker_id, None, {})) for broker_id in (1, 2)]
    await node.apply([*brokers, TopicCreated(TopicInfo("t", TOPIC_ID, partitions))])
    return node


def appender(
    node: Node,
    parts: list[ProduceRequest.PartitionProduceData],
    *,
    acks: int = -1,
    is_among_others: bool = False,
    budget: Any = None,
    verifier: Any = None,
    settings: dict[str, str] | None = None,
) -> Appender:
    """Return the appender of a request for partitions of one topic; with a `verifier`, of one in a transaction."""
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=parts)
    request = ProduceRequest(
        transactional_id=None if verifier is None else "id", acks=acks, timeout_ms=1000, topic_data=[topic]
    )
    context = new_context(0, 9, is_among_others=is_among_others)
    metadata: Any = SimpleNamespace(image=node.image)
    threads = OsThreads()
    step_runner = StepRunner(node.budget, threads)
    services = ProduceServices(
        metadata, node.replicas, verifier, BrokerConfig(settings or {}), budget or node.budget, step_runner,
        threads,
    )  # fmt: skip
    return Appender(services, context, request)


def ends(node: Node, count: int) -> list[int]:
    return [node.replicas.local("t", index).log.log_end_offset for index in range(count)]


async def answers(appends: Appender) -> list[Response]:
    """Append what is left; the answers of all partitions."""
    await appends.admit()
    await appends.append_rest()
    (topic,) = appends.topics
    return topic.partition_responses


def data(index: int, records: Any = None) -> ProduceRequest.PartitionProduceData:
    return ProduceRequest.PartitionProduceData(
        index=index, records=memoryview(batch(b"x", b"y")) if records is None else records
    )


async def test_each_partition_is_answered_in_its_place() -> None:
    node = await broker(SOLE, REPLICATED, SOLE)
    node.produce(b"before")
    appends = appender(node, [data(0), data(1), data(2)])
    assert appends.append_nowait()
    responses = appends.topics[0].partition_responses
    assert [(response.index, response.error_code, response.base_offset) for response in responses] == [
        (0, 0, 1), (1, 0, 0), (2, 0, 0),
    ]  # fmt: skip
    assert [response.log_append_time_ms for response in responses] == [-1, -1, -1]
    [(replica, end, response)] = appends.pending
    assert (replica.index, end, response) == (1, 2, responses[1])
    assert await answers(appends) == responses
    assert ends(node, 3) == [3, 2, 2], "what has its answer is not appended again"


@pytest.mark.parametrize(
    ("records", "is_among_others", "code"),
    [
        (bytes(batch(b"x")), False, ErrorCode.INVALID_RECORD),
        (None, False, ErrorCode.INVALID_RECORD),
        (memoryview(batch(b"x" * BACKGROUND_BYTES)), True, 0),
        (memoryview(batch(*[b"x"] * 4_000)), False, 0),
    ],
    ids=["not in memory", "null", "large beside others", "many records"],
)
async def test_appending_without_waiting_ends_before_what_takes_more(
    records: Any, is_among_others: bool, code: int
) -> None:
    node = await broker(SOLE, SOLE, SOLE, max_message_bytes=10 << 20)
    parts = [data(0), data(1), data(2)]
    parts[1].records = records
    appends = appender(node, parts, is_among_others=is_among_others)
    assert not appends.append_nowait()
    assert ends(node, 3) == [2, 0, 0]
    assert [(row.index, row.error_code) for row in await answers(appends)] == [(0, 0), (1, code), (2, 0)]
    assert (ends(node, 3)[1] > 0) is not bool(code)


async def test_a_large_batch_of_a_lone_client_does_not_wait() -> None:
    node = await broker(SOLE, max_message_bytes=10 << 20)
    assert appender(node, [data(0, memoryview(batch(b"x" * BACKGROUND_BYTES)))]).append_nowait()
    assert ends(node, 1) == [1]


async def test_of_transactions_nothing_is_appended_without_waiting() -> None:
    node = await broker(SOLE, SOLE)
    part = batch(b"x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert not appender(node, [data(0), data(1, memoryview(part))]).append_nowait()
    assert ends(node, 2) == [0, 0]


async def test_append_error_is_the_answer_of_its_partition_alone() -> None:
    node = await broker(SOLE, SOLE)
    stale = batch(b"x", producer_id=3, producer_epoch=4, base_sequence=0)
    node.replica.log.append_as_leader(stale, leader_epoch=5, now_ms=NOW_MS)
    fenced = memoryview(batch(b"x", producer_id=3, producer_epoch=3, base_sequence=0))
    first, second = await answers(appender(node, [data(0, fenced), data(1)]))
    assert (first.index, first.error_code) == (0, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert (second.index, second.error_code, second.base_offset) == (1, 0, 0)


@pytest.mark.parametrize("is_verified", ["true", "false"])
async def test_no_later_batch_takes_the_place_of_one_without_replicas(is_verified: str) -> None:
    class Verifier:
        async def verify(self, *_: object, **__: object) -> dict[object, int]:
            return {}

    node = await broker(REPLICATED._replace(isr=(1,)), min_insync_replicas=2)
    codes = []
    for sequence, acks in ((0, -1), (5, 1), (0, 1), (1, 1)):
        records = batch(b"x", producer_id=3, producer_epoch=4, base_sequence=sequence, transactional=True)
        appends = appender(
            node, [data(0, memoryview(records))], acks=acks, verifier=Verifier(),
            settings={"transaction.partition.verification.enable": is_verified},
        )  # fmt: skip
        codes += [answer.error_code for answer in await answers(appends)]
    ahead = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    expected = [ahead, 0, 0] if is_verified == "true" else [0, ahead, ahead]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, *expected]


@pytest.mark.parametrize(
    ("sizes", "looks"),
    [
        ([1] * 15, 0),
        ([1] * 17, 1),
        ([1] * 33, 2),
        ([BYTES_PER_PARTITION] * 8, 0),
        ([2 * BYTES_PER_PARTITION] * 8 + [1], 1),
        ([BYTES_PER_CHECKPOINT, 1], 1),
    ],
)
@pytest.mark.parametrize("index", [None, 99])
async def test_the_loop_is_looked_at_after_so_many_partitions_or_bytes(
    sizes: list[int], looks: int, index: int | None
) -> None:
    """Partitions that are refused count as others do, but for their bytes."""
    node = await broker(*[SOLE] * len(sizes), max_message_bytes=10 << 20)
    parts = [data(number, memoryview(batch(b"x" * size))) for number, size in enumerate(sizes)]
    if index is not None:
        looks = (len(sizes) - 1) // 16
        parts = [data(index + number) for number in range(len(sizes))]
    clock = itertools.count()
    budget = LoopBudget(clock=lambda: float(next(clock)), budget_seconds=1e9)
    begun = next(clock)
    appends = appender(node, parts, budget=budget)
    assert appends.append_nowait() is (looks == 0)
    assert len(await answers(appends)) == len(sizes)
    assert next(clock) - begun - 1 == looks + (looks > 0), "one before each topic"

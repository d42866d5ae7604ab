"""Faults as they are committed: which part of a request is refused, what is done to an answer, and how it is sent."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.errors import RequestError
from barnabas.security.authorizer import AllowEverything
from barnabas.serving.context import ContextParts, RequestContext
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.memory import Memory
from barnabas.tools.control import partial
from barnabas.tools.control.committing import KEPT_MAX, Committing
from barnabas.tools.control.delivery import Delivery, beginning, deliver, spoiled
from barnabas.tools.faults import matching
from barnabas.tools.faults.chance import Chance
from barnabas.tools.faults.engine import Faults
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.regions import FileRegion
from tests.support.request_parts import new_connection

PRODUCE, LIST_OFFSETS = 0, 2
Parts = dict[str, list[int]]


def no_name(_: bytes) -> None:
    return None


def produce(parts: Parts) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[ProduceRequest.PartitionProduceData(index=index) for index in indexes],
            )
            for name, indexes in parts.items()
        ],
    )


def produced(parts: Parts, code: int = 0) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=name,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=index, error_code=code, base_offset=7)
                    for index in indexes
                ],
            )
            for name, indexes in parts.items()
        ]
    )


def asked_of(request: ProduceRequest | None) -> Parts | None:
    if request is None:
        return None
    return {topic.name: [part.index for part in topic.partition_data] for topic in request.topic_data}


def told(response: ProduceResponse) -> dict[str, dict[int, int]]:
    return {
        topic.name: {response.index: response.error_code for response in topic.partition_responses}
        for topic in response.responses
    }


# --- parts of requests and answers ----------------------------------------------------------------------------------

EVERYTHING: Parts = {"t": [0, 1], "u": [0, 1], "v": [1]}


@pytest.mark.parametrize(
    ("on", "hit", "rest"),
    [
        ({"topic": "t"}, {"t": [0, 1]}, {"u": [0, 1], "v": [1]}),
        ({"topic": "t", "partition": 1}, {"t": [1]}, {"t": [0], "u": [0, 1], "v": [1]}),
        ({"partition": 0}, {"t": [0], "u": [0]}, {"t": [1], "u": [1], "v": [1]}),
        ({"partition": "0,1"}, EVERYTHING, None),
        ({"topic": "w"}, None, EVERYTHING),
        ({"topic": "*"}, EVERYTHING, None),
        ({"partition": 5}, None, EVERYTHING),
    ],
    ids=str,
)
def test_request_is_split_into_faulty_part_and_rest(on, hit, rest):
    request = produce(EVERYTHING)
    parts = partial.split(request, matching.parse(on), no_name)
    assert tuple(map(asked_of, parts)) == (hit, rest)
    assert all(part is None or part.acks == -1 for part in parts)
    assert asked_of(request) == EVERYTHING, "the request is as it was"


def test_topics_that_are_named_by_text_or_alone_are_split_too():
    names = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "u")])
    hit, rest = partial.split(names, matching.parse({"topic": "u", "partition": 3}), no_name)
    assert ([topic.name for topic in hit.topics], [topic.name for topic in rest.topics]) == (["u"], ["t"])


def test_answers_are_merged_topic_by_topic():
    response = produced({"t": [0], "u": [0]})
    partial.merge(response, produced({"u": [1], "w": [0], "t": [1, 2]}, 6), no_name)
    assert told(response) == {"t": {0: 0, 1: 6, 2: 6}, "u": {0: 0, 1: 6}, "w": {0: 6}}


def listed(parts: Parts) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index, offset=5)
                    for index in indexes
                ],
            )
            for name, indexes in parts.items()
        ]
    )


# --- answers --------------------------------------------------------------------------------------------------------


class Committed:
    """A request with faults: what the handler was asked, and what ended."""

    def __init__(self, *rules: str) -> None:
        self.faults = Faults()
        for rule in rules:
            self.faults.add(rule)
        self.ended: list[str] = []
        self.asked: list[Any] = []
        self.committing = Committing(
            self.faults,
            None,
            clock_ms=lambda: 0.0,
            kill=lambda: self.ended.append("kill"),
            restart=lambda: self.ended.append("restart"),
        )

    async def __call__(self, request: Any, key: int = PRODUCE, version: int = 9, *, error: int = 0) -> Any:
        async def handle(_: Any, received: Any) -> Any:
            self.asked.append(received)
            if error:
                raise RequestError(ErrorCode(error))
            if key == PRODUCE:
                return produced(asked_of(received) or {})
            return listed({topic.name: [0, 1] for topic in received.topics})

        shared = ContextParts(Memory(), LogLimit(), AllowEverything())
        self.context = RequestContext(shared, new_connection(), key, version, 1, "app", 0)
        return await self.committing.answer(self.context, request, handle)

    @property
    def delivery(self) -> Delivery | None:
        return self.context.delivery  # type: ignore[return-value]


async def test_where_no_rule_applies_nothing_is_done():
    run = Committed("Fetch -> error=6")
    request = produce(EVERYTHING)
    assert told(await run(request)) == {"t": {0: 0, 1: 0}, "u": {0: 0, 1: 0}, "v": {1: 0}}
    assert run.asked == [request]
    assert run.delivery is None
    with pytest.raises(RequestError):
        await run(request, error=ErrorCode.INVALID_REQUEST)


async def test_an_error_of_some_topics_leaves_the_others_to_be_done():
    run = Committed("Produce topic=t partition=1 -> error=6")
    assert told(await run(produce(EVERYTHING))) == {"t": {0: 0, 1: 6}, "u": {0: 0, 1: 0}, "v": {1: 0}}
    assert [asked_of(request) for request in run.asked] == [{"t": [0], "u": [0, 1], "v": [1]}]
    assert set(told(await run(produce({"t": [1]})))["t"].values()) == {6}
    assert len(run.asked) == 1, "where nothing else is asked for nothing is done"


async def test_of_an_api_that_reads_all_is_done_and_a_part_replaced():
    run = Committed("ListOffsets topic=t partition=1 -> error=6")
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index) for index in (0, 1)
                ],
            )
        ]
    )
    answer = await run(request, LIST_OFFSETS, 5)
    first, second = answer.topics[0].partitions
    assert (first.error_code, first.offset, second.error_code) == (0, 5, 6)
    assert run.asked == [request]


async def test_an_error_at_a_place_stands_there_alone():
    run = Committed("Produce -> error=6 at=responses[name=t].partition_responses[1].error_code")
    assert told(await run(produce({"t": [0, 1], "u": [0, 1]}))) == {"t": {0: 0, 1: 6}, "u": {0: 0, 1: 0}}
    assert len(run.asked) == 1


async def test_a_request_is_done_and_answered_as_if_it_had_failed():
    run = Committed("Produce -> error_after=6")
    assert told(await run(produce({"t": [0]}))) == {"t": {0: 6}}
    assert len(run.asked) == 1
    partly = Committed("Produce topic=t -> error_after=6")
    assert told(await partly(produce({"t": [0], "u": [0]}))) == {"t": {0: 6}, "u": {0: 0}}


async def test_fields_are_set_and_clients_throttled():
    run = Committed("Produce -> set=throttle_time_ms:5", "Produce -> throttle_ms=70")
    answer = await run(produce({"t": [0]}))
    assert answer.throttle_time_ms == 70
    assert run.context.connection.muted_ms == 70


@pytest.mark.parametrize(
    ("do", "is_done", "ended", "end"),
    [
        ("drop=request", False, [], None),
        ("drop=answer", True, [], ""),
        ("close=before", False, [], "close"),
        ("close=after", True, [], "close"),
        ("reset=before", False, [], "reset"),
        ("reset=after", True, [], "reset"),
        ("kill=before", False, ["kill"], "reset"),
        ("kill=after", True, ["kill"], "reset"),
        ("restart=before", False, ["restart"], "reset"),
        ("restart=after", True, ["restart"], "reset"),
    ],
)
async def test_what_ends_ends_before_or_after_the_request_is_done(do, is_done, ended, end):
    run = Committed(f"Produce -> {do}")
    assert await run(produce({"t": [0]})) is None
    assert (len(run.asked), run.ended) == (int(is_done), ended)
    assert (run.delivery.end if run.delivery is not None else None) == end


async def test_an_answer_is_delivered_as_all_rules_say():
    run = Committed(
        "Produce -> delay_ms=100 delay_us_per_byte=5 cut=reset bytes=9",
        "Produce -> twice swap correlation_id=wrong garbage=body",
    )
    await run(produce({"t": [0]}))
    result = run.delivery
    assert (result.delay_s, result.cut, result.cut_bytes, result.end) == (pytest.approx(0.1), "reset", 9, "")
    assert result.seconds_per_byte == pytest.approx(5e-6)
    assert (result.is_twice, result.is_kept, result.has_wrong_id, result.garbage) == (
        True,
        True,
        True,
        "body",
    )
    assert result.chance is not None
    plain = Committed("Produce -> delay_ms=1")
    await plain(produce({"t": [0]}))
    assert plain.delivery == Delivery(delay_s=0.001)


# --- delivery -------------------------------------------------------------------------------------------------------


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send(self, chunks: list[Any]) -> None:
        self.sent.append(b"".join(bytes(chunk) for chunk in chunks))

    def reset(self) -> None:
        self.sent.append(b"RESET")


HEAD = (92).to_bytes(4, "big") + (5).to_bytes(4, "big")
CHUNKS = [HEAD + b"x" * 8, b"y" * 80]
WHOLE = b"".join(CHUNKS)


@pytest.mark.parametrize(
    ("delivery", "sent", "goes_on"),
    [
        (Delivery(), [WHOLE], True),
        (Delivery(is_twice=True), [WHOLE, WHOLE], True),
        (Delivery(end="close"), [], False),
        (Delivery(end="reset"), [b"RESET"], False),
        (Delivery(cut="close"), [WHOLE[:48]], False),
        (Delivery(cut="reset"), [WHOLE[:48], b"RESET"], False),
        (Delivery(cut="close", cut_bytes=0), [], False),
        (Delivery(cut="close", cut_bytes=1), [WHOLE[:1]], False),
        (Delivery(cut="close", cut_bytes=16), [WHOLE[:16]], False),
        (Delivery(cut="close", cut_bytes=17), [WHOLE[:17]], False),
        (Delivery(cut="close", cut_bytes=999), [WHOLE], False),
    ],
    ids=str,
)
async def test_an_answer_is_sent_whole_in_part_twice_or_not(delivery, sent, goes_on):
    transport = Transport()
    assert await deliver(delivery, transport, [*CHUNKS]) is goes_on
    assert transport.sent == sent


def test_an_answer_is_spoiled_in_its_correlation_id_or_its_bytes():
    assert spoiled(CHUNKS, Delivery()) is CHUNKS
    [first, second] = spoiled(CHUNKS, Delivery(has_wrong_id=True))
    assert (first[:4], first[4:8], first[8:], second) == (HEAD[:4], b"\x40\0\0\5", b"x" * 8, CHUNKS[1])
    [first, second] = spoiled(CHUNKS, Delivery(garbage="body", chance=Chance(1)))
    assert (first[:8], len(first), second) == (HEAD, 16, CHUNKS[1])
    assert first[8:] == Chance(1).bytes(8)
    [first, _] = spoiled(CHUNKS, Delivery(garbage="frame", chance=Chance(1)))
    assert (first[:4], first[4:]) == (HEAD[:4], Chance(1).bytes(12))


def test_the_beginning_of_a_file_is_a_smaller_region_of_it():
    region = FileRegion(7, 100, 50, object())
    first, second = beginning([b"ab", region], 12)
    assert first == b"ab"
    assert (second.fd, second.position, len(second), second.owner) == (7, 100, 10, region.owner)
    assert beginning([b"ab", region], 52) == [b"ab", region]
    assert beginning([b"ab", region], 2) == [b"ab"]
    assert beginning([b"ab"], 0) == []


async def test_an_answer_is_kept_back_until_the_next_one():
    run = Committed()
    transport = Transport()

    async def send(connection: int, chunks: list[bytes], *, is_kept: bool) -> bool:
        shared = ContextParts(Memory(), LogLimit(), AllowEverything())
        context = RequestContext(shared, new_connection(connection), PRODUCE, 9, 1, "app", 0)
        context.delivery = Delivery(is_kept=is_kept)
        return await run.committing.send(context, transport, chunks)

    assert await send(1, [b"first"], is_kept=True)
    assert await send(1, [b"second"], is_kept=True)
    assert await send(2, [b"other"], is_kept=False)
    assert transport.sent == [b"other"]
    assert await send(1, [b"third"], is_kept=False)
    assert await send(1, [b"fourth"], is_kept=False)
    assert transport.sent == [b"other", b"third", b"secondfirst", b"fourth"]
    for number in range(10, 10 + KEPT_MAX + 1):
        await send(number, [b"kept"], is_kept=True)
    transport.sent.clear()
    await send(10, [b"x"], is_kept=False)
    await send(11, [b"y"], is_kept=False)
    assert transport.sent == [b"x", b"y", b"kept"], "the oldest was given up"


@pytest.mark.parametrize(
    ("rule", "goes_on", "sent"), [("refuse", False, [b"RESET"]), ("delay_ms=500", True, [])]
)
async def test_a_connection_is_refused_or_served_late(rule, goes_on, sent, autojump_clock):
    run = Committed(f"connect listener=INSIDE -> {rule}")
    assert run.committing.meet("OUTSIDE") is None
    taker = run.committing.meet("INSIDE")
    assert taker is not None
    transport = Transport()
    begun = trio.current_time()
    assert await taker(transport) is goes_on  # type: ignore[arg-type]
    assert transport.sent == sent
    assert trio.current_time() - begun == pytest.approx(0.5 if goes_on else 0)

"""Requests that are answered without waiting, and those that wait: their answers, errors and limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.errors import PeerError
from barnabas.serving import apis
from barnabas.serving.request import Request
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.stages import STAGES
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from barnabas.wire.headers import decode_response
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.request_parts import Transport, answered, frame_of, new_connection, start
from tests.support.request_parts import request_parts_of as make_request_parts

PRODUCE, FETCH, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = (
    0, 1, 8, 11, 12, 14, 68,
)  # fmt: skip
AT_ONCE = (PRODUCE, FETCH, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT)


def commit(partition: int = 0, count: int = 1) -> OffsetCommitRequest:
    entries = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition + number, committed_offset=3
        )
        for number in range(count)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=entries)
    return OffsetCommitRequest(group_id="g", topics=[topic])


def produced(
    *partitions: int, acks: int = 1, records: bytes | None = None, name: str = "t"
) -> ProduceRequest:
    frame = batch(b"v") if records is None else records
    entries = [
        ProduceRequest.PartitionProduceData(index=index, records=memoryview(bytearray(frame)))
        for index in partitions
    ]
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=entries)
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


def fetched(*offsets: tuple[int, int], **changed: Any) -> FetchRequest:
    """A fetch of partitions from offsets, which waits for 10 ms at most."""
    entries = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets
    ]
    fields: dict[str, Any] = {
        "max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1,
        "topics": [FetchRequest.FetchTopic(topic="t", partitions=entries)] if entries else [],
    }  # fmt: skip
    return FetchRequest(**(fields | changed))


def joining(**changed: Any) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    fields: dict[str, Any] = {
        "group_id": "g", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer", "protocols": [protocol],
    }  # fmt: skip
    return JoinGroupRequest(**(fields | changed))


def beat(**changed: Any) -> ConsumerGroupHeartbeatRequest:
    fields: dict[str, Any] = {
        "group_id": "c", "member_id": "m", "rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }  # fmt: skip
    return ConsumerGroupHeartbeatRequest(**(fields | changed))


@pytest.fixture
async def asked(tmp_path: Any) -> AsyncIterator[Any]:
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, "t", partitions=40)
        yield asked


def request_parts_of(asked: Any, **parts: Any) -> RequestParts:
    return make_request_parts(asked.services, asked.broker.memory, **parts)


def version_of(key: int) -> int:
    """Return the last version, of those that have names of topics the last one that has."""
    return {OFFSET_COMMIT: 9, PRODUCE: 12, FETCH: 12}.get(key, apis.BY_KEY[key].max_version)


async def ready(request_parts: RequestParts) -> RequestParts:
    """Have all handlers bound, which their first request does."""
    for key in AT_ONCE:
        name = apis.BY_KEY[key].name
        request = {
            "Produce": produced(), "Fetch": fetched(), "OffsetCommit": commit(),
            "JoinGroup": joining(group_id=""), "Heartbeat": HeartbeatRequest(), "SyncGroup": SyncGroupRequest(),
            "ConsumerGroupHeartbeat": beat(group_id=""),
        }[name]  # fmt: skip
        assert await answered(
            request_parts, new_connection(), Transport(), frame_of(key, version_of(key), request)
        )
    return request_parts


def test_these_handlers_answer_without_waiting_where_they_can() -> None:
    assert {key for key, api in apis.BY_KEY.items() if not iscoroutinefunction(api.handler.handle)} == set(
        AT_ONCE
    )


REQUESTS: dict[str, tuple[int, Callable[[], Any], int]] = {
    "a commit": (OFFSET_COMMIT, commit, ErrorCode.NONE),
    "a commit of nothing": (OFFSET_COMMIT, lambda: OffsetCommitRequest(group_id="g"), ErrorCode.NONE),
    "a commit of a partition that is not there": (
        OFFSET_COMMIT, lambda: commit(99), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "a commit of a member that is not there": (
        OFFSET_COMMIT,
        lambda: OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=4, member_id="m", topics=commit().topics
        ),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a heartbeat in no group": (HEARTBEAT, lambda: HeartbeatRequest(group_id=""), ErrorCode.INVALID_GROUP_ID),
    "a heartbeat of a member that is not there": (
        HEARTBEAT, lambda: HeartbeatRequest(group_id="g", member_id="m"), ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a member that joins in no group": (JOIN_GROUP, lambda: joining(group_id=""), ErrorCode.INVALID_GROUP_ID),
    "a member that needs an id": (JOIN_GROUP, joining, ErrorCode.MEMBER_ID_REQUIRED),
    "a member whose session is too short": (
        JOIN_GROUP, lambda: joining(session_timeout_ms=1), ErrorCode.INVALID_SESSION_TIMEOUT,
    ),
    "a sync of a member that is not there": (
        SYNC_GROUP,
        lambda: SyncGroupRequest(group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "a heartbeat that joins without a timeout": (
        CONSUMER_GROUP_HEARTBEAT, lambda: beat(rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST,
    ),
    "a heartbeat of a group that is not there": (
        CONSUMER_GROUP_HEARTBEAT,
        lambda: beat(member_epoch=3, subscribed_topic_names=None, topic_partitions=None),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "a wrong expression": (
        CONSUMER_GROUP_HEARTBEAT,
        lambda: beat(subscribed_topic_names=None, subscribed_topic_regex="("),
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_request_to_a_coordinator_is_answered_without_waiting(asked: Any, what: str) -> None:
    key, request_of, code = REQUESTS[what]
    request_parts = await ready(request_parts_of(asked))
    version, transport = version_of(key), Transport()
    done = start(request_parts, new_connection(), transport, frame_of(key, version, request_of()))
    if done is not True:
        assert what == "a wrong expression"
        assert await done  # type: ignore[misc]
    answer = decode_response(transport.sent[4:], key, version)[1]
    if code == ErrorCode.MEMBER_ID_REQUIRED:
        assert answer.member_id
    codes = [
        partition.error_code for topic in getattr(answer, "topics", ()) for partition in topic.partitions
    ]
    assert codes in ([code], []) if key == OFFSET_COMMIT else answer.error_code == code


def broken() -> bytes:
    records = batch(b"v")
    records[-1] ^= 1
    return bytes(records)


def transactional() -> bytes:
    return bytes(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))


def of_two_topics() -> ProduceRequest:
    request = produced(0, 1)
    request.topic_data += produced(0, name="not there").topic_data
    return request


PRODUCES: dict[str, tuple[Callable[[], ProduceRequest], list[int], bool]] = {
    "one partition": (lambda: produced(3), [0], True),
    "acks=all": (lambda: produced(3, acks=-1), [0], True),
    "some partitions, one of them twice": (lambda: produced(1, 2, 2, 39), [0] * 3, True),
    "a partition that is not there": (
        lambda: produced(1, 99, 2), [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], True,
    ),
    "two topics": (of_two_topics, [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], True),
    "many partitions": (lambda: produced(*range(40)), [0] * 40, False),
    "records that are broken": (
        lambda: produced(1, 2, records=broken()), [ErrorCode.CORRUPT_MESSAGE] * 2, False,
    ),
    "acks that do not exist": (
        lambda: produced(1, acks=2), [ErrorCode.INVALID_REQUIRED_ACKS], False,
    ),
    "a transaction of nobody": (
        lambda: produced(1, records=transactional()),
        [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED], False,
    ),
}  # fmt: skip


def ends(asked: Any) -> list[int]:
    return [asked.services.replicas.leader("t", index).log.log_end_offset for index in range(40)]


@pytest.mark.parametrize("what", PRODUCES)
async def test_records_are_appended_once(asked: Any, what: str) -> None:
    request_of, codes, is_at_once = PRODUCES[what]
    request_parts = await ready(request_parts_of(asked))
    before, transport = ends(asked), Transport()
    done = start(request_parts, new_connection(), transport, frame_of(PRODUCE, 12, request_of()))
    assert (done is True) is is_at_once
    assert done is True or await done  # type: ignore[misc]
    answer = decode_response(transport.sent[4:], PRODUCE, 12)[1]
    partitions = [response for topic in answer.responses for response in topic.partition_responses]
    assert [partition.error_code for partition in partitions] == codes
    appended = [after - ago for after, ago in zip(ends(asked), before, strict=True)]
    assert sum(appended) == codes.count(0)
    assert all(part.base_offset == before[part.index] for part in partitions if not part.error_code)


FETCHES: dict[str, tuple[Callable[[], FetchRequest], int, list[tuple[int, bool]], bool, bool]] = {
    # a fetch; its version; error code and whether there are records, of each partition; is it handled, and sent, at once
    "of what is there": (lambda: fetched((1, 0)), 12, [(0, True)], True, True),
    "of more than one": (lambda: fetched((1, 0), (2, 0), (3, 0)), 12, [(0, True), (0, True), (0, False)], True, True),
    "of too little": (lambda: fetched((1, 0), min_bytes=1_000), 12, [(0, True)], False, False),
    "of nothing": (lambda: fetched((3, 0)), 12, [(0, False)], False, False),
    "of nothing, without waiting": (lambda: fetched((3, 0), max_wait_ms=0), 12, [(0, False)], True, True),
    "of an offset that is not there": (
        lambda: fetched((1, 99), (3, 0)), 12, [(ErrorCode.OFFSET_OUT_OF_RANGE, False), (0, False)], True, True,
    ),
    "of a partition that is not there": (
        lambda: fetched((99, 0)), 12, [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)], True, True,
    ),
    "of no partition": (fetched, 12, [], True, True),
    "of many partitions": (
        lambda: fetched((1, 0), *[(index, 0) for index in range(3, 40)]),
        12, [(0, True), (0, False), (0, True)] + [(0, False)] * 35, False, False,
    ),
    "of large records": (lambda: fetched((4, 0)), 12, [(0, True)], True, False),
    "of an old client": (lambda: fetched((1, 0)), 3, [(0, True)], False, False),
    "that begins a session": (lambda: fetched((1, 0), (3, 0), session_epoch=0), 12, [(0, True), (0, False)], True, True),
}  # fmt: skip


@pytest.mark.parametrize("what", FETCHES)
async def test_a_fetch_is_answered(asked: Any, what: str) -> None:
    request_of, version, expected, is_at_once, is_sent = FETCHES[what]
    request_parts = await ready(request_parts_of(asked))
    for index, value in [(1, b"v"), (2, b"w"), (4, b"x" * 30_000)]:
        request = frame_of(PRODUCE, 12, produced(index, records=bytes(batch(value))))
        assert await answered(request_parts, new_connection(), Transport(), request)
    transport = Transport()
    done = start(request_parts, new_connection(), transport, frame_of(FETCH, version, request_of()))
    assert (done is True) is (is_at_once and is_sent)
    assert done is True or await done  # type: ignore[misc]
    answer = decode_response(transport.sent[4:], FETCH, version)[1]
    partitions = [partition for topic in answer.responses for partition in topic.partitions]
    assert [(partition.error_code, bool(partition.records)) for partition in partitions] == expected
    assert (answer.session_id != 0) is (what == "that begins a session")


async def test_a_produce_that_wants_no_answer_gets_none(asked: Any) -> None:
    counted: list[tuple[str, int]] = []
    meter = SimpleNamespace(
        answered=lambda name, version, codes, request_bytes, size, seconds: counted.append((name, size)),
        fetched=lambda response: None,
    )
    request_parts, before = await ready(request_parts_of(asked, meter=meter)), ends(asked)
    counted.clear()
    transport = Transport()
    assert (
        start(request_parts, new_connection(), transport, frame_of(PRODUCE, 12, produced(3, acks=0))) is True
    )
    many: Any = start(
        request_parts, new_connection(), transport, frame_of(PRODUCE, 12, produced(*range(40), acks=0))
    )
    assert await many
    after = [end + 1 for end in before]
    after[3] += 1
    assert ends(asked) == after
    refused = frame_of(PRODUCE, 12, produced(99, acks=0))
    assert start(request_parts, new_connection(), transport, refused) is False, (
        "the client is to look for the leader"
    )
    assert transport.now + transport.later == b""
    assert counted == [("Produce", 0)] * 3


async def test_what_the_socket_does_not_take_is_awaited(asked: Any) -> None:
    request_parts = await ready(request_parts_of(asked))
    for room in (0, 3):
        transport = Transport(room)
        rest = start(request_parts, new_connection(), transport, frame_of(OFFSET_COMMIT, 8, commit()))
        assert not isinstance(rest, bool)
        assert len(transport.now) == room
        assert await rest  # type: ignore[misc]
        _, answer = decode_response((transport.now + transport.later)[4:], OFFSET_COMMIT, 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_an_interceptor_is_awaited_and_has_the_request_handled(asked: Any) -> None:
    async def around(context: Any, request: Any, handler: Any) -> Any:
        return await handler(context, request)

    request_parts, transport = await ready(request_parts_of(asked, interceptor=around)), Transport()
    done = start(request_parts, new_connection(), transport, frame_of(OFFSET_COMMIT, 8, commit()))
    assert not isinstance(done, bool)
    assert await done
    assert transport.sent


async def test_requests_are_counted_where_somebody_reads_the_counts(asked: Any) -> None:
    counted: list[tuple[str, int, int]] = []
    meter = SimpleNamespace(
        answered=lambda name, version, codes, request_bytes, size, seconds: counted.append(
            (name, request_bytes, size)
        ),
        fetched=lambda response: None,
    )
    request_parts = await ready(request_parts_of(asked, meter=meter))
    counted.clear()
    frame, sizes = frame_of(OFFSET_COMMIT, 8, commit()), []
    for room in (1 << 20, 3):
        transport = Transport(room)
        rest = start(request_parts, new_connection(), transport, frame)
        assert rest is True or await rest  # type: ignore[misc]
        sizes.append(len(transport.now + transport.later))
    assert counted == [("OffsetCommit", len(frame), size) for size in sizes]


async def test_what_cannot_be_understood_is_refused(asked: Any) -> None:
    request_parts, frame = (
        await ready(request_parts_of(asked)),
        frame_of(HEARTBEAT, 4, HeartbeatRequest(group_id="g")),
    )
    with pytest.raises(PeerError, match="Heartbeat v4"):
        start(request_parts, new_connection(), Transport(), frame[:-1])
    with pytest.raises(PeerError, match="Heartbeat"):
        start(
            request_parts, new_connection(), Transport(), memoryview(bytearray(b"\0\x0c\0\x63" + frame[4:]))
        )
    with pytest.raises(PeerError):
        start(request_parts, new_connection(), Transport(), memoryview(b""))


async def test_a_defect_of_a_handler_is_an_error_of_its_request(
    asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    request_parts, transport = await ready(request_parts_of(asked)), Transport()
    table: Any = request_parts.handlers.made
    table[HEARTBEAT] = broken
    frame = frame_of(HEARTBEAT, 4, HeartbeatRequest(group_id="g"))
    assert start(request_parts, new_connection(), transport, frame) is True
    assert decode_response(transport.now[4:], HEARTBEAT, 4)[1].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "internal error in Heartbeat v4" in caplog.text


@pytest.mark.parametrize("what", ["answered", "awaited", "refused", "not understood", "cancelled"])
async def test_a_connection_keeps_nothing_of_a_request_but_what_it_was(asked: Any, what: str) -> None:
    request_parts, info = await ready(request_parts_of(asked)), new_connection()
    message: Any = {
        "awaited": lambda: produced(*range(40)), "refused": lambda: produced(99),
        "cancelled": lambda: fetched((3, 0), max_wait_ms=60_000),
    }.get(what, lambda: produced(3))()  # fmt: skip
    frame = frame_of(FETCH if what == "cancelled" else PRODUCE, 12, message)
    request = Request(
        STAGES, request_parts, info, Transport(), frame[:-3] if what == "not understood" else frame
    )  # type: ignore[arg-type]
    if what == "not understood":
        with pytest.raises(PeerError):
            request.advance()
    elif what == "cancelled":
        assert request.advance() is not None
        request.cancel()
    else:
        assert await request.finish(request.advance())
    kept: Any = info.request
    assert kept is request
    assert (len(kept.frame), kept.chunks, kept.message, kept.response) == (0, [], None, None)
    assert str(kept).startswith("Fetch v12" if what == "cancelled" else "Produce v12")

"""Exchanges in words: each API's requests and answers as one line, limits of what a line names, and the same as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.tools.inspection.frames import Request, Response
from barnabas.tools.tap import rendering
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.describe_cluster import DescribeClusterResponse
from barnabas.wire.generated.end_txn import EndTxnRequest
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest

AT = 1_700_000_000.25
COMMIT = 8


def exchange(key: int, message: Any = None, answer: Any = None, **more: Any) -> Exchange:
    """An exchange with numbers that all differ; without an answer if there is none."""
    connection = Connection(
        3, "10.0.0.1:1000", "10.0.0.2:9092", 5.0, "of-connection", "lib 1.2", user="User:u"
    )
    request = Request(70, key, "Api", 4, 17, "app", message)
    result = Exchange(connection, 9, request, AT, TopicNames(), **more)
    if answer is not None:
        result.response = Response(80, 17, answer)
        result.answered_at = AT + 0.0123
    return result


def batches(*counts: int, codec: int = Codec.NONE) -> bytes:
    return b"".join(
        encode_batch([Record(n, 0, None, b"v") for n in range(count)], codec=codec) for count in counts
    )


COMPRESSED = batches(1, codec=Codec.LZ4)


def produce(*records: bytes, acks: int = -1, transaction: str | None = None) -> ProduceRequest:
    parts = [ProduceRequest.PartitionProduceData(n, data) for n, data in enumerate(records)]
    return ProduceRequest(
        transaction, acks, 30_000, [ProduceRequest.TopicProduceData("t", partition_data=parts)]
    )


def fetch(*offsets: int, **more: Any) -> FetchRequest:
    parts = [
        FetchRequest.FetchPartition(partition=n, fetch_offset=offset) for n, offset in enumerate(offsets)
    ]
    topics = [FetchRequest.FetchTopic(topic="t", partitions=parts)] if parts else []
    return FetchRequest(max_wait_ms=500, min_bytes=7, topics=topics, **more)


def join(**more: Any) -> JoinGroupRequest:
    return JoinGroupRequest("g", session_timeout_ms=45_000, rebalance_timeout_ms=60_000, **more)


def find(kind: int, *keys: str, key: str = "") -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=list(keys))


def asked_for(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])


def beat(**more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        "g", member_id="m", member_epoch=5, subscribed_topic_names=None, **more
    )


@pytest.mark.parametrize(
    ("key", "message", "words"),
    [
        (0, produce(batches(2)), "t[0] 2 records in 1 batch 77 B acks=all"),
        (0, produce(batches(1), acks=1), "t[0] 1 record in 1 batch 69 B acks=1"),
        (0, produce(batches(1, 2), batches(3), acks=0), "t[0,1] 6 records in 3 batches 231 B acks=0"),
        (0, produce(batches(1), acks=2, transaction="x"), "t[0] 1 record in 1 batch 69 B acks=2 transaction=x"),
        (0, produce(COMPRESSED, batches(1)), f"t[0,1] 2 records in 2 batches {len(COMPRESSED) + 69} B acks=all none+lz4"),
        (1, fetch(40), "t[0] from 40 wait=500ms min=7"),
        (1, fetch(40, 50, session_epoch=-1), "t[0,1] wait=500ms min=7"),
        (1, fetch(session_id=6, session_epoch=-1), "wait=500ms min=7 session=6/-1"),
        (1, fetch(session_epoch=0), "wait=500ms min=7 session=0/0"),
        (3, MetadataRequest(topics=None), "all topics"),
        (3, MetadataRequest(topics=[]), "no topics"),
        (3, asked_for("t"), "t"),
        (3, asked_for("c", "b", "a"), "c b a"),
        (3, asked_for("e", "d", "c", "b", "a"), "e d c and 2 more topics"),
        (COMMIT, OffsetCommitRequest("g"), "group=g"),
        (10, find(0, "g", "h"), "group=g group=h"),
        (10, find(1, "x", "y"), "transaction=x transaction=y"),
        (10, find(1, key="only"), "transaction=only"),
        (10, find(2, "s"), "share=s"),
        (10, find(7, "s"), ""),
        (11, join(), "group=g member=new session=45000ms"),
        (11, join(member_id="m", group_instance_id="i"), "group=g member=m session=45000ms instance=i"),
        (12, HeartbeatRequest("g", 8, "m"), "group=g generation=8 member=m"),
        (14, SyncGroupRequest("g", 8, "m"), "group=g generation=8 member=m"),
        (18, ApiVersionsRequest("lib", "2"), "lib 2"),
        (18, ApiVersionsRequest("lib", ""), "lib"),
        (18, ApiVersionsRequest(), ""),
        (22, InitProducerIdRequest("x"), "transaction=x"),
        (22, InitProducerIdRequest(None), ""),
        (26, EndTxnRequest("x", 1, 2, True), "transaction=x commit"),
        (26, EndTxnRequest("x", 1, 2, False), "transaction=x abort"),
        (68, beat(), "group=g member=m epoch=5"),
    ],
)  # fmt: skip
def test_a_request_is_told_by_what_it_is_about(key: int, message: Any, words: str) -> None:
    assert rendering.describe_request(exchange(key, message)) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "t"), (1, "t[0]"), (6, "t[0,1,2,3,4,5]"), (7, "t[0,1,2,3,4,5,... 7 in all]")]
)
def test_a_topic_is_named_with_its_first_partitions(count: int, words: str) -> None:
    part, topic = (
        OffsetCommitRequest.OffsetCommitRequestPartition,
        OffsetCommitRequest.OffsetCommitRequestTopic,
    )
    parts = [part(number) for number in reversed(range(count))]
    message = OffsetCommitRequest("", topics=[topic("t", partitions=parts)])
    assert rendering.describe_request(exchange(COMMIT, message)) == words


def produced(*results: tuple[int, int], throttle_ms: int = 0) -> ProduceResponse:
    part = ProduceResponse.PartitionProduceResponse
    parts = [part(number, code, offset) for number, (code, offset) in enumerate(results)]
    return ProduceResponse(
        [ProduceResponse.TopicProduceResponse("t", partition_responses=parts)], throttle_ms
    )


def fetched(*sizes: int) -> FetchResponse:
    parts = [FetchResponse.PartitionData(n, records=b"x" * size) for n, size in enumerate(sizes)]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=parts)])


def committed(*codes: int) -> OffsetCommitResponse:
    part, topic = (
        OffsetCommitResponse.OffsetCommitResponsePartition,
        OffsetCommitResponse.OffsetCommitResponseTopic,
    )
    return OffsetCommitResponse(
        topics=[topic("t", partitions=[part(5 + n, code) for n, code in enumerate(codes)])]
    )


def brokers(*ids: int) -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(id_, "h", 9092) for id_ in ids])


def found(*nodes: tuple[int, str, int]) -> FindCoordinatorResponse:
    entry = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(coordinators=[entry("k", *node) for node in nodes])


@pytest.mark.parametrize(
    ("key", "answer", "words"),
    [
        (0, produced((0, 7)), "ok offset 7"),
        (0, produced((0, 7), throttle_ms=30), "ok offset 7 throttled 30 ms"),
        (0, produced((6, -1), (0, 9)), "NOT_LEADER_OR_FOLLOWER (t-0) offset 9"),
        (1, fetched(), "ok empty"),
        (1, fetched(999), "ok 999 B"),
        (1, fetched(600, 400, 0), "ok 1.0 kB of 2 partitions"),
        (3, brokers(1), "ok 1 broker"),
        (3, brokers(), "ok 0 brokers"),
        (3, brokers(1, 2), "ok 2 brokers"),
        (60, DescribeClusterResponse(), "ok 0 brokers"),
        (COMMIT, committed(0, 0), "ok"),
        (COMMIT, committed(0, 3), "UNKNOWN_TOPIC_OR_PARTITION (t-6)"),
        (COMMIT, committed(3, 3), "UNKNOWN_TOPIC_OR_PARTITION (t-5, ...)"),
        (COMMIT, committed(3, 16, 16), "NOT_COORDINATOR (t-6, ...), UNKNOWN_TOPIC_OR_PARTITION (t-5)"),
        (COMMIT, committed(1, 2, 3, 3, 6),
         "UNKNOWN_TOPIC_OR_PARTITION (t-7, ...), OFFSET_OUT_OF_RANGE (t-5), CORRUPT_MESSAGE (t-6)"),
        (10, found((4, "h", 9093)), "ok node 4 at h:9093"),
        (10, found((4, "h", 9093), (-1, "", -1)), "ok node 4 at h:9093"),
        (10, found(*((n, "h", 1) for n in range(4))), "ok node 0 at h:1 node 1 at h:1 node 2 at h:1"),
        (10, FindCoordinatorResponse(node_id=2, host="b", port=5), "ok node 2 at b:5"),
        (11, JoinGroupResponse(generation_id=3, leader="m", member_id="m"), "ok generation=3 member=m leads"),
        (11, JoinGroupResponse(generation_id=3, leader="l", member_id="m"), "ok generation=3 member=m"),
        (11, JoinGroupResponse(error_code=79, member_id="m"), "MEMBER_ID_REQUIRED (m)"),
        (12, HeartbeatResponse(error_code=27), "REBALANCE_IN_PROGRESS"),
        (22, InitProducerIdResponse(producer_id=6, producer_epoch=2), "ok producer=6 epoch=2"),
        (22, InitProducerIdResponse(error_code=51, producer_id=6), "CONCURRENT_TRANSACTIONS"),
    ],
)  # fmt: skip
def test_an_answer_is_told_by_what_came_of_it(key: int, answer: Any, words: str) -> None:
    assert rendering.describe_answer(exchange(key, HeartbeatRequest("g"), answer)) == words


def test_login_shows_tokens_and_missing_response_its_reason() -> None:
    token = {"mechanism": "PLAIN", "bytes": 14, "user": "ann", "extensions": {"a": "b"}, "iterations": 5}
    entry = exchange(36, None, token=token)
    assert rendering.describe_request(entry) == "mechanism=PLAIN user=ann iterations=5"
    entry.unanswered = "the broker closed"
    assert rendering.describe_answer(entry) == "no answer (the broker closed)"
    bare = exchange(-1, None, object(), is_bare_token=True, answer_token={"mechanism": "X", "bytes": 3})
    assert rendering.describe_answer(bare) == "mechanism=X"
    bare.answer_token = None
    assert rendering.describe_answer(bare) == ""


def test_line_has_time_client_api_request_response_and_latency(set_environment: Callable[..., None]) -> None:
    set_environment(TZ="UTC")
    time.tzset()
    entry = exchange(12, HeartbeatRequest("g", 8, "m"), HeartbeatResponse())
    assert rendering.line(entry) == "22:13:20.250 #3.9 app Api v4 group=g generation=8 member=m -> ok 12.3 ms"
    entry.request.client_id, entry.request.version = None, -1
    assert rendering.line(entry).startswith("22:13:20.250 #3.9 of-connection Api group=g")
    entry.connection.client_id = None
    entry.request.version = 0
    assert rendering.line(entry).startswith("22:13:20.250 #3.9 10.0.0.1:1000 Api v0 group=g")
    silent = exchange(18, ApiVersionsRequest(), unanswered="acks=0")
    assert rendering.line(silent) == "22:13:20.250 #3.9 app Api v4 -> no answer (acks=0)"
    connection = entry.connection
    assert rendering.opened(connection, AT) == "22:13:20.250 #3 10.0.0.1:1000 connects to 10.0.0.2:9092"
    connection.tls = "TLS to the client"
    assert rendering.opened(connection, AT).endswith(" connects to 10.0.0.2:9092 (TLS to the client)")
    assert rendering.closed(connection, AT, "why") == "22:13:20.250 #3 10.0.0.1:1000 closed: why"
    connection.client_id = "app"
    assert rendering.closed(connection, AT, "why") == "22:13:20.250 #3 app closed: why"
    assert rendering.noted(connection, AT, "odd", b"") == "22:13:20.250 #3 app ! odd"
    data = bytes(range(33))
    assert rendering.noted(connection, AT, "odd", data) == f"22:13:20.250 #3 app ! odd: {data[:32].hex(' ')}"


def test_a_long_text_is_cut_and_control_characters_are_escaped() -> None:
    assert rendering.safe("x" * 1000) == "x" * 1000
    assert rendering.safe("x" * 1001) == "x" * 1000 + "..."
    assert rendering.safe("abc", 3) == "abc"
    assert rendering.safe("abcd", 3) == "abc..."
    assert rendering.safe("a\x1bä\n") == "a\\x1bä\\n"


# --- JSON ---------------------------------------------------------------------------------------------------------


def test_an_exchange_as_json_has_everything_that_is_known() -> None:
    entry = exchange(COMMIT, OffsetCommitRequest("g"), committed(0, 16))
    shown = rendering.exchange_as_json(entry)
    assert (shown.pop("request")["group_id"], shown.pop("response")["topics"][0]["name"]) == ("g", "t")
    assert shown == {
        "type": "exchange", "at": "2023-11-14T22:13:20.250000Z", "connection": 3, "number": 9,
        "client": "10.0.0.1:1000", "broker": "10.0.0.2:9092", "client_id": "app", "user": "User:u", "api": "Api",
        "api_key": 8, "version": 4, "correlation_id": 17, "request_bytes": 70, "latency_ms": 12.3, "response_bytes": 80,
        "errors": [{"code": 16, "name": "NOT_COORDINATOR", "path": "topics[0].partitions[1].error_code", "about": "t-6"}],
    }  # fmt: skip


def test_json_has_problems_tokens_and_topics_if_any() -> None:
    entry = exchange(3, asked_for("t"), unanswered="why")
    shown = rendering.exchange_as_json(entry)
    assert shown["topics"] == {"t": []}
    assert (shown["unanswered"], shown["latency_ms"], "response" in shown) == ("why", None, False)
    assert not {"request_problem", "request_hex", "sasl", "sasl_answer"} & shown.keys()
    odd = exchange(
        3, None, object(), request_bytes=b"\1", response_bytes=b"\2", token={"a": 1}, answer_token={"b": 2}
    )
    assert odd.response is not None
    odd.response.message, odd.response.problem, odd.request.problem = None, "no answer", "no request"
    shown = rendering.exchange_as_json(odd)
    assert (shown["request"], shown["request_problem"], shown["request_hex"]) == (None, "no request", "01")
    assert (shown["response"], shown["response_problem"], shown["response_hex"]) == (None, "no answer", "02")
    assert (shown["sasl"], shown["sasl_answer"]) == ({"a": 1}, {"b": 2})
    assert "topics" not in shown


def test_an_event_of_a_connection_says_whose_it_is() -> None:
    connection = exchange(3).connection
    assert rendering.connection_as_json("noted", connection, AT, text="odd") == {
        "type": "noted", "at": "2023-11-14T22:13:20.250000Z", "connection": 3, "client": "10.0.0.1:1000",
        "broker": "10.0.0.2:9092", "client_id": "of-connection", "software": "lib 1.2", "text": "odd",
    }  # fmt: skip
    connection.software = ""
    assert rendering.connection_as_json("closed", connection, AT)["software"] is None

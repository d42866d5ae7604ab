"""A recorder keeps requests without records and secrets, and shows the last of them."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from barnabas.errors import RequestError
from barnabas.serving.context import RequestContext
from barnabas.tools.control.recorder import KEPT_ENTRIES_MAX, Filter, Recorded, Recorder
from barnabas.wire import registry
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def context_of(api: str) -> RequestContext:
    connection = SimpleNamespace(connection_id=7, principal="User:alice")
    result = SimpleNamespace(
        now_ms=5, connection=connection, client_id="app", api_key=registry.key_of(api), api_version=3, correlation_id=9,
    )  # fmt: skip
    return cast("RequestContext", result)


async def record(recorder: Recorder, api: str, request: Any, response: Any) -> Recorded:
    async def handler(_context: RequestContext, _request: Any) -> Any:
        if isinstance(response, Exception):
            raise response
        return response

    try:
        answer = await recorder.around(None)(context_of(api), request, handler)
        assert answer is response
    except RequestError:
        pass
    return recorder.find()[-1]


def produce(records: bytes) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=2, records=memoryview(records))
    return ProduceRequest(
        acks=-1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )


async def test_records_are_counted_and_only_the_request_has_them() -> None:
    request = produce(b"abc")
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    kept = weakref.ref(records)
    answer = ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t")])
    result = await record(Recorder(), "Produce", request, answer)
    assert result.request["topic_data"][0]["partition_data"] == [{"index": 2, "records": {"bytes": 3}}]
    assert (
        request.topic_data[0].partition_data[0].records is records
    )  # whoever stands around the recorder has them
    del request, records
    assert kept() is None
    assert (result.api, result.topics, result.error_codes) == ("Produce", {"t"}, ())
    assert result.as_json()["principal"] == "User:alice"


async def test_response_is_sent_with_records_and_kept_without() -> None:
    data = FetchResponse.PartitionData(partition_index=1, records=memoryview(b"abcd"), high_watermark=4)
    answer = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])
    result = await record(Recorder(), "Fetch", FetchRequest(), answer)
    assert data.records == b"abcd"
    assert result.response is not None
    (partition,) = result.response["responses"][0]["partitions"]
    assert (partition["records"], partition["high_watermark"]) == ({"bytes": 4}, 4)


async def test_errors_are_found_wherever_they_stand() -> None:
    partition = OffsetCommitResponse.OffsetCommitResponsePartition(error_code=22)
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[partition])
    recorder = Recorder()
    result = await record(
        recorder, "OffsetCommit", OffsetCommitRequest(group_id="g"), OffsetCommitResponse(topics=[topic])
    )
    assert result.error_codes == (22,)
    refused = await record(recorder, "OffsetCommit", OffsetCommitRequest(group_id="h"), RequestError(25))
    assert (refused.error_codes, refused.response) == ((25,), None)
    assert recorder.find(Filter(group="g", error_code=22)) == [result]
    assert recorder.find(Filter(api="offsetcommit", since=1)) == [refused]


async def test_what_is_large_is_cut_at_once() -> None:
    topics = [MetadataResponse.MetadataResponseTopic(name=f"t{n}") for n in range(2000)]
    result = await record(
        Recorder(), "Metadata", MetadataRequest(topics=None), MetadataResponse(topics=topics)
    )
    topics.clear()
    assert result.response is not None
    assert KEPT_ENTRIES_MAX < len(result.response["topics"]) <= 1001


async def test_secrets_are_masked_at_once() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder land")
    result = await record(Recorder(), "SaslAuthenticate", request, SaslAuthenticateResponse())
    assert result._request == result.request
    assert "wonder" not in repr(result.request)


async def test_who_waits_hears_of_a_request_when_it_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    recorder = Recorder()
    heard: list[Recorded | None] = []

    async def wait(**how: Any) -> None:
        heard.append(await recorder.wait(Filter(api="Metadata"), timeout_s=30, **how))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await record(recorder, "Fetch", FetchRequest(), FetchResponse())
        last = await record(recorder, "Metadata", MetadataRequest(), MetadataResponse())
    assert heard == [last]


async def test_the_last_so_many_are_kept() -> None:
    recorder = Recorder(2)
    for _ in range(3):
        await record(recorder, "Fetch", FetchRequest(), FetchResponse())
    assert [entry.id for entry in recorder.find()] == [2, 3]
    assert recorder.last_id == 3
    assert [entry.id for entry in recorder.find(limit=1)] == [3]
    recorder.clear()
    assert recorder.find() == []


async def test_a_recorded_request_as_json_has_each_of_its_fields() -> None:
    context = context_of("Metadata")
    context.now_ms, context.api_version = 11, 12  # type: ignore[misc]

    async def handler(_context: RequestContext, _request: Any) -> Any:
        return None

    recorder = Recorder()
    await recorder.around(None)(context, MetadataRequest(topics=None), handler)
    shown = recorder.find()[0].as_json()
    assert shown.pop("request")["topics"] is None
    assert shown == {
        "id": 1, "at_ms": 11, "connection": 7, "client_id": "app", "principal": "User:alice", "api": "Metadata",
        "version": 12, "correlation_id": 9, "answered": True, "response": None, "error_codes": [],
    }  # fmt: skip


async def test_recorder_wakes_waiters_before_the_response() -> None:
    recorder = Recorder()
    may_answer = trio.Event()

    async def inner(_context: RequestContext, _request: Any, _handler: Any) -> Any:
        await may_answer.wait()
        return MetadataResponse()

    async def handler(_context: RequestContext, _request: Any) -> Any:
        raise AssertionError

    heard: list[str] = []

    async def wait(name: str, **how: Any) -> None:
        result = await recorder.wait(Filter(), timeout_s=30, **how)
        assert result is not None
        heard.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recorder.around(inner), context_of("Metadata"), MetadataRequest(), handler)
        nursery.start_soon(wait, "answered")
        await trio.testing.wait_all_tasks_blocked()
        assert not recorder.find()[0].is_answered
        await wait("asked", is_answered=False)
        assert (
            await recorder.wait(Filter(), lambda row: row.id == 2, timeout_s=0.0, is_answered=False) is None
        )
        may_answer.set()
    assert heard == ["asked", "answered"]

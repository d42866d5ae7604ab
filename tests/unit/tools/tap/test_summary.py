"""The summary calls only unusual things of a client unusual."""

from __future__ import annotations

from typing import Any

from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.tools.tap.exchange import Connection
from barnabas.tools.tap.findings import findings
from barnabas.tools.tap.session import Session
from barnabas.tools.tap.summary import Summary
from barnabas.tools.tap.summary_rendering import as_json, as_text
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from tests.unit.tools.tap.test_session import metadata, request, response, session_of

PART = ProduceRequest.PartitionProduceData
TOPIC = ProduceRequest.TopicProduceData


class Watched:
    """A summary of one client, with requests that take no time."""

    def __init__(self) -> None:
        self.summary = Summary()
        self.at = 1000.0
        self.correlation_id = 0
        self.session = self.connect()

    def connect(self, number: int = 1) -> Session:
        session = session_of(self.summary)  # type: ignore[arg-type]
        session.connection = Connection(number, "127.0.0.1:1000", "127.0.0.1:9092", self.at)
        self.summary.opened(session.connection, self.at)
        return session

    def ask(self, key: int, version: int, message: Any, answer: Any) -> None:
        self.correlation_id += 1
        self.session.from_client(request(key, version, self.correlation_id, message), self.at)
        if answer is not None:
            self.session.from_broker(response(key, version, self.correlation_id, answer), self.at)

    def found(self) -> set[str]:
        (client,) = self.summary.clients()
        as_text(self.summary)
        as_json(self.summary)
        return {finding.name for finding in findings(client)}


def produce(data: bytes, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(acks=acks, topic_data=[TOPIC("t", partition_data=[PART(0, data)])])


def fetched(data: bytes) -> FetchResponse:
    part = FetchResponse.PartitionData(records=data)
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])


def batch(count: int, sequence: int = 0, codec: int = Codec.LZ4, size: int = 10) -> bytes:
    records = [Record(n, 0, None, b"x" * size) for n in range(count)]
    return encode_batch(records, codec=codec, producer_id=1, producer_epoch=0, base_sequence=sequence)


def test_a_client_that_does_as_it_should_is_not_unusual() -> None:
    watched = Watched()
    from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse

    watched.ask(18, 3, ApiVersionsRequest("lib", "1"), ApiVersionsResponse())
    for number in range(200):
        watched.at += 0.5
        watched.ask(0, 9, produce(batch(10, number * 10)), ProduceResponse())
        watched.ask(1, 12, FetchRequest(), fetched(b"x" * 5000))
    assert watched.found() == set()


def test_producers() -> None:
    watched = Watched()
    for number in range(150):
        watched.ask(0, 9, produce(batch(1, number, Codec.NONE, 10_000)), ProduceResponse())
    for _ in range(10):
        watched.ask(0, 9, produce(batch(1, 149)), ProduceResponse())
    watched.ask(0, 2, produce(batch(1), acks=0), None)
    names = {
        "batches of one record",
        "no compression",
        "retries",
        "acks=0",
        "old Produce version",
        "no ApiVersions",
    }
    assert watched.found() == names


def test_consumers() -> None:
    watched = Watched()
    for _ in range(2000):
        watched.ask(1, 12, FetchRequest(), fetched(b""))
    for _ in range(150):
        watched.ask(1, 12, FetchRequest(), fetched(b"x" * 100))
    for _ in range(200):
        watched.ask(8, 8, OffsetCommitRequest(group_id="g"), OffsetCommitResponse())
    assert watched.found() == {"empty polls", "tiny fetches", "many commits", "no ApiVersions"}


def test_connections_and_answers() -> None:
    watched = Watched()
    for number in range(2, 40):
        watched.session = watched.connect(number)
        watched.ask(3, 1, MetadataRequest(), metadata())
    failed = OffsetCommitResponse.OffsetCommitResponsePartition(0, 16)
    answer = OffsetCommitResponse(
        topics=[OffsetCommitResponse.OffsetCommitResponseTopic("t", partitions=[failed])]
    )
    for _ in range(12):
        watched.ask(8, 7, OffsetCommitRequest(group_id="g"), answer)
    watched.ask(8, 7, OffsetCommitRequest(group_id="g"), None)
    watched.session.close(watched.at, "the broker closed")
    names = {"connection churn", "metadata storm", "error answers", "requests without an answer"}
    assert watched.found() == names
    assert "NOT_COORDINATOR to OffsetCommit 12" in "\n".join(as_text(watched.summary))


def test_a_fetch_that_a_client_leaves_is_not_unusual() -> None:
    watched = Watched()
    watched.ask(1, 12, FetchRequest(), None)
    watched.session.close(watched.at, "the client closed")
    assert watched.found() == set()

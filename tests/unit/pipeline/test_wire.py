"""The pipeline's wire reader reads from a scripted cluster; with real ones: tests/pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from barnabas.client import blocking
from barnabas.log.format.properties import encode_uuid
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas_pipeline.errors import DataLossError, IncompleteError, UsageError
from barnabas_pipeline.log.model import LogOptions, OffsetRange, RawBatch
from barnabas_pipeline.log.transports import Logs
from barnabas_pipeline.log.wire import WireLog
from tests.support.scripted_broker import BOOTSTRAP, TOPIC_ID, VERSIONS, ScriptedCluster

WANTED = OffsetRange(0, 0, 3)
BATCH = bytes(encode_batch([Record(n, 1, None, b"v") for n in range(3)]))
OUT_OF_RANGE, NOT_LEADER, UNKNOWN_TOPIC_ID, CORRUPT_REQUEST = 1, 6, 100, 42


class Cluster(ScriptedCluster):
    """A cluster with one topic `t` of one partition, that holds BATCH at `log_start`."""

    def __init__(self) -> None:
        super().__init__()
        self.log_start = 0
        self.codes: list[int] = []
        """The error codes of the next fetches; then they succeed."""
        self.fetched: list[FetchRequest] = []
        self.versions = {**VERSIONS, 2: (1, 7)}
        self.answer = self.respond

    def respond(self, host: str, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            self.fetched.append(request)
            part = FetchResponse.PartitionData(high_watermark=3, last_stable_offset=3, records=BATCH)
            if self.codes:
                part.error_code, part.records = self.codes.pop(0), None
            return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])
        assert isinstance(request, ListOffsetsRequest)
        timestamp = request.topics[0].partitions[0].timestamp
        offset = self.log_start if timestamp == -2 else max(3, self.log_start)
        row = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse("t", [row])])


OpenWire = Callable[..., WireLog]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def open_wire(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenWire]:
    monkeypatch.setattr(blocking, "open_client", partial(blocking.open_client, dial=cluster.dial))
    opened: list[WireLog] = []

    def opening(**settings: str) -> WireLog:
        client = tuple((name.replace("_", "."), value) for name, value in settings.items())
        opened.append(WireLog(LogOptions("t", bootstrap=str(BOOTSTRAP), client=client)))
        return opened[-1]

    yield opening
    for log in opened:
        log.close()


def read(log: WireLog, span: OffsetRange = WANTED) -> list[bytes]:
    batches = []
    for item in log.read(span):
        assert isinstance(item, RawBatch)
        batches.append(bytes(item.data))
    return batches


def test_a_range_is_read_from_the_leader(cluster: Cluster, open_wire: OpenWire) -> None:
    log = open_wire()
    assert log.identity().cluster_id == "c"
    assert log.bounds()[0][:4] == (0, 3, 3, 5)
    assert read(log) == [BATCH]
    assert [request.isolation_level for request in cluster.fetched] == [1]
    assert {host for host, api in cluster.asked if api != "Metadata"} == {"one"}


def test_range_is_read_from_the_batch_before_it(cluster: Cluster, open_wire: OpenWire) -> None:
    def offsets() -> list[int]:
        return [request.topics[0].partitions[0].fetch_offset for request in cluster.fetched]

    assert read(open_wire(), OffsetRange(0, 2, 3)) == [BATCH]
    assert offsets() == [1]
    cluster.fetched.clear()
    cluster.log_start, cluster.codes = 2, [OUT_OF_RANGE]
    assert read(open_wire(), OffsetRange(0, 2, 3)) == [BATCH]
    assert offsets() == [1, 2]


def test_errors_that_pass_are_asked_again_with_new_metadata(cluster: Cluster, open_wire: OpenWire) -> None:
    cluster.codes = [NOT_LEADER, UNKNOWN_TOPIC_ID]  # the second: a broker that has not heard of the topic yet
    assert read(open_wire()) == [BATCH]
    assert len(cluster.fetched) == 3


def test_other_errors_end_the_job(cluster: Cluster, open_wire: OpenWire) -> None:
    cluster.codes = [CORRUPT_REQUEST]
    with pytest.raises(IncompleteError, match="fetching t-0 at 0: INVALID_REQUEST"):
        read(open_wire())
    assert len(cluster.fetched) == 1


@pytest.mark.parametrize("now", [None, b"another-topic-id"])
def test_recreated_topic_is_not_the_planned_one(
    cluster: Cluster, open_wire: OpenWire, now: bytes | None
) -> None:
    log = open_wire()
    log.identity()
    cluster.topic_ids["t"], cluster.codes = now, [UNKNOWN_TOPIC_ID]
    with pytest.raises(DataLossError, match="not there any more") as caught:
        read(log)
    assert caught.value.missing == [(0, 0, 3)]


def test_recreated_topic_is_noticed_without_topic_ids(cluster: Cluster, open_wire: OpenWire) -> None:
    cluster.versions = {**cluster.versions, 1: (4, 12)}
    log = open_wire()
    log.identity()
    cluster.topic_ids["t"], cluster.codes = b"another-topic-id", [NOT_LEADER]
    with pytest.raises(DataLossError, match="not there any more"):
        read(log)
    assert [request.topics[0].topic for request in cluster.fetched] == ["t"]


def test_worker_reads_the_planned_incarnation_only(cluster: Cluster, open_wire: OpenWire) -> None:
    open_wire()  # dials the scripted cluster
    options = LogOptions("t", bootstrap=str(BOOTSTRAP))
    with Logs() as logs:
        logs.expect([options, replace(options, topic="u"), replace(options, topic="v")])
        assert read(logs.open(options, encode_uuid(TOPIC_ID))) == [BATCH]
        assert read(logs.open(replace(options, topic="v"), encode_uuid(TOPIC_ID))) == [BATCH]
        assert [api for _, api in cluster.asked].count("Metadata") == 1, "one for all topics"
        with pytest.raises(DataLossError, match="not there any more") as caught:
            read(logs.open(replace(options, topic="u"), encode_uuid(b"another-topic-id")))
    assert caught.value.missing == [(0, 0, 3)]
    assert len(cluster.fetched) == 2


def test_what_retention_has_taken_is_named(cluster: Cluster, open_wire: OpenWire) -> None:
    cluster.log_start, cluster.codes = 2, [OUT_OF_RANGE]
    with pytest.raises(DataLossError, match="retention") as caught:
        read(open_wire())
    assert caught.value.missing == [(0, 0, 2)]


def test_a_topic_that_is_not_there_is_a_usage_error_at_once(cluster: Cluster, open_wire: OpenWire) -> None:
    cluster.topic_ids["t"] = None
    with pytest.raises(UsageError, match="no topic 't'"):
        open_wire().bounds()
    assert cluster.asked == [("bootstrap", "Metadata")]


def test_settings_that_are_wrong_are_a_usage_error(open_wire: OpenWire) -> None:
    with pytest.raises(UsageError, match=r"security\.protocol"):
        open_wire(security_protocol="TLS")


def test_a_log_that_nobody_has_any_more_ends_its_thread(open_wire: OpenWire) -> None:
    log = WireLog(LogOptions("t", bootstrap=str(BOOTSTRAP)))
    assert log._client is None, "it has asked for nothing"
    log.identity()
    thread = log._client._thread
    del log
    thread.join(10)  # where others keep the machine busy it ends a moment later
    assert not thread.is_alive()

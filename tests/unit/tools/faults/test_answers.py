"""Places in answers, what messages name, and batches that are damaged."""

from __future__ import annotations

import pytest

from barnabas.records.crc import crc32c
from barnabas.tools.faults import batches, naming, paths
from barnabas.tools.faults.chance import Chance
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse


def produced(*names: str) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=name,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=index) for index in (0, 1)
                ],
            )
            for name in names
        ]
    )


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("responses[name=t].partition_responses[*].error_code", {("t", 0), ("t", 1)}),
        ("responses[*].partitionResponses[index=1].errorCode", {("s", 1), ("t", 1)}),
        ("responses.partition_responses[0].error_code", {("s", 0), ("t", 0)}),
        ("responses[1].partition_responses.error_code", {("t", 0), ("t", 1)}),
        ("responses[name=none].partition_responses[*].error_code", set()),
    ],
)
def test_a_path_names_places(path: str, places: set[tuple[str, int]]) -> None:
    response = produced("s", "t")
    parsed = paths.parse(path)
    paths.check(parsed, ProduceResponse)
    assert parsed.put(response, 6) == len(places)
    result = {
        (topic.name, partition_response.index)
        for topic in response.responses
        for partition_response in topic.partition_responses
        if partition_response.error_code
    }
    assert result == places


def test_what_requests_name_is_found_whatever_the_api() -> None:
    def name_of(topic_id: bytes) -> str | None:
        return "by-id" if topic_id == b"i" * 16 else None

    produce = ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t", partition_data=[ProduceRequest.PartitionProduceData(index=3)]
            )
        ]
    )
    assert list(naming.topic_partitions(produce, name_of)) == [("t", 3)]
    fetch = FetchRequest(
        topics=[
            FetchRequest.FetchTopic(topic_id=b"i" * 16, partitions=[FetchRequest.FetchPartition(partition=2)])
        ]
    )
    assert list(naming.topic_partitions(fetch, name_of)) == [("by-id", 2)]
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="m")])
    assert list(naming.topic_partitions(metadata, name_of)) == [("m", None)]
    assert list(naming.groups(FindCoordinatorRequest(key="g"))) == ["g"]
    assert list(naming.groups(FindCoordinatorRequest(key="transaction", key_type=1))) == []
    several = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g1")])
    assert list(naming.groups(several)) == ["g1"]


def batch() -> bytes:
    """A batch of one record: key null, value `abc`."""
    record = bytes((0, 0, 0, 1, 6)) + b"abc" + bytes(1)
    records = bytes((2 * len(record),)) + record
    body = (
        bytes(2)
        + bytes(4)
        + bytes(16)
        + (-1).to_bytes(8, "big", signed=True)
        + b"\xff\xff"
        + b"\xff\xff\xff\xff"
    )
    body += (1).to_bytes(4, "big") + records
    head = (
        bytes(8)
        + (len(body) + 9).to_bytes(4, "big")
        + bytes(4)
        + bytes((2,))
        + crc32c(body).to_bytes(4, "big")
    )
    return head + body


@pytest.mark.parametrize("how", batches.DAMAGES)
def test_damage_is_what_it_is_called(how: str) -> None:
    whole = batch()
    damaged = batches.damaged(whole, how, Chance(1))
    assert damaged != whole
    assert damaged == batches.damaged(whole, how, Chance(1))
    is_signed = crc32c(damaged[21:]) == int.from_bytes(damaged[17:21], "big")
    assert is_signed is (how not in ("crc", "byte", "truncate"))
    counts = {"count": 2, "count-negative": -1, "count-huge": 2**31 - 1}
    assert int.from_bytes(damaged[57:61], "big", signed=True) == counts.get(how, 1) or how == "truncate"
    if how == "truncate":
        assert whole.startswith(damaged)


def test_empty_records_stay_empty() -> None:
    assert batches.damaged(b"", "crc", Chance(1)) == b""

"""Batches that are damaged, places in answers and names in messages, at the edges."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.crc import crc32c
from barnabas.records.record import Record
from barnabas.tools.faults import batches, naming, paths
from barnabas.tools.faults.chance import Chance
from barnabas.tools.faults.errors import FaultError
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

# --- batches --------------------------------------------------------------------------------------------------------

SIMPLE = bytes(encode_batch([Record(n, 1, None, b"v" * 40) for n in range(3)]))
SECOND = bytes(encode_batch([Record(n, 1, None, b"w" * 40) for n in range(3, 6)], base_offset=3))


def changed(how: str, data: bytes = SIMPLE + SECOND) -> set[int]:
    damaged = batches.damaged(data, how, Chance(5))
    assert len(damaged) == len(data)
    return {at for at in range(len(data)) if damaged[at] != data[at]}


def test_only_the_named_part_of_the_first_batch_is_damaged():
    end = len(SIMPLE)
    checksum = set(range(17, 21))
    assert len(changed("crc")) == 1
    assert changed("crc") < checksum
    assert changed("magic") == {16}
    assert changed("length") <= set(range(8, 12))
    assert changed("byte") == {(61 + end) // 2}
    for how, part in (
        ("count", range(57, 61)), ("count-negative", range(57, 61)), ("count-huge", range(57, 61)),
        ("compression", range(21, 23)), ("payload", range(61, end)),
    ):  # fmt: skip
        result = changed(how) - checksum
        assert result, how
        assert result <= set(part), how
        damaged = batches.damaged(SIMPLE + SECOND, how, Chance(5))
        assert int.from_bytes(damaged[17:21], "big") == crc32c(damaged[21:end]), how
    assert batches.damaged(SIMPLE + SECOND, "truncate", Chance(5)) == SIMPLE[: end // 2]


@pytest.mark.parametrize(("codec", "told"), [(0, 1), (1, 2), (2, 1), (4, 1)])
def test_another_compression_than_the_one_that_is_used_is_named(codec, told):
    data = bytearray(SIMPLE)
    data[22] = 0x10 | codec
    assert batches.damaged(bytes(data), "compression", Chance(5))[22] == 0x10 | told


@pytest.mark.parametrize(("how", "at"), [("crc", 12), ("count", 12), ("payload", 17), ("byte", 17)])
def test_older_messages_are_damaged_in_or_after_checksum(how, at):
    message = bytes(8) + (30).to_bytes(4, "big") + bytes(4) + bytes(26)
    assert changed(how, message) == {at}


# --- places and names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("error_code.x", "has no fields of its own"),
        ("topics.name", None),
        ("topics[color=red].name", "have no field color"),
        ("topics.partitions[leaderId=1].errorCode", None),
        ("topics.color", "has no field color"),
        ("nothing", "has no field nothing"),
    ],
)
def test_paths_are_held_to_the_layout(path, why):
    parsed = paths.parse(path)
    if why is None:
        assert paths.check(parsed, MetadataResponse).name == parsed.segments[-1].name
    else:
        with pytest.raises(FaultError, match=why):
            paths.check(parsed, MetadataResponse)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("throttle_time_ms", 5, 5),
        ("throttle_time_ms", True, None),
        ("throttle_time_ms", "5", None),
        ("responses.topic", "x", "x"),
        ("responses.topic", 5, None),
        ("error_code", "NONE", 0),
        ("error_code", "nonsense", None),
        ("error_code", 6, 6),
    ],
    ids=str,
)
def test_values_are_held_to_their_fields(path, value, expected):
    field = paths.check(paths.parse(path), FetchResponse)
    if expected is None:
        with pytest.raises(FaultError):
            paths.value_for(field, value)
    else:
        assert paths.value_for(field, value) == expected


def test_groups_and_topics_are_found_in_each_form():
    def name_of(_: bytes) -> str | None:
        return None

    assert list(naming.groups(JoinGroupRequest(group_id="g"))) == ["g"]
    assert list(naming.groups(JoinGroupRequest(group_id=""))) == []
    assert list(naming.groups(DeleteGroupsRequest(groups_names=["a", "b"]))) == ["a", "b"]
    assert list(naming.groups(FindCoordinatorRequest(key="", key_type=0, coordinator_keys=["a", "b"]))) == [
        "a",
        "b",
    ]
    assert list(naming.groups(FindCoordinatorRequest(key="", key_type=1, coordinator_keys=["a"]))) == []
    names = DeleteTopicsRequest(topic_names=["a", "b"])
    assert list(naming.topic_partitions(names, name_of)) == [("a", None), ("b", None)]
    answer = ProduceResponse.TopicProduceResponse(
        name="t", partition_responses=[ProduceResponse.PartitionProduceResponse(index=n) for n in (4, 2)]
    )
    both = list(naming.topic_partitions(ProduceResponse(responses=[answer, answer]), name_of))
    assert both == [("t", 4), ("t", 2)] * 2
    by_id = ProduceRequest.TopicProduceData(topic_id=b"i" * 16)
    assert list(naming.topic_partitions(ProduceRequest(topic_data=[by_id]), name_of)) == []
    assert naming.partition_of(3) == 3
    assert naming.partition_of(True) is None
    assert naming.partition_of(SimpleNamespace(partition_id=5)) == 5

"""Values that a replay replaces, and those that it calls different: what a value belongs to, and where it stands."""

from __future__ import annotations

from typing import Any

from barnabas.records.batch import check_crc, read_header
from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas.tools.tap.comparison import differences
from barnabas.tools.tap.recording import _has_overwritten
from barnabas.tools.tap.substitution import Substitutes, paired
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

# --- substitutes ----------------------------------------------------------------------------------------------------


def topics_of(*named: tuple[str, bytes, int]) -> MetadataResponse:
    part, topic = MetadataResponse.MetadataResponsePartition, MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        topics=[
            topic(name=name, topic_id=entry, partitions=[part(partition_index=0, leader_epoch=epoch)])
            for name, entry, epoch in named
        ]
    )


def test_record_batches_get_live_producer_ids() -> None:
    result = Substitutes()
    for recorded, live in (((7, 2), (70, 4)), ((8, 2), (80, 6))):
        result.learn(1, "", InitProducerIdResponse(0, 0, *recorded), InitProducerIdResponse(0, 0, *live))
    batches = [
        encode_batch([Record(0, 0, None, b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=0)
        for producer, epoch in ((7, 2), (8, 2), (7, 3), (9, 2))
    ]
    plain = encode_batch([Record(0, 0, None, b"v")])
    data = b"".join([*batches, plain])
    part = ProduceRequest.PartitionProduceData(0, memoryview(data))
    result.apply(
        1, "", ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])])
    )
    sent, at, producers = bytes(part.records or b""), 0, []
    for _ in range(5):
        header = read_header(sent, at)
        assert check_crc(sent, at, header)
        producers.append((header.producer_id, header.producer_epoch))
        at += header.size
    assert producers == [(70, 4), (80, 6), (70, 3), (9, 2), (-1, -1)]
    assert sent[-len(plain) :] == plain
    for broken in (b"\0" * 80, data[:-3]):
        part.records = memoryview(broken)
        result.apply(
            1, "", ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])])
        )
        assert len(bytes(part.records)) == len(broken)
    part.records = None
    result.apply(
        1, "", ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])])
    )
    assert part.records is None


# --- pairs ----------------------------------------------------------------------------------------------------------


def named(*names: str) -> list[Any]:
    return [
        MetadataResponse.MetadataResponseTopic(name=name, topic_id=bytes([number]) * 16)
        for number, name in enumerate(names)
    ]


def numbers(pairs: Any) -> list[Any]:
    return [tuple(None if topic is None else topic.topic_id[0] for topic in pair) for pair in pairs]


def test_entries_are_paired_by_name_and_else_by_place() -> None:
    assert numbers(paired(named("a", "b", "c"), named("c", "d", "a"))) == [
        (0, 2),
        (1, None),
        (2, 0),
        (None, 1),
    ]
    assert numbers(paired(named("a", "a"), named("a", "b", "c"))) == [(0, 0), (1, 1), (None, 2)]
    assert numbers(paired(named("a", ""), named("b"))) == [(0, 0), (1, None)]
    assert numbers(paired([], named("a", "b"))) == [(None, 0), (None, 1)]
    assert list(paired([1, 2], [2])) == [(1, 2), (2, None)]
    assert list(paired([], [])) == []


# --- differences ----------------------------------------------------------------------------------------------------


def found(
    recorded: Any, live: Any, substitutes: Substitutes | None = None, **more: Any
) -> list[tuple[str, str, str]]:
    return [tuple(row) for row in differences(recorded, live, substitutes or Substitutes(), 1, "", **more)]


def produced(*parts: Any) -> ProduceResponse:
    return ProduceResponse([ProduceResponse.TopicProduceResponse("t", partition_responses=list(parts))])


def part(index: int = 0, code: int = 0, offset: int = 5, **more: Any) -> Any:
    return ProduceResponse.PartitionProduceResponse(index, code, offset, **more)


def test_differences_name_place_and_both_values() -> None:
    assert found(produced(part()), produced(part())) == []
    assert found(produced(part(3, 0, 5)), produced(part(3, 6, 7))) == [
        ("responses[t].partition_responses[3].error_code", "NONE", "NOT_LEADER_OR_FOLLOWER"),
        ("responses[t].partition_responses[3].base_offset", "5", "7"),
    ]
    assert found(produced(part(0), part(1)), produced(part(1), part(2))) == [
        ("responses[t].partition_responses[0]", "there", "missing"),
        ("responses[t].partition_responses[2]", "missing", "there"),
    ]
    assert found(produced(part(error_message="a")), produced(part(error_message=None))) == [
        ("responses[t].partition_responses[0].error_message", "'a'", "None")
    ]
    leader = ProduceResponse.LeaderIdAndEpoch
    assert found(
        produced(part(current_leader=leader(1, 4))), produced(part(current_leader=leader(1, -1)))
    ) == [("responses[t].partition_responses[0].current_leader.leader_epoch", "4", "-1")]
    assert (
        found(produced(part(current_leader=leader(1, 4))), produced(part(current_leader=leader(1, 9)))) == []
    )


def test_bytes_are_shown_by_size_and_ids_as_text() -> None:
    def answer(assignment: bytes) -> Any:
        from barnabas.wire.generated.sync_group import SyncGroupResponse

        return SyncGroupResponse(assignment=assignment)

    assert found(answer(b"\1\2"), answer(memoryview(b"\1\2"))) == []  # type: ignore[arg-type]
    assert found(answer(b"\1\2"), answer(b"\3" * 40)) == [
        ("assignment", "2 bytes 0102", f"40 bytes {'03' * 32}")
    ]
    entry = topics_of(("a", b"i" * 16, 1))
    assert found(entry, topics_of(("a", bytes(16), 1)))[0] == (
        "topics[a].topic_id",
        "aWlpaWlpaWlpaWlpaWlpaQ",
        "AAAAAAAAAAAAAAAAAAAAAA",
    )


def fetched(*batches: bytes) -> FetchResponse:
    entry = FetchResponse.PartitionData(2, records=b"".join(batches) if batches else None)
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[entry])])


def record(offset: int, value: bytes | None = b"v", key: bytes | None = None, headers: Any = ()) -> bytes:
    return encode_batch([Record(offset, 0, key, value, list(headers))], base_offset=offset)


def test_records_differ_by_key_value_or_headers() -> None:
    place = "responses[t].partitions[2].records[offset 4]"
    same = record(4, b"v", b"k", [("h", b"1")])
    assert found(fetched(same), fetched(same)) == []
    shown = "key b'k' value b'v' headers (('h', b'1'),)"
    for other, now in (
        (record(4, b"w", b"k", [("h", b"1")]), "key b'k' value b'w' headers (('h', b'1'),)"),
        (record(4, b"v", b"l", [("h", b"1")]), "key b'l' value b'v' headers (('h', b'1'),)"),
        (record(4, b"v", b"k"), "key b'k' value b'v'"),
        (record(4, None, None), "key None value None"),
    ):
        assert found(fetched(same), fetched(other)) == [(place, shown, now)]


def test_markers_and_records_outside_both_are_no_differences() -> None:
    marker = bytes(
        encode_end_marker(
            commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=1, timestamp_ms=9, base_offset=5
        )
    )
    assert found(fetched(record(4), marker, record(6)), fetched(record(4), record(6))) == []
    assert found(fetched(record(3), record(4)), fetched(record(4), record(5))) == []
    assert found(fetched(), fetched(record(4))) == []
    assert found(fetched(record(4), record(5)), fetched()) == [
        ("responses[t].partitions[2].records", "2 records", "none")
    ]
    assert found(fetched(record(4), record(5)), fetched(b"\0" * 80))[0][1:] == ("2 records", "none")
    assert found(fetched(record(3), record(5)), fetched(record(3), record(4), record(5))) == []
    (lost,) = found(fetched(record(3), record(4), record(5)), fetched(record(3), record(5)))
    assert lost[2] == "missing"


# --- recordings -----------------------------------------------------------------------------------------------------


def test_overwritten_settings_are_known_by_their_filler() -> None:
    setting = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    for value, is_so in (("***", True), ("**x", False), ("", False), (None, False)):
        message = IncrementalAlterConfigsRequest(
            [resource(2, "***", []), resource(2, "t", [setting("***", 0, "x"), setting("a", 0, value)])]
        )
        assert _has_overwritten(message) is is_so

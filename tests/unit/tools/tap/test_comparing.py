"""Values that a replay replaces, and those that it calls different: whose a value is, and where it stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.records.batch import check_crc, read_header
from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas.tools.tap.comparison import Difference, differences
from barnabas.tools.tap.may_differ import MAY_DIFFER, Place
from barnabas.tools.tap.recording import _has_overwritten
from barnabas.tools.tap.substitution import Substitutes, paired
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdResponse
from barnabas.wire.generated.join_group import JoinGroupResponse
from barnabas.wire.generated.list_offsets import ListOffsetsResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.offset_fetch import OffsetFetchResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

# --- substitutes ----------------------------------------------------------------------------------------------------


def test_what_was_handed_out_stands_for_what_was_recorded_where_it_is_of_the_same() -> None:
    found = Substitutes()
    found.learn(
        1,
        "g",
        JoinGroupResponse(generation_id=3, member_id="a", leader="b"),
        JoinGroupResponse(generation_id=9, member_id="x", leader="y"),
    )
    found.learn(1, "", FetchResponse(session_id=5), FetchResponse(session_id=50))
    found.learn(2, "", FetchResponse(session_id=5), FetchResponse(session_id=60))
    found.learn(
        1,
        "",
        InitProducerIdResponse(producer_id=7, producer_epoch=2),
        InitProducerIdResponse(producer_id=70, producer_epoch=4),
    )
    for name, connection, scope, value, live in (
        ("member_id", 1, "g", "a", "x"), ("member_id", 8, "other", "a", "x"), ("member_id", 1, "g", "b", "y"),
        ("leader", 1, "g", "a", "x"), ("generation_id", 4, "g", 3, 9), ("generation_id", 1, "h", 3, 3),
        ("member_epoch", 1, "g", 3, 9), ("generation_id_or_member_epoch", 1, "g", 3, 9), ("generation_id", 1, "g", 4, 4),
        ("session_id", 1, "", 5, 50), ("session_id", 2, "x", 5, 60), ("session_id", 3, "", 5, 5),
        ("producer_id", 9, "z", 7, 70), ("producer_epoch", 1, "7", 2, 4), ("producer_epoch", 1, "8", 2, 2),
        ("other", 1, "g", "a", "a"), ("member_id", 1, "g", None, None),
    ):  # fmt: skip
        assert found.live(name, connection, scope, value) == live
    assert found.is_handed_out("leader_epoch")
    assert not found.is_handed_out("offset")


def test_nothing_is_learned_from_what_is_none_or_of_another_kind() -> None:
    found = Substitutes()
    for recorded, live in (
        (
            JoinGroupResponse(member_id="", generation_id=-1),
            JoinGroupResponse(member_id="x", generation_id=5),
        ),
        (
            JoinGroupResponse(member_id="a", generation_id=3),
            JoinGroupResponse(member_id="", generation_id=-1),
        ),
        (JoinGroupResponse(member_id="a", generation_id=3), HeartbeatResponse()),
    ):
        found.learn(1, "g", recorded, live)
    assert [found.live("member_id", 1, "g", one) for one in ("", "a")] == ["", "a"]
    assert [found.live("generation_id", 1, "g", one) for one in (-1, 3)] == [-1, 3]


def topics_of(*named: tuple[str, bytes, int]) -> MetadataResponse:
    part, topic = MetadataResponse.MetadataResponsePartition, MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        topics=[
            topic(name=name, topic_id=one, partitions=[part(partition_index=0, leader_epoch=epoch)])
            for name, one, epoch in named
        ]
    )


def test_ids_of_topics_and_epochs_of_leaders_are_learned_by_the_names_of_topics() -> None:
    found = Substitutes()
    one, two, three, four = (bytes([number]) * 16 for number in range(1, 5))
    found.learn(
        1,
        "",
        topics_of(("a", one, 5), ("b", two, 5)),
        topics_of(("b", three, 8), ("a", four, 9), ("c", one, 1)),
    )
    asked = MetadataRequest(
        topics=[
            MetadataRequest.MetadataRequestTopic(topic_id=one),
            MetadataRequest.MetadataRequestTopic(topic_id=two),
        ]
    )
    found.apply(1, "", asked)
    assert [each.topic_id for each in asked.topics or ()] == [four, three]
    partition = FetchRequest.FetchPartition
    message = FetchRequest(topics=[FetchRequest.FetchTopic(topic=name, partitions=[
        partition(partition=0, current_leader_epoch=5, last_fetched_epoch=5),
        partition(partition=1, current_leader_epoch=5),
    ]) for name in "ab"])  # fmt: skip
    found.apply(1, "", message)
    assert [
        [(p.current_leader_epoch, p.last_fetched_epoch) for p in each.partitions] for each in message.topics
    ] == [
        [(9, 9), (5, -1)],
        [(8, 8), (5, -1)],
    ]


def test_names_of_brokers_in_requests_are_those_that_stand_for_them() -> None:
    found = Substitutes({1: 11, 2: 12})
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    message = IncrementalAlterConfigsRequest(
        [
            resource(kind, name, [])
            for kind, name in ((4, "1"), (8, "2"), (4, "3"), (2, "1"), (4, ""), (4, "x"))
        ]
    )
    found.apply(1, "", message)
    assert [one.resource_name for one in message.resources] == ["11", "12", "3", "1", "", "x"]
    described = DescribeConfigsRequest([DescribeConfigsRequest.DescribeConfigsResource(4, "2")])
    found.apply(1, "", described)
    assert described.resources[0].resource_name == "12"
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(0, [2, 1, 9])
    found.apply(
        1, "", CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic("t", assignments=[assignment])])
    )
    assert assignment.broker_ids == [12, 11, 9]
    cancelled = AlterPartitionReassignmentsRequest.ReassignablePartition(0, None)
    found.apply(
        1,
        "",
        AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequest.ReassignableTopic("t", [cancelled])]
        ),
    )
    assert cancelled.replicas is None


def test_record_batches_get_the_producers_that_the_live_broker_knows() -> None:
    found = Substitutes()
    for recorded, live in (((7, 2), (70, 4)), ((8, 2), (80, 6))):
        found.learn(1, "", InitProducerIdResponse(0, 0, *recorded), InitProducerIdResponse(0, 0, *live))
    batches = [
        encode_batch([Record(0, 0, None, b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=0)
        for producer, epoch in ((7, 2), (8, 2), (7, 3), (9, 2))
    ]
    plain = encode_batch([Record(0, 0, None, b"v")])
    data = b"".join([*batches, plain])
    part = ProduceRequest.PartitionProduceData(0, memoryview(data))
    found.apply(
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
        found.apply(
            1, "", ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])])
        )
        assert len(bytes(part.records)) == len(broken)
    part.records = None
    found.apply(
        1, "", ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])])
    )
    assert part.records is None


def test_a_group_in_a_request_is_whose_generations_are_replaced() -> None:
    found = Substitutes()
    found.learn(1, "g", JoinGroupResponse(generation_id=3), JoinGroupResponse(generation_id=9))
    for group, scope, generation in (("g", "", 9), ("g", "h", 9), ("h", "g", 3), ("", "g", 9)):
        message = HeartbeatRequest(group, 3, "m")
        found.apply(1, scope, message)
        assert message.generation_id == generation


# --- pairs ----------------------------------------------------------------------------------------------------------


def named(*names: str) -> list[Any]:
    return [
        MetadataResponse.MetadataResponseTopic(name=name, topic_id=bytes([number]) * 16)
        for number, name in enumerate(names)
    ]


def numbers(pairs: Any) -> list[Any]:
    return [tuple(None if one is None else one.topic_id[0] for one in pair) for pair in pairs]


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
    return [tuple(one) for one in differences(recorded, live, substitutes or Substitutes(), 1, "", **more)]


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
    one = topics_of(("a", b"i" * 16, 1))
    assert found(one, topics_of(("a", bytes(16), 1)))[0] == (
        "topics[a].topic_id",
        "aWlpaWlpaWlpaWlpaWlpaQ",
        "AAAAAAAAAAAAAAAAAAAAAA",
    )


def test_fields_that_the_user_lets_differ_are_left_out() -> None:
    def listed(offset: int, timestamp: int) -> ListOffsetsResponse:
        one = ListOffsetsResponse.ListOffsetsPartitionResponse(0, 0, timestamp=timestamp, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse("t", [one])])

    place = "topics[t].partitions[0]"
    assert found(listed(1, 2), listed(3, 4)) == [
        (f"{place}.timestamp", "2", "4"),
        (f"{place}.offset", "1", "3"),
    ]
    assert found(listed(1, 2), listed(3, 4), allowed=["offsets"]) == [(f"{place}.timestamp", "2", "4")]
    assert found(listed(1, 2), listed(3, 4), allowed=["timestamp"]) == [(f"{place}.offset", "1", "3")]
    assert found(listed(1, 2), listed(3, 4), allowed=["timestamp", "offset"]) == []
    fetched = FetchResponse.PartitionData
    topic = FetchResponse.FetchableTopicResponse
    one, other = (
        FetchResponse(responses=[topic("t", partitions=[fetched(0, high_watermark=mark)])]) for mark in (5, 6)
    )
    assert len(found(one, other)) == 1
    assert found(one, other, allowed=["offsets"]) == []
    committed = OffsetFetchResponse.OffsetFetchResponsePartition
    told = OffsetFetchResponse.OffsetFetchResponseTopic
    one, other = (OffsetFetchResponse(topics=[told("t", [committed(0, number)])]) for number in (5, 6))
    assert (len(found(one, other)), found(one, other, allowed=["offsets"])) == (1, [])


def test_values_that_are_handed_out_differ_only_where_one_is_none() -> None:
    def answer(**more: Any) -> JoinGroupResponse:
        return JoinGroupResponse(**more)

    assert (
        found(
            answer(member_id="a", generation_id=3, leader="a"),
            answer(member_id="b", generation_id=7, leader="b"),
        )
        == []
    )
    assert found(answer(member_id="a"), answer(member_id="")) == [("member_id", "'a'", "''")]
    assert found(answer(generation_id=-1), answer(generation_id=1)) == [("generation_id", "-1", "1")]
    assert found(answer(protocol_name="range"), answer(protocol_name="sticky")) == [
        ("protocol_name", "'range'", "'sticky'")
    ]


def fetched(*batches: bytes) -> FetchResponse:
    one = FetchResponse.PartitionData(2, records=b"".join(batches) if batches else None)
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[one])])


def record(offset: int, value: bytes | None = b"v", key: bytes | None = None, headers: Any = ()) -> bytes:
    return encode_batch([Record(offset, 0, key, value, list(headers))], base_offset=offset)


def test_records_differ_by_key_value_or_headers_at_the_same_offset() -> None:
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


def test_markers_and_what_lies_outside_of_both_answers_are_no_differences() -> None:
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


# --- fields that may differ -----------------------------------------------------------------------------------------


def accepts(
    name: str, recorded: Any, live: Any, *, was: Any = None, holder: Any = None, answer: Any = None
) -> bool:
    return MAY_DIFFER[name].accepts(Place(recorded, was, None), Place(live, holder, answer))


def on(*nodes: int) -> Any:
    return SimpleNamespace(replica_nodes=list(nodes))


NODES = SimpleNamespace(brokers=[SimpleNamespace(node_id=5), SimpleNamespace(broker_id=6)])
NO_NODES = SimpleNamespace(brokers=[])


@pytest.mark.parametrize(
    ("name", "recorded", "live", "more", "is_accepted"),
    [
        ("throttle_time_ms", 5, 0, {}, True),
        ("throttle_time_ms", 0, 1, {}, False),
        ("throttle_time_ms", 1, 2, {}, True),
        ("throttle_time_ms", 1, -1, {}, False),
        ("log_append_time_ms", 1, 2, {}, True),
        ("log_append_time_ms", 1, 0, {}, False),
        ("log_append_time_ms", -1, 0, {}, True),
        ("cluster_id", "a", "b", {}, True),
        ("cluster_id", None, "b", {}, False),
        ("cluster_id", "a", "", {}, False),
        ("host", "a", "b", {"holder": SimpleNamespace(port=1)}, True),
        ("host", "a", "b", {"holder": SimpleNamespace()}, False),
        ("host", "", "b", {"holder": SimpleNamespace(port=1)}, False),
        ("node_id", 1, 5, {"answer": NODES}, True),
        ("node_id", 1, 6, {"answer": NODES}, True),
        ("node_id", 1, 7, {"answer": NODES}, False),
        ("node_id", 1, 7, {"answer": NO_NODES}, True),
        ("node_id", 1, 7, {"answer": SimpleNamespace()}, True),
        ("node_id", -1, 5, {"answer": NODES}, False),
        ("leader_id", 1, 5, {"answer": NODES, "holder": on(5)}, True),
        ("leader_id", 1, 5, {"answer": NODES, "holder": on(6)}, False),
        ("leader_id", 1, 5, {"answer": NODES, "holder": SimpleNamespace()}, True),
        ("leader_id", 1, 7, {"answer": NODES, "holder": on(7)}, False),
        ("leader_id", 1, -1, {"answer": NODES, "holder": on(5)}, False),
        ("replica_nodes", [1], [5], {"answer": NODES, "holder": SimpleNamespace(leader_id=5)}, True),
        ("replica_nodes", [1], [5, 6], {"answer": NODES, "holder": SimpleNamespace(leader_id=-1)}, True),
        ("replica_nodes", [1], [5], {"answer": NODES, "holder": SimpleNamespace(leader_id=6)}, False),
        ("replica_nodes", [1], [5, 5], {"answer": NODES, "holder": SimpleNamespace(leader_id=5)}, False),
        ("replica_nodes", [1], [5, 7], {"answer": NODES, "holder": SimpleNamespace(leader_id=5)}, False),
        ("replica_nodes", [1], [], {"answer": NODES, "holder": SimpleNamespace(leader_id=-1)}, False),
        ("replica_nodes", [], [5], {"answer": NODES, "holder": SimpleNamespace(leader_id=-1)}, False),
        ("isr_nodes", [1, 2], [5, 6], {"was": on(2, 1), "holder": on(6, 5)}, True),
        ("isr_nodes", [1, 2], [5], {"was": on(1, 2), "holder": on(5, 6)}, False),
        ("isr_nodes", [1], [5], {"was": on(1, 2), "holder": on(5, 6)}, True),
        ("isr_nodes", [1], [7], {"was": on(1, 2), "holder": on(5, 6)}, False),
        ("isr_nodes", [1], [5, 5], {"was": on(1, 2), "holder": on(5, 6)}, False),
        ("isr_nodes", [1], [], {"was": on(1, 2), "holder": on(5)}, False),
        ("offline_replicas", [1], [5], {"holder": on(5, 6)}, True),
        ("offline_replicas", [1], [7], {"holder": on(5, 6)}, False),
        ("offline_replicas", [], [5], {"holder": on(5, 6)}, False),
        ("offline_replicas", [1], [], {"holder": on(5, 6)}, True),
    ],
)  # fmt: skip
def test_how_far_a_field_may_differ(
    name: str, recorded: Any, live: Any, more: dict[str, Any], is_accepted: bool
) -> None:
    assert accepts(name, recorded, live, **more) is is_accepted


@pytest.mark.parametrize(
    ("nodes", "is_accepted"),
    [
        ([(0, "h", 1)], True),
        ([(0, "h", 1), (1, "h", 1)], True),
        ([(0, "h", 1), (0, "i", 2)], False),
        ([(-1, "h", 1)], False),
        ([(0, "", 1)], False),
        ([(0, "h", 1), (1, "h", 0)], False),
        ([], False),
    ],
)
def test_brokers_have_ids_and_addresses(nodes: list[tuple[int, str, int]], is_accepted: bool) -> None:
    live = [SimpleNamespace(node_id=one, host=host, port=port) for one, host, port in nodes]
    assert accepts("brokers", ["recorded"], live) is is_accepted
    assert accepts("brokers", [], live) is (not live)


# --- recordings -----------------------------------------------------------------------------------------------------


def test_settings_that_were_overwritten_are_known_by_their_filler() -> None:
    setting = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    for value, is_so in (("***", True), ("**x", False), ("", False), (None, False)):
        message = IncrementalAlterConfigsRequest(
            [resource(2, "***", []), resource(2, "t", [setting("***", 0, "x"), setting("a", 0, value)])]
        )
        assert _has_overwritten(message) is is_so


def test_a_difference_is_a_path_and_two_values() -> None:
    assert Difference("a", "b", "c")._asdict() == {"path": "a", "recorded": "b", "live": "c"}

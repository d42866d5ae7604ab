"""A replay replaces ids and compares answers; captures have no secrets; lines are written aside."""

from __future__ import annotations

import threading

import pytest
import trio

from barnabas.records.batch import check_crc, read_header
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tools.inspection.frames import read_request
from barnabas.tools.tap.comparison import differences
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.filters import Filter
from barnabas.tools.tap.observers import LINES_PER_SECOND, Several, Terminal
from barnabas.tools.tap.output import WAITING_MAX, LineWriter
from barnabas.tools.tap.substitution import Substitutes
from barnabas.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from tests.unit.tools.tap.test_session import request


def test_producer_ids_are_replaced_in_batches_too() -> None:
    substitutes = Substitutes()
    substitutes.learn(
        1,
        "",
        InitProducerIdResponse(producer_id=7, producer_epoch=2),
        InitProducerIdResponse(producer_id=900, producer_epoch=0),
    )
    data = encode_batch([Record(0, 0, None, b"v")], producer_id=7, producer_epoch=2, base_sequence=5)
    part = ProduceRequest.PartitionProduceData(0, memoryview(data))
    message = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])])
    substitutes.apply(1, "", message)
    sent = bytes(message.topic_data[0].partition_data[0].records)  # type: ignore[arg-type]
    header = read_header(sent)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (900, 0, 5)
    assert check_crc(sent, 0, header)


def test_ids_of_brokers_are_replaced_where_requests_name_brokers() -> None:
    substitutes = Substitutes({1: 11, 2: 12})
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    message = IncrementalAlterConfigsRequest(
        [resource(4, "2", []), resource(2, "2", []), resource(4, "", [])]
    )
    substitutes.apply(1, "", message)
    assert [resource.resource_name for resource in message.resources] == ["12", "2", ""]
    part = AlterPartitionReassignmentsRequest.ReassignablePartition(0, [1, 2, 3])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic("t", [part])
    substitutes.apply(1, "", AlterPartitionReassignmentsRequest(topics=[topic]))
    assert part.replicas == [11, 12, 3]


def test_topic_ids_are_found_by_name() -> None:
    topic = MetadataResponse.MetadataResponseTopic
    recorded = MetadataResponse(
        topics=[topic(name="a", topic_id=b"a" * 16), topic(name="b", topic_id=b"b" * 16)]
    )
    live = MetadataResponse(topics=[topic(name="b", topic_id=b"2" * 16), topic(name="a", topic_id=b"1" * 16)])
    substitutes = Substitutes()
    substitutes.learn(1, "", recorded, live)
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=b"a" * 16, name=None)])
    substitutes.apply(1, "", asked)
    assert asked.topics is not None
    assert asked.topics[0].topic_id == b"1" * 16
    assert differences(recorded, live, substitutes, 1, "") == []


def test_what_differs_is_named_and_what_may_differ_is_not() -> None:
    topic, part = ProduceResponse.TopicProduceResponse, ProduceResponse.PartitionProduceResponse
    recorded = ProduceResponse([topic("t", partition_responses=[part(0, 0, 5, log_append_time_ms=1)])], 50)
    live = ProduceResponse([topic("t", partition_responses=[part(0, 6, 9, log_append_time_ms=2)])], 100)
    result = differences(recorded, live, Substitutes(), 1, "")
    assert [str(difference.path).rpartition(".")[2] for difference in result] == ["error_code", "base_offset"]
    assert result[0].recorded == "NONE"
    assert result[0].live == "NOT_LEADER_OR_FOLLOWER"
    assert result[0].path == "responses[t].partition_responses[0].error_code"
    assert len(differences(recorded, live, Substitutes(), 1, "", allowed=["offsets"])) == 1


def test_records_are_compared_where_both_answers_have_them() -> None:
    def answer(*values: bytes) -> FetchResponse:
        data = encode_batch([Record(n, 0, None, value) for n, value in enumerate(values)]) if values else b""
        part = FetchResponse.PartitionData(records=data)
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])

    assert differences(answer(b"a", b"b"), answer(b"a"), Substitutes(), 1, "") == []
    (other,) = differences(answer(b"a", b"b"), answer(b"a", b"c"), Substitutes(), 1, "")
    assert other.path.endswith("records[offset 1]")
    (none,) = differences(answer(b"a"), answer(), Substitutes(), 1, "")
    assert none.live == "none"


def exchange_of(at: float) -> Exchange:
    asked = read_request(request(3, 1, 1, MetadataRequest())[4:])
    return Exchange(Connection(1, "a:1", "b:2"), 1, asked, at, TopicNames(), unanswered="acks=0")


def test_the_terminal_shows_what_can_be_read_and_counts_the_rest() -> None:
    lines: list[str] = []
    terminal = Terminal(lines.append, Filter())
    for _ in range(LINES_PER_SECOND + 50):
        terminal.exchanged(exchange_of(5.5))
    terminal.exchanged(exchange_of(6.5))
    assert len(lines) == LINES_PER_SECOND + 2
    assert lines[-2].startswith("... 50 more in this second: Metadata 50")


async def test_stalled_reader_delays_no_client_and_loss_is_counted() -> None:
    may_go_on = threading.Event()
    written: list[str] = []

    def write(text: str) -> None:
        may_go_on.wait(60)
        written.append(text)

    writer = LineWriter(write, lambda count: f"{count} lost")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for number in range(WAITING_MAX + 100):
            writer.put(str(number))
        writer.close()
        may_go_on.set()
    lines = "".join(written).splitlines()
    assert lines[0] == "0"
    assert lines[-1] == "100 lost"


def test_a_mistake_in_showing_does_not_reach_the_traffic(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Terminal):
        def exchanged(self, exchange: Exchange) -> None:
            raise RuntimeError("a mistake")

    lines: list[str] = []
    Several([Broken(lines.append, Filter()), Terminal(lines.append, Filter())]).exchanged(exchange_of(5.5))
    assert len(lines) == 1
    assert "cannot be shown" in caplog.text

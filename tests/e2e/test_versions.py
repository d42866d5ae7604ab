"""Every version that is served, asked over a bare socket: clients of all ages read what they were promised."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.serving import apis
from barnabas.wire import registry
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.headers import decode_response, encode_request

from .conftest import BrokerProcess

pytestmark = pytest.mark.e2e

PRODUCE, LIST_OFFSETS, CREATE_TOPICS = (
    registry.key_of(name) for name in ("Produce", "ListOffsets", "CreateTopics")
)


def ask(broker: BrokerProcess, key: int, version: int, message: object) -> Any:
    host, port = broker.bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as stream:
        connection.sendall(b"".join(encode_request(key, version, 1, "test", message)))  # type: ignore[arg-type]
        size = stream.read(4)
        assert len(size) == 4, f"API {key} v{version}: the connection was closed instead of an answer"
        correlation_id, response = decode_response(stream.read(int.from_bytes(size, "big")), key, version)
        assert correlation_id == 1
        return response


@pytest.mark.parametrize("version", range(apis.BY_KEY[LIST_OFFSETS].max_version + 1))
def test_list_offsets_tells_the_end_of_a_partition(broker: BrokerProcess, version: int) -> None:
    topic = f"ends-{version}"
    created = ask(
        broker,
        CREATE_TOPICS,
        2,
        CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
            timeout_ms=10_000,
        ),
    )
    assert created.topics[0].error_code == 0
    batch = encode_batch([Record(offset, 1_700_000_000_000, None, b"value") for offset in range(3)])
    data = ProduceRequest.TopicProduceData(
        name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]
    )
    produced = ask(broker, PRODUCE, 7, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]))
    assert produced.responses[0].partition_responses[0].error_code == 0

    query = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    if version == 0:
        query.max_num_offsets = 1
    asked = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[query])]
    )
    answer = ask(broker, LIST_OFFSETS, version, asked).topics[0].partitions[0]
    assert answer.error_code == 0
    assert (answer.old_style_offsets if version == 0 else [answer.offset]) == [3]
    assert answer.leader_epoch == (0 if version >= 4 else -1)

"""Few bytes that mean much work, over plain sockets: the answer is Kafka's, and others are served in between.

That others are served is measured: a bystander asks one question after the other while the bomb is in hand, and its
longest wait is a small part of the bomb's time. A broker that does the work in one go keeps the bystander for all of it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from barnabas.records import batch, building, convert, legacy
from barnabas.records.compression import Codec, compress
from barnabas.records.record import Record
from barnabas.records.varint import encode_varint
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.headers import decode_response, encode_request
from compat.kit.readiness import is_readable

from .conftest import BrokerProcess

pytestmark = pytest.mark.e2e

SECONDS_MAX = 60
SHORT_SECONDS = 0.03
NOW = 1_700_000_000_000
PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 18, 19
EMPTY_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))  # of offset delta 0
QUESTION = struct.pack(">ihhih", 13, API_VERSIONS, 0, 1, 3) + b"raw"


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[socket.socket]:
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as connection:
        yield connection


def exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += piece
    return bytes(data)


def answer(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def send(connection: socket.socket, key: int, version: int, request: Any) -> None:
    connection.sendall(b"".join(bytes(chunk) for chunk in encode_request(key, version, 1, "raw", request)))


def ask(connection: socket.socket, key: int, version: int, request: Any) -> Any:
    send(connection, key, version, request)
    return decode_response(answer(connection), key, version)[1]


def ask_beside(
    broker: BrokerProcess, connection: socket.socket, key: int, version: int, request: Any, attempts: int = 3
) -> Any:
    """Ask while another client asks too; its longest wait must be short in one of `attempts`: the last response.

    Short is at most a third of the whole time, or SHORT_SECONDS. A machine that gives the processes no time may fail an
    attempt; a broker that does the work in one go fails all.
    """
    waits = []
    for _ in range(attempts):
        longest = 0.0
        with connected(broker) as bystander:
            bystander.sendall(QUESTION)
            answer(bystander)
            send(connection, key, version, request)
            start = time.perf_counter()
            while not is_readable(connection, 0):
                asked = time.perf_counter()
                bystander.sendall(QUESTION)
                answer(bystander)
                longest = max(longest, time.perf_counter() - asked)
        taken = time.perf_counter() - start
        response = decode_response(answer(connection), key, version)[1]
        waits.append((longest, taken))
        if longest <= max(taken / 3, SHORT_SECONDS):
            return response
    raise AssertionError(f"a bystander waited too long (its longest wait, all of the time): {waits}")


def create(connection: socket.socket, name: str, **configs: str) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=10_000,
    )
    code = ask(connection, CREATE_TOPICS, 2, request).topics[0].error_code
    assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)


def produce(topic: str, *batches: bytes | bytearray) -> ProduceRequest:
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=bytes(each))
        for index, each in enumerate(batches)
    ]
    return ProduceRequest(
        acks=1,
        timeout_ms=60_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)],
    )


def packed(body: bytes, count: int, codec: Codec = Codec.GZIP) -> bytearray:
    header = convert.new_header(0, codec=codec)
    header.base_timestamp = header.max_timestamp = NOW
    header.records_count, header.last_offset_delta = count, count - 1
    return building.join_batch(header, compress(codec, body))


def some_records(count: int) -> bytes:
    """So many small records that differ, each of which says that it is the first."""
    random = Random(count)
    return b"".join([one_record(random.randbytes(3)) for _ in range(count)])


def one_record(value: bytes) -> bytes:
    fields = b"\0\0\0\1" + encode_varint(len(value)) + value + b"\0"
    return encode_varint(len(fields)) + fields


def many_headers(count: int) -> bytes:
    fields = b"\0\0\0\1\1" + encode_varint(count) + b"\0\1" * count
    return encode_varint(len(fields)) + fields


def code_of(response: Any) -> int:
    return response.responses[0].partition_responses[0].error_code


BOMBS = {
    "a million records that must be numbered anew": (
        lambda: packed(EMPTY_RECORD * 1_000_000, 1_000_000),
        {"max_message_bytes": "100000"},
        ErrorCode.INVALID_RECORD,
    ),
    "half a million records that must be numbered anew, and fit": (
        lambda: packed(some_records(500_000), 500_000, Codec.ZSTD),
        {"max_message_bytes": "10000000"},
        0,
    ),
    "one record of 90 MB": (lambda: packed(one_record(bytes(90_000_000)), 1), {}, 0),
    "one record of 90 MB for a topic in zstd": (
        lambda: packed(one_record(bytes(90_000_000)), 1),
        {"compression_type": "zstd"},
        0,
    ),
    "more than a batch may hold": (
        lambda: packed(one_record(bytes(200_000_000)), 1, Codec.ZSTD),
        {},
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "400,000 headers in one record": (lambda: packed(many_headers(400_000), 1, Codec.NONE), {}, 0),
    "a million headers, packed": (lambda: packed(many_headers(1_000_000), 1, Codec.LZ4), {}, 0),
    "more records than there are bytes": (
        lambda: packed(b"\0" * 100, 2_000_000_000, Codec.NONE),
        {},
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_produce(broker: BrokerProcess, name: str) -> None:
    make, configs, code = BOMBS[name]
    records = make()
    topic = f"bomb-{list(BOMBS).index(name)}"
    with connected(broker) as connection:
        create(connection, topic, **configs)
        if name.startswith("more"):  # which are refused at once
            response = ask(connection, PRODUCE, 7, produce(topic, records))
        else:
            response = ask_beside(broker, connection, PRODUCE, 7, produce(topic, records))
        assert code_of(response) == code


def test_produce_of_an_old_message_set(broker: BrokerProcess) -> None:
    small = [Record(n, NOW, None, b"") for n in range(200_000)]
    with connected(broker) as connection:
        create(connection, "old-bomb")
        for codec in (Codec.NONE, Codec.GZIP):
            records = legacy.encode_message_set(small, magic=1, codec=codec)
            response = ask_beside(broker, connection, PRODUCE, 2, produce("old-bomb", records))
            assert code_of(response) == (ErrorCode.MESSAGE_TOO_LARGE if codec is Codec.NONE else 0)


def fetch_old(topic: str, bytes_max: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=bytes_max)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


def test_fetch_of_old_versions_converts_little_and_gives_way(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        create(connection, "converted", max_message_bytes="10000000")
        for _ in range(6):
            records = [Record(n, NOW, None, b"v" * 900) for n in range(1_000)]
            assert (
                code_of(ask(connection, PRODUCE, 7, produce("converted", building.encode_batch(records))))
                == 0
            )
        response = ask(connection, FETCH, 1, fetch_old("converted", 50_000_000))
        (partition,) = response.responses[0].partitions
        assert partition.error_code == 0
        assert 900_000 < len(partition.records) < 3_000_000
        many = [Record(n, NOW, None, b"") for n in range(200_000)]
        create(connection, "converted-many", max_message_bytes="10000000")
        raw = building.encode_batch(many, codec=Codec.GZIP)
        assert code_of(ask(connection, PRODUCE, 7, produce("converted-many", raw))) == 0
        response = ask_beside(broker, connection, FETCH, 2, fetch_old("converted-many", 50_000_000))
        (partition,) = response.responses[0].partitions
        assert partition.error_code == 0
        result = sum(
            len(legacy.read_records(partition.records, at)) for at, _ in batch.iter_batches(partition.records)
        )
        assert result == 200_000


def test_offsets_by_timestamp_where_timestamps_do_not_rise(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        create(connection, "level")
        pipelined = produce("level", building.encode_batch([Record(0, NOW, None, b"")]))
        frame = b"".join(bytes(chunk) for chunk in encode_request(PRODUCE, 7, 1, "raw", pipelined))
        for _ in range(100):
            connection.sendall(frame * 300)
            for _ in range(300):
                answer(connection)
        last = building.encode_batch([Record(0, NOW + 9, None, b"")])
        assert code_of(ask(connection, PRODUCE, 7, produce("level", last))) == 0
        query = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=NOW + 5)
        topic = ListOffsetsRequest.ListOffsetsTopic(name="level", partitions=[query])
        response = ask_beside(
            broker, connection, LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, topics=[topic])
        )
        assert response.topics[0].partitions[0].offset == 30_000

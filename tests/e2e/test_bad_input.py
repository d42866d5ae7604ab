"""Bytes that no client should send, over a plain socket: that connection ends, and the broker goes on.

Each case shows afterwards, on a new connection, that the broker still answers.
"""

from __future__ import annotations

import resource
import select
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.systems import in_proc

from .conftest import BrokerProcess

pytestmark = pytest.mark.e2e

SECONDS_MAX = 10
API_VERSIONS, METADATA, PRODUCE, CREATE_TOPICS = 18, 3, 0, 19
UNSUPPORTED_VERSION = 35
MIB = 1 << 20


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, correlation_id: int = 7, client: bytes | None = b"raw") -> bytes:
    length = -1 if client is None else len(client)
    return struct.pack(">hhih", key, version, correlation_id, length) + (client or b"")


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[socket.socket]:
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as connection:
        yield connection


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += piece
    return data


def answer(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def assert_alive(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.sendall(frame(header(API_VERSIONS, 0)))
        assert struct.unpack_from(">ih", answer(connection)) == (7, 0)


def rss_bytes(broker: BrokerProcess) -> int:
    status = in_proc(f"{broker.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


CLOSING = {
    "a frame larger than the limit": struct.pack(">i", 101 * MIB) + b"x",
    "a negative frame size": struct.pack(">i", -1),
    "a TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "an unknown API key": frame(header(9999, 0)),
    "a version never published": frame(header(METADATA, 99)),
    "an API of controllers": frame(header(52, 0)),
    "an empty frame": frame(b""),
    "half a header": frame(b"\x00\x12\x00"),
    "a client id beyond the frame": frame(struct.pack(">hhih", API_VERSIONS, 0, 1, 30_000)),
    "an array longer than the frame": frame(header(METADATA, 1) + struct.pack(">i", 2**31 - 1)),
    "a negative array length": frame(header(CREATE_TOPICS, 0) + struct.pack(">i", -7)),
    "a varint of eleven bytes": frame(header(METADATA, 9) + b"\x00" + b"\xff" * 11),
    "a string beyond the frame": frame(header(METADATA, 1) + struct.pack(">ih", 1, 20_000) + b"x"),
    "tagged fields without end": frame(header(METADATA, 9) + b"\xff\xff\xff\xff\x0f"),
}


@pytest.mark.parametrize("name", CLOSING)
def test_a_malformed_request_ends_its_connection_only(broker: BrokerProcess, name: str) -> None:
    with connected(broker) as bystander, connected(broker) as connection:
        connection.sendall(CLOSING[name])
        assert is_closed(connection)
        bystander.sendall(frame(header(API_VERSIONS, 0)))
        assert struct.unpack_from(">ih", answer(bystander)) == (7, 0)
    assert_alive(broker)


@pytest.mark.parametrize("version", [6, 77, 32767, -1])
def test_an_unknown_api_versions_version_is_told_the_known_ones(broker: BrokerProcess, version: int) -> None:
    with connected(broker) as connection:
        tagged_fields = b"\x00" if version >= 3 else b""
        connection.sendall(frame(header(API_VERSIONS, version) + tagged_fields + b"whatever it is"))
        body = answer(connection)
        correlation_id, code, count = struct.unpack_from(">ihi", body)
        assert (correlation_id, code) == (7, UNSUPPORTED_VERSION)
        assert (count, len(body)) == (1, 16)
        assert struct.unpack_from(">hhh", body, 10) == (API_VERSIONS, 0, 5)
        connection.sendall(frame(header(API_VERSIONS, 0)))
        assert struct.unpack_from(">ih", answer(connection)) == (7, 0)


def test_api_versions_response_header_has_no_tagged_fields(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.sendall(frame(header(API_VERSIONS, 3) + b"\x00" + b"\x04raw\x021\x00"))
        body = answer(connection)
    correlation_id, code, count_plus_one = struct.unpack_from(">ihB", body)
    assert (correlation_id, code) == (7, 0)
    assert 20 < count_plus_one < 100


def test_a_null_client_id_is_fine(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.sendall(frame(header(API_VERSIONS, 0, client=None)))
        assert struct.unpack_from(">ih", answer(connection)) == (7, 0)


def test_split_and_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    with connected(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(header(API_VERSIONS, 0, correlation_id=1)):
            connection.sendall(bytes([byte]))
        assert struct.unpack_from(">i", answer(connection)) == (1,)
        many = [frame(header(API_VERSIONS, 0, correlation_id=n)) for n in range(500)]
        connection.sendall(b"".join(many))
        assert [struct.unpack_from(">i", answer(connection))[0] for _ in many] == list(range(500))


def produce(topic: bytes, records: bytes, acks: int = 1) -> bytes:
    body = struct.pack(">hhii", -1, acks, 5000, 1) + struct.pack(">h", len(topic)) + topic
    return frame(header(PRODUCE, 3) + body + struct.pack(">iii", 1, 0, len(records)) + records)


def batch(body: bytes, *, codec: int = 0, count: int = 1, crc_error: int = 0) -> bytes:
    """A record batch of one record, with a checksum that can be made wrong."""
    import crc32c

    after_crc = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + body
    crc = crc32c.crc32c(after_crc) ^ crc_error
    return struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, crc) + after_crc


RECORD = bytes([2 * 7, 0, 0, 0, 1, 2, ord("v"), 0])


def error_of(connection: socket.socket, topic: bytes) -> int:
    body = answer(connection)
    code: int = struct.unpack_from(">h", body, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    return code


def test_a_wrong_checksum_is_refused_and_nothing_is_appended(broker: BrokerProcess) -> None:
    topic = b"checksums"
    with connected(broker) as connection:
        connection.sendall(frame(header(METADATA, 1) + struct.pack(">ih", 1, len(topic)) + topic))
        answer(connection)
        connection.sendall(produce(topic, batch(RECORD, crc_error=1)))
        assert error_of(connection, topic) == 2
        connection.sendall(produce(topic, batch(RECORD)))
        body = answer(connection)
        assert struct.unpack_from(">hq", body, 4 + 4 + 2 + len(topic) + 4 + 4) == (0, 0)


def test_a_compression_bomb_costs_no_memory(broker: BrokerProcess) -> None:
    topic = b"bombs"
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(compressor.compress(bytes(MIB)) for _ in range(900)) + compressor.flush()
    assert len(bomb) < MIB
    with connected(broker) as connection:
        connection.sendall(frame(header(METADATA, 1) + struct.pack(">ih", 1, len(topic)) + topic))
        answer(connection)
        before = rss_bytes(broker)
        connection.sendall(produce(topic, batch(bomb, codec=1)))
        assert error_of(connection, topic) in (2, 10, 87)
    assert rss_bytes(broker) - before < 300 * MIB
    assert_alive(broker)


def test_acks_0_answers_nothing_and_an_error_closes(broker: BrokerProcess) -> None:
    topic = b"unanswered"
    with connected(broker) as connection:
        connection.sendall(frame(header(METADATA, 1) + struct.pack(">ih", 1, len(topic)) + topic))
        answer(connection)
        connection.sendall(produce(topic, batch(RECORD), acks=0))
        connection.sendall(frame(header(API_VERSIONS, 0, correlation_id=9)))
        assert struct.unpack_from(">i", answer(connection)) == (9,)
        connection.sendall(produce(topic, batch(RECORD, crc_error=1), acks=0))
        assert is_closed(connection)
    assert_alive(broker)


def test_a_peer_that_goes_away_inside_a_frame_costs_nothing(broker: BrokerProcess) -> None:
    for size in (1, 3, 5, 50_000, 300_000):
        with connected(broker) as connection:
            connection.sendall((struct.pack(">i", 90 * MIB) + bytes(size))[:size])
    assert_alive(broker)


def test_a_large_claim_takes_memory_only_for_what_comes(broker: BrokerProcess) -> None:
    before = rss_bytes(broker)
    connections = []
    for _ in range(20):
        host, _, port = broker.bootstrap.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        connection.sendall(struct.pack(">i", 99 * MIB) + bytes(1000))
        connections.append(connection)
    assert_alive(broker)
    assert rss_bytes(broker) - before < 20 * MIB
    for connection in connections:
        connection.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what the broker does soon."""
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_memory_of_half_requests_is_given_back(broker: BrokerProcess) -> None:
    """Also where it is free in the middle of the heap: 128 KB for each connection."""
    host, _, port = broker.bootstrap.rpartition(":")
    before = rss_bytes(broker)
    part = struct.pack(">i", 99 * MIB) + header(PRODUCE, 7)
    part += bytes(64 * 1024 - len(part))
    connections = []
    for _ in range(450):
        connection = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        connection.sendall(part)
        connections.append(connection)
    assert_alive(broker)
    until(lambda: rss_bytes(broker) - before > 35 * MIB)
    for connection in connections:
        connection.close()
    until(lambda: rss_bytes(broker) - before < 20 * MIB)


def test_thousands_of_idle_connections_are_held(broker: BrokerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 3_000 if hard == resource.RLIM_INFINITY else min(3_000, hard - 500)
    assert count >= 400, f"a process may have {hard} files here, too few to try this"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    host, _, port = broker.bootstrap.rpartition(":")
    before = rss_bytes(broker)
    idle = [socket.create_connection((host, int(port)), timeout=SECONDS_MAX) for _ in range(count)]
    try:
        assert_alive(broker)
        assert rss_bytes(broker) - before < count * 32 * 1024
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert_alive(broker)


def test_a_client_that_never_reads_costs_no_memory(broker: BrokerProcess) -> None:
    """Thousands of requests with unread answers: the broker stops reading them, and serves the others."""
    before = rss_bytes(broker)
    request = frame(header(API_VERSIONS, 0)) * 100
    with connected(broker) as deaf:
        deaf.setblocking(False)
        sent = 0
        while sent < 64 * MIB:
            if not select.select([], [deaf], [], 0.5)[1]:
                break  # nothing more is taken from it
            sent += deaf.send(request)
        assert sent < 64 * MIB, "the broker goes on reading what it cannot answer"
        assert_alive(broker)
        assert rss_bytes(broker) - before < 30 * MIB
    assert_alive(broker)


def test_a_slow_writer_is_served(broker: BrokerProcess) -> None:
    request = frame(header(API_VERSIONS, 0, correlation_id=11))
    with connected(broker) as connection:
        for byte in request:
            connection.sendall(bytes([byte]))
            assert_alive(broker)
        assert struct.unpack_from(">i", answer(connection)) == (11,)

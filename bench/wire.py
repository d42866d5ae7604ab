"""A few requests as bytes, and a blocking connection: enough to ask any broker, without a client library.

The rule: independent of the broker's own codecs, and of the oldest versions that every peer serves.
"""

from __future__ import annotations

import builtins
import socket
import struct
import time
from collections.abc import Iterable

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR = 0, 1, 2, 3, 8, 10
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 18, 19, 20
CLIENT_ID = b"bench"
TIMEOUT_MS = 30_000


class WireError(Exception):
    """A broker answered with an error, or with something that is no answer."""


def request(key: int, version: int, body: bytes) -> bytes:
    """A whole frame, with correlation id 1 (header v1)."""
    head = struct.pack(">hhih", key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _array(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return struct.pack(">i", len(items)) + b"".join(items)


# --- records ------------------------------------------------------------------------------------------------


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def _crc32c(data: bytes) -> int:
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def uvarint(number: int) -> bytes:
    """A number in as few bytes as it needs, 7 bits in each."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint(number: int) -> bytes:
    return uvarint(number << 1 ^ number >> 63)


def record_batch(values: list[bytes], timestamp_ms: int) -> bytes:
    """A record batch of magic 2, uncompressed, without keys, from no idempotent producer."""
    records = b""
    for index, value in enumerate(values):
        record = b"\0\0" + _varint(index) + _varint(-1) + _varint(len(value)) + value + b"\0"
        records += _varint(len(record)) + record
    tail = (
        struct.pack(">hiqqqhii", 0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
        + records
    )
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, _crc32c(tail)) + tail


# --- requests -----------------------------------------------------------------------------------------------


def produce_v7(topic: str, partitions: Iterable[int], batch: bytes, acks: int = 1) -> bytes:
    """The same batch to each of the partitions."""
    parts = _array(struct.pack(">ii", partition, len(batch)) + batch for partition in partitions)
    body = struct.pack(">hhi", -1, acks, TIMEOUT_MS) + _array([_string(topic) + parts])
    return request(PRODUCE, 7, body)


def fetch_v11(topic: str, partitions: Iterable[int], offset: int, partition_bytes_max: int) -> bytes:
    """A sessionless fetch that does not wait."""
    parts = _array(
        struct.pack(">iiqqi", partition, -1, offset, -1, partition_bytes_max) for partition in partitions
    )
    head = struct.pack(">iiiibii", -1, 0, 0, 0x7FFFFFFF, 0, 0, -1)
    return request(FETCH, 11, head + _array([_string(topic) + parts]) + _array([]) + _string(""))


def offset_commit_v2(group: str, topic: str, partition: int, offset: int) -> bytes:
    """Commit an offset to a group without members."""
    part = struct.pack(">iq", partition, offset) + _string("")
    head = _string(group) + struct.pack(">i", -1) + _string("") + struct.pack(">q", -1)
    return request(OFFSET_COMMIT, 2, head + _array([_string(topic) + _array([part])]))


def offset_commit_v2_errors(reply: bytes) -> list[int]:
    """Return the error code of each partition in a response, its correlation id included."""
    reader = Reader(reply, 4)
    errors = []
    for _ in range(reader.take(">i")):
        reader.string()
        errors += [reader.take_all(">ih")[1] for _ in range(reader.take(">i"))]
    return errors


def produce_v7_results(reply: bytes) -> list[tuple[int, int]]:
    """(error code, base offset) of each partition in a response, its correlation id included."""
    reader = Reader(reply, 4)
    results = []
    for _ in range(reader.take(">i")):
        reader.string()
        for _ in range(reader.take(">i")):
            _, error, base_offset, _, _ = reader.take_all(">ihqqq")
            results.append((error, base_offset))
    return results


def fetch_v11_results(reply: bytes) -> list[tuple[int, int]]:
    """(error code, size of the records) of each partition in a response, its correlation id included."""
    reader = Reader(reply, 4)
    _, error, _ = reader.take_all(">ihi")
    if error:
        raise WireError(f"Fetch failed with error {error}")
    results = []
    for _ in range(reader.take(">i")):
        reader.string()
        for _ in range(reader.take(">i")):
            error = reader.take_all(">ihqqq")[1]
            for _ in range(max(reader.take(">i"), 0)):
                reader.take_all(">qq")
            reader.take(">i")
            results.append((error, len(reader.bytes())))
    return results


class Reader:
    """A cursor over a response."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take_all(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return values

    def take(self, layout: str) -> int:
        return self.take_all(layout)[0]

    def string(self) -> str | None:
        size = self.take(">h")
        if size < 0:
            return None
        return self.raw(size).decode()

    def raw(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def bytes(self) -> bytes:
        return self.raw(max(self.take(">i"), 0))

    def uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(">B")
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def compact(self) -> builtins.bytes | None:
        """A compact string, as bytes."""
        size = self.uvarint() - 1
        return None if size < 0 else self.raw(size)


# --- a connection -------------------------------------------------------------------------------------------


class Connection:
    """A blocking connection with one request at a time."""

    def __init__(self, bootstrap: str, timeout_s: float = 60) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, frame: bytes) -> bytes:
        """Send a frame, return the response from its correlation id on. Raises OSError."""
        self._socket.sendall(frame)
        return self._receive(struct.unpack(">i", self._receive(4))[0])

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]
        return bytes(data)

    def hello(self) -> None:
        """Send ApiVersions v0. Raises WireError if the response has an error."""
        error = Reader(self.call(request(API_VERSIONS, 0, b"")), 4).take(">h")
        if error:
            raise WireError(f"ApiVersions failed with error {error}")

    def leaders(self, topic: str) -> list[int]:
        """The error code of each partition of a topic, 0 where a leader is known (Metadata v1)."""
        reader = Reader(self.call(request(METADATA, 1, _array([_string(topic)]))), 4)
        for _ in range(reader.take(">i")):
            reader.take(">i")
            reader.string()
            reader.take(">i")
            reader.string()
        reader.take(">i")
        errors = []
        for _ in range(reader.take(">i")):
            topic_error = reader.take(">h")
            reader.string()
            reader.take(">b")
            for _ in range(reader.take(">i")):
                error, _, leader = reader.take_all(">hii")
                errors.append(topic_error or error or (0 if leader >= 0 else 5))
                for _ in range(2):  # replicas, in-sync replicas
                    reader.take_all(f">{reader.take('>i')}i")
        return errors

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic and wait until it can be used. Raises WireError, TimeoutError."""
        body = _array([_string(topic) + struct.pack(">ih", partitions, 1) + _array([]) + _array([])])
        self._check_topic(
            self.call(request(CREATE_TOPICS, 2, body + struct.pack(">ib", TIMEOUT_MS, 0))), "create", True
        )
        self.wait_for_topic(topic, partitions)

    def end_offsets(self, topic: str, partitions: int) -> list[tuple[int, int]]:
        """(error code, end offset) of each partition (ListOffsets v1)."""
        parts = _array(struct.pack(">iq", partition, -1) for partition in range(partitions))
        body = struct.pack(">i", -1) + _array([_string(topic) + parts])
        reader = Reader(self.call(request(LIST_OFFSETS, 1, body)), 8)
        reader.string()
        ends = []
        for _ in range(reader.take(">i")):
            _, error, _, offset = reader.take_all(">ihqq")
            ends.append((error, offset))
        return ends

    def wait_for_coordinator(self, group: str, timeout_s: float = 60) -> None:
        """Wait until a group has a coordinator (FindCoordinator v0; it creates __consumer_offsets). Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while Reader(self.call(request(FIND_COORDINATOR, 0, _string(group))), 4).take(">h"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{group} has no coordinator yet")
            time.sleep(0.05)

    def wait_for_topic(
        self, topic: str, partitions: int, timeout_s: float = 60, poll_s: float = 0.005
    ) -> list[int]:
        """Wait until all partitions of a topic have leaders that answer; returns their end offsets. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self.leaders(topic) == [0] * partitions:
                ends = self.end_offsets(topic, partitions)
                if all(error == 0 for error, _ in ends):
                    return [offset for _, offset in ends]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has no leaders yet")
            time.sleep(poll_s)

    def delete_topic(self, topic: str) -> None:
        body = _array([_string(topic)]) + struct.pack(">i", TIMEOUT_MS)
        self._check_topic(self.call(request(DELETE_TOPICS, 1, body)), "delete", False)

    def _check_topic(self, reply: bytes, what: str, with_message: bool) -> None:
        reader = Reader(reply, 8)
        for _ in range(reader.take(">i")):
            name = reader.string()
            error = reader.take(">h")
            message = reader.string() if with_message else ""
            if error:
                raise WireError(f"could not {what} topic {name}: error {error} {message or ''}")

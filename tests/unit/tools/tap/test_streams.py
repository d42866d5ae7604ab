"""Streams of TCP put together, connections found in captures and told with their ends, and what is written of them."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest

from barnabas.tools.tap import reassembly
from barnabas.tools.tap.capture_writing import ACK, FIN, SYN, packet
from barnabas.tools.tap.captured import Captured, Report
from barnabas.tools.tap.exchange import Connection
from barnabas.tools.tap.reassembly import Reassembly
from barnabas.wire.generated.metadata import MetadataRequest
from tests.unit.tools.tap.test_session import Seen, metadata, request, response

IP4 = (b"\x0a\0\0\1", 40_000), (b"\x0a\0\0\2", 9092)


# --- streams --------------------------------------------------------------------------------------------------------


def feed(stream: Reassembly, *segments: tuple[int, bytes], missing: int = 0) -> list[Any]:
    """Feed segments; what was given, gaps as numbers."""
    found: list[Any] = []
    for sequence, payload in segments:
        found += [piece.gap or piece.data for piece in stream.feed(1.0, sequence, payload, missing)]
    return found


def test_early_segments_wait_up_to_a_number_and_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassembly, "WAITING_SEGMENTS_MAX", 3)
    monkeypatch.setattr(reassembly, "WAITING_BYTES_MAX", 10)
    stream = Reassembly()
    stream.begin(9)
    assert feed(stream, (20, b"a"), (30, b"b"), (40, b"c")) == []
    assert feed(stream, (50, b"d")) == [10, b"a"], "one too many"
    assert feed(stream, (21, b"." * 9)) == [b"." * 9, b"b"]
    assert feed(stream, (60, b"12345678")) == []
    assert feed(stream, (70, b"9")) == [9, b"c"], "eleven bytes are too many"
    longer = Reassembly()
    longer.begin(9)
    assert feed(longer, (12, b"ab"), (12, b"a"), (12, b"abcd"), (12, b"wxyz")) == []
    assert (longer.early, longer.repeated_bytes) == (4, 7)
    assert feed(longer, (10, b"__")) == [b"__", b"abcd"], "the longest of those at one place"
    assert feed(longer, (20, b"1234567"), (30, b"890")) == [], "the room was given back"


# --- connections ----------------------------------------------------------------------------------------------------

CLIENT, BROKER = IP4
PIECES = {"ask": request(3, 12, 1, MetadataRequest()), "answer": response(3, 12, 1, metadata())}


class Conversation:
    """Packets of a connection, with sequence numbers that go on; the client's begin at 100, the broker's at 500."""

    def __init__(self, client: tuple[bytes, int] = CLIENT, broker: tuple[bytes, int] = BROKER) -> None:
        self.ends = (client, broker)
        self.sequences = [100, 500]
        self.packets: list[bytes] = []

    def add(
        self, side: int, payload: bytes = b"", flags: int = ACK, *, is_lost: bool = False
    ) -> Conversation:
        source, target = self.ends[side], self.ends[1 - side]
        acknowledged = self.sequences[1 - side] if flags & ACK else 0
        if not is_lost:
            self.packets.append(packet(source, target, self.sequences[side], acknowledged, flags, payload))
        self.sequences[side] += len(payload) + bool(flags & (SYN | FIN))
        return self

    def opened(self) -> Conversation:
        return self.add(0, flags=SYN).add(1, flags=SYN | ACK).add(0)

    def asked(self, number: int = 1) -> Conversation:
        self.add(0, request(3, 12, number, MetadataRequest()))
        return self.add(1, response(3, 12, number, metadata()))


class Watching(Seen):
    """Remembers openings too."""

    def __init__(self) -> None:
        super().__init__()
        self.opens: list[tuple[str, str, float]] = []

    def opened(self, connection: Connection, at: float) -> None:
        self.opens.append((connection.client, connection.broker, at))


def read(*conversations: Conversation, ports: tuple[int, ...] = ()) -> tuple[Watching, Report]:
    seen_ = Watching()
    captured = Captured(seen_, ports=ports)
    data = b"\xd4\xc3\xb2\xa1" + struct.pack("<HHiIII", 2, 4, 0, 0, 65535, 101)
    for number, one in enumerate(one for found in conversations for one in found.packets):
        data += struct.pack("<IIII", 50 + number, 0, len(one), len(one)) + one
    return seen_, captured.read(io.BytesIO(data))


def answered(seen_: Seen) -> list[int]:
    return [one.request.correlation_id for one in seen_.exchanges if one.response is not None]


def test_without_syn_port_or_request_tells_the_client() -> None:
    for ports in ((9092,), (1, 9092)):
        found, _ = read(Conversation().add(1, b"rest").asked(5), ports=ports)
        assert found.opens == [("10.0.0.1:40000", "10.0.0.2:9092", 50.0)]
        assert answered(found) == [5]
        assert found.notes == ["the capture begins in the middle of this connection"]
    found, report = read(Conversation().add(1, b"rest").asked(5))
    assert found.opens == [("10.0.0.1:40000", "10.0.0.2:9092", 51.0)]
    assert report.other_segments == 1
    found, report = read(Conversation().add(1, b"rest").asked(5), ports=(9093,))
    assert (found.opens, report.other_segments) == ([], 3)


def test_connection_without_first_request_is_another_protocol() -> None:
    for first in (b"GET / HTTP/1.1\r\n\r\n", PIECES["ask"][:11], b"\0\0\0\7" + PIECES["ask"][4:]):
        found, report = read(Conversation().opened().add(0, first).add(1, b"answer"))
        assert (found.opens, report.connections, report.other_segments) == ([], 0, 3)
    found, report = read(Conversation().opened().add(1, PIECES["ask"]))
    assert (found.opens, report.other_segments) == ([], 2), "a broker does not ask"
    found, _ = read(Conversation().opened().add(0, b"GET / HTTP/1.1\r\n\r\n"), ports=(9092,))
    assert len(found.opens) == 1


def test_a_report_says_what_there_is_to_say() -> None:
    assert list(Report(packets=3).lines()) == ["3 packets, 0 connections with Kafka brokers"]
    report = Report(
        10,
        2,
        other_segments=3,
        missing_bytes=4,
        repeated_bytes=5,
        early_segments=6,
        lost_bytes=7,
        problem="x",
    )
    report.skipped.update({"of one kind": 1, "of another": 8})
    assert list(report.lines()) == [
        "10 packets, 2 connections with Kafka brokers", "8 of another", "1 of one kind",
        "3 TCP segments of other connections", "5 bytes were sent again, 6 segments came out of order",
        "4 bytes are missing: packets were not captured, or cut off (capture with -s 0)",
        "7 bytes lie before the first frame that could be found", "x",
    ]  # fmt: skip
    for one in (Report(repeated_bytes=1), Report(early_segments=1)):
        assert len(list(one.lines())) == 2

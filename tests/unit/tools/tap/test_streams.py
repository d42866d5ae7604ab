"""Streams of TCP put together, connections found in captures and told with their ends, and what is written of them."""

from __future__ import annotations

import io
import struct
from typing import Any

from barnabas.tools.tap.capture_reading import CaptureReader, Packet
from barnabas.tools.tap.capture_writing import ACK, FIN, PSH, SYN, CaptureWriter, packet
from barnabas.tools.tap.captured import Captured, Report
from barnabas.tools.tap.exchange import Connection
from barnabas.tools.tap.reassembly import Reassembly
from barnabas.wire.generated.metadata import MetadataRequest
from tests.unit.tools.tap.test_session import Seen, metadata, request, response

IP4 = (b"\x0a\0\0\1", 40_000), (b"\x0a\0\0\2", 9092)
IP6 = (b"\xfe\x80" + bytes(13) + b"\1", 40_000), (b"\xfe\x80" + bytes(13) + b"\2", 9092)


# --- streams --------------------------------------------------------------------------------------------------------


def feed(stream: Reassembly, *segments: tuple[int, bytes], missing: int = 0) -> list[Any]:
    """Feed segments; what was given, gaps as numbers."""
    result: list[Any] = []
    for sequence, payload in segments:
        result += [piece.gap or piece.data for piece in stream.feed(1.0, sequence, payload, missing)]
    return result


def test_the_end_of_a_payload_that_was_cut_off_is_a_gap() -> None:
    stream = Reassembly()
    stream.begin(9)
    assert feed(stream, (10, b"ab"), missing=3) == [b"ab", 3]
    assert feed(stream, (15, b"c")) == [b"c"]
    assert feed(stream, (15, b"cd")) == [b"d"], "half of it was there"
    assert stream.repeated_bytes == 1
    assert feed(stream, (17, b""), missing=2) == [2]
    assert feed(stream, (17, b""), missing=2) == []
    assert feed(stream, (17, b"xy"), missing=2) == [2], "the rest of it"
    assert (stream.repeated_bytes, stream.early) == (3, 0)


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
    watching = Watching()
    captured = Captured(watching, ports=ports)
    data = b"\xd4\xc3\xb2\xa1" + struct.pack("<HHiIII", 2, 4, 0, 0, 65535, 101)
    for number, entry in enumerate(entry for result in conversations for entry in result.packets):
        data += struct.pack("<IIII", 50 + number, 0, len(entry), len(entry)) + entry
    return watching, captured.read(io.BytesIO(data))


def answered(watching: Seen) -> list[int]:
    return [
        exchange.request.correlation_id for exchange in watching.exchanges if exchange.response is not None
    ]


def test_without_syn_port_or_request_tells_the_client() -> None:
    for ports in ((9092,), (1, 9092)):
        result, _ = read(Conversation().add(1, b"rest").asked(5), ports=ports)
        assert result.opens == [("10.0.0.1:40000", "10.0.0.2:9092", 50.0)]
        assert answered(result) == [5]
        assert result.notes == ["the capture begins in the middle of this connection"]
    result, report = read(Conversation().add(1, b"rest").asked(5))
    assert result.opens == [("10.0.0.1:40000", "10.0.0.2:9092", 51.0)]
    assert report.other_segments == 1
    result, report = read(Conversation().add(1, b"rest").asked(5), ports=(9093,))
    assert (result.opens, report.other_segments) == ([], 3)


def test_connection_without_first_request_is_another_protocol() -> None:
    for first in (b"GET / HTTP/1.1\r\n\r\n", PIECES["ask"][:11], b"\0\0\0\7" + PIECES["ask"][4:]):
        result, report = read(Conversation().opened().add(0, first).add(1, b"answer"))
        assert (result.opens, report.connections, report.other_segments) == ([], 0, 3)
    result, report = read(Conversation().opened().add(1, PIECES["ask"]))
    assert (result.opens, report.other_segments) == ([], 2), "a broker does not ask"
    result, _ = read(Conversation().opened().add(0, b"GET / HTTP/1.1\r\n\r\n"), ports=(9092,))
    assert len(result.opens) == 1


def test_side_without_captured_syn_is_found_later() -> None:
    conversation = Conversation().add(0, flags=SYN).add(1, flags=SYN | ACK, is_lost=True)
    conversation.add(0, PIECES["ask"]).add(1, b"junk").add(1, PIECES["answer"])
    result, report = read(conversation)
    assert (answered(result), report.lost_bytes) == ([1], 4)
    conversation = Conversation().add(0, flags=SYN, is_lost=True).add(1, flags=SYN | ACK)
    conversation.add(0, b"junk").add(0, PIECES["ask"]).add(1, PIECES["answer"])
    result, report = read(conversation, ports=(9092,))
    assert result.opens[0][:2] == ("10.0.0.1:40000", "10.0.0.2:9092")
    assert (answered(result), report.lost_bytes) == ([1], 4)


def test_lost_packet_is_reported_once_for_its_side() -> None:
    for side, name in ((0, "client"), (1, "broker")):
        conversation = Conversation().opened().asked(1)
        conversation.add(0, request(3, 12, 2, MetadataRequest()), is_lost=side == 0)
        conversation.add(1, response(3, 12, 2, metadata()), is_lost=side == 1)
        conversation.asked(3).asked(4)
        result, report = read(conversation)
        lost = len(request(3, 12, 2, MetadataRequest()) if side == 0 else response(3, 12, 2, metadata()))
        assert [note for note in result.notes if "missing" in note] == [
            f"{lost} bytes of the {name} are missing in the capture"
        ]
        assert (answered(result), report.missing_bytes) == ([1, 3, 4], lost)
        assert report.lost_bytes == (len(response(3, 12, 2, metadata())) if side == 0 else 0)


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
    for entry in (Report(repeated_bytes=1), Report(early_segments=1)):
        assert len(list(entry.lines())) == 2


# --- writing --------------------------------------------------------------------------------------------------------


def comments(data: bytes) -> list[tuple[bytes, str]]:
    """The payload and the comment of each packet that has one."""
    result, at = [], 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 6:
            kept = struct.unpack_from("<I", data, at + 20)[0]
            option = at + 28 + kept + -kept % 4
            if option < at + size - 4:
                code, length = struct.unpack_from("<HH", data, option)
                assert code == 1
                result.append(
                    (data[at + 28 : at + 28 + kept], data[option + 4 : option + 4 + length].decode())
                )
        assert data[at + size - 4 : at + size] == data[at + 4 : at + 8]
        at += size
    return result


def test_headers_are_those_of_ip_and_tcp_byte_for_byte() -> None:
    tcp = struct.pack(">HHIIBBHHH", 40_000, 9092, 7, 8, 5 << 4, ACK | PSH, 65_535, 0, 0)
    for ends, head in (
        (IP4, bytes.fromhex("4500 002a 0000 4000 4006 0000 0a000001 0a000002")),
        (IP6, bytes.fromhex("6000 0000 0016 0640") + IP6[0][0] + IP6[1][0]),
    ):
        written = bytearray(packet(ends[0], ends[1], 7, 8, ACK | PSH, b"ab"))
        if ends is IP4:
            assert written[10:12] != b"\0\0"
            written[10:12] = b"\0\0"
        assert written[len(head) + 16 : len(head) + 18] != b"\0\0"
        written[len(head) + 16 : len(head) + 18] = b"\0\0"
        assert bytes(written) == head + tcp + b"ab"


def test_a_comment_is_cut_and_a_time_before_1970_is_that() -> None:
    file = io.BytesIO()
    writer = CaptureWriter(file, "app")
    writer.packet(b"abcde", -5.0, "x" * 500)
    writer.packet(b"f", 5000.0000015)
    assert comments(file.getvalue()) == [(b"abcde", "x" * 400)]
    file.seek(0)
    assert list(CaptureReader(file).packets()) == [
        Packet(0.0, 101, b"abcde", 5),
        Packet(5000.000002, 101, b"f", 1),
    ]

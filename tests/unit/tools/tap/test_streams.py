"""Streams of TCP put together, connections found in captures and told with their ends, and what is written of them."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest

from barnabas.tools.tap import reassembly
from barnabas.tools.tap.capture_reading import CaptureReader, Packet
from barnabas.tools.tap.capture_writing import ACK, FIN, PSH, RST, SYN, CaptureWriter, packet
from barnabas.tools.tap.captured import Captured, Report
from barnabas.tools.tap.exchange import Connection, Exchange
from barnabas.tools.tap.packets import Segment, segment_of
from barnabas.tools.tap.reassembly import Piece, Reassembly
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.effort import drawing
from tests.unit.tools.tap.test_session import Seen, metadata, request, response

IP4 = (b"\x0a\0\0\1", 40_000), (b"\x0a\0\0\2", 9092)
IP6 = (b"\xfe\x80" + bytes(13) + b"\1", 40_000), (b"\xfe\x80" + bytes(13) + b"\2", 9092)


# --- streams --------------------------------------------------------------------------------------------------------


def test_segments_are_given_once_in_order_with_what_is_missing() -> None:
    """A random stream: every byte is given, or is in a gap, and no byte that came is in one."""
    rng = drawing()
    for _ in range(200):
        data = rng.randbytes(rng.randrange(1, 60))
        start = rng.choice((0, 1000, 2**32 - 20))
        stream = Reassembly()
        assert not stream.has_begun
        stream.begin((start - 1) % 2**32)
        assert stream.has_begun
        known: set[int] = set()
        given = bytearray()
        pieces: list[Piece] = []
        total = 0
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(data))
            payload = data[at : at + rng.randrange(1, 9)]
            total += len(payload)
            known.update(range(at, at + len(payload)))
            pieces += stream.feed(float(at), (start + at) % 2**32, payload)
        pieces += stream.finish()
        for piece in pieces:
            if piece.gap:
                assert not piece.data
                assert not known & set(range(len(given), len(given) + piece.gap)), "what came is not missing"
                given += bytes(piece.gap)
            else:
                assert piece.data == data[len(given) : len(given) + len(piece.data)]
                given += piece.data
        assert len(given) == max(known) + 1
        assert stream.repeated_bytes == total - len(known)
        assert list(stream.finish()) == []


def feed(stream: Reassembly, *segments: tuple[int, bytes], missing: int = 0) -> list[Any]:
    """Feed segments; what was given, gaps as numbers."""
    found: list[Any] = []
    for sequence, payload in segments:
        found += [piece.gap or piece.data for piece in stream.feed(1.0, sequence, payload, missing)]
    return found


def test_the_first_segment_begins_a_stream_that_nobody_has_begun() -> None:
    stream = Reassembly()
    assert feed(stream, (70, b"")) == []
    assert not stream.has_begun
    assert feed(stream, (70, b"ab"), (72, b"c")) == [b"ab", b"c"]
    stream.begin(9)
    assert feed(stream, (10, b"x")) == [b"x"], "it begins again"


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


def test_what_is_acknowledged_and_did_not_come_is_a_gap_at_once() -> None:
    stream = Reassembly()
    stream.begin(9)
    assert feed(stream, (12, b"cd"), (16, b"gh")) == []
    assert list(stream.acknowledged(10)) == []
    assert [piece.gap or piece.data for piece in stream.acknowledged(11)] == [2, b"cd"]
    assert list(stream.acknowledged(14)) == []
    assert [piece.gap or piece.data for piece in stream.acknowledged(18)] == [2, b"gh"]
    assert stream.early == 2
    assert list(Reassembly().acknowledged(5)) == []


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


def test_a_whole_connection_has_its_addresses_times_and_end() -> None:
    found, report = read(Conversation().opened().asked().add(0, flags=FIN | ACK).add(1, flags=FIN | ACK))
    assert found.opens == [("10.0.0.1:40000", "10.0.0.2:9092", 53.0)]
    assert (answered(found), found.notes, found.ends) == ([1], [], ["closed"])
    (exchange,) = found.exchanges
    assert (exchange.sent_at, exchange.answered_at) == (53.0, 54.0)
    assert report == Report(packets=7, connections=1, other_segments=1)  # the ACK before anything is said


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ([(0, RST)], "reset by the client"),
        ([(1, RST | ACK)], "reset by the broker"),
        ([(0, FIN | ACK)], "the capture ends"),
        ([(1, FIN | ACK), (0, FIN | ACK)], "closed"),
    ],
)
def test_a_connection_ends_for_a_reason(end: list[tuple[int, int]], reason: str) -> None:
    conversation = Conversation().opened().asked()
    for side, flags in end:
        conversation.add(side, flags=flags)
    assert read(conversation)[0].ends == [reason]


def test_connections_of_ipv6_have_their_addresses_in_brackets() -> None:
    found, _ = read(Conversation(*IP6).opened().asked())
    assert found.opens[0][:2] == ("[fe80::1]:40000", "[fe80::2]:9092")


def test_an_address_that_is_used_again_is_another_connection() -> None:
    first, second = Conversation().opened().asked(), Conversation()
    second.sequences = [900, 20]
    found, report = read(first, second.opened().asked(7))
    assert answered(found) == [1, 7]
    assert found.ends == ["the address was used again", "the capture ends"]
    assert report.connections == 2


def test_several_connections_at_once_do_not_meet() -> None:
    one, other = Conversation().opened(), Conversation((CLIENT[0], 40_001), BROKER).opened()
    one.add(0, PIECES["ask"])
    other.add(0, request(3, 12, 8, MetadataRequest()))
    both = Conversation()
    both.packets = one.packets + other.packets
    one.packets, other.packets = [], []
    other.add(1, response(3, 12, 8, metadata()))
    one.add(1, PIECES["answer"])
    found, report = read(both, other, one)
    assert answered(found) == [8, 1]
    assert (report.connections, found.notes) == (2, [])


def test_without_a_syn_the_brokers_port_or_a_request_says_who_is_the_client() -> None:
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


def test_a_connection_that_does_not_begin_with_a_request_is_another_protocols() -> None:
    for first in (b"GET / HTTP/1.1\r\n\r\n", PIECES["ask"][:11], b"\0\0\0\7" + PIECES["ask"][4:]):
        found, report = read(Conversation().opened().add(0, first).add(1, b"answer"))
        assert (found.opens, report.connections, report.other_segments) == ([], 0, 3)
    found, report = read(Conversation().opened().add(1, PIECES["ask"]))
    assert (found.opens, report.other_segments) == ([], 2), "a broker does not ask"
    found, _ = read(Conversation().opened().add(0, b"GET / HTTP/1.1\r\n\r\n"), ports=(9092,))
    assert len(found.opens) == 1


def test_a_syn_that_was_not_captured_leaves_that_side_to_be_found() -> None:
    conversation = Conversation().add(0, flags=SYN).add(1, flags=SYN | ACK, is_lost=True)
    conversation.add(0, PIECES["ask"]).add(1, b"junk").add(1, PIECES["answer"])
    found, report = read(conversation)
    assert (answered(found), report.lost_bytes) == ([1], 4)
    conversation = Conversation().add(0, flags=SYN, is_lost=True).add(1, flags=SYN | ACK)
    conversation.add(0, b"junk").add(0, PIECES["ask"]).add(1, PIECES["answer"])
    found, report = read(conversation, ports=(9092,))
    assert found.opens[0][:2] == ("10.0.0.1:40000", "10.0.0.2:9092")
    assert (answered(found), report.lost_bytes) == ([1], 4)


def test_a_lost_packet_is_told_once_for_its_side_and_reading_goes_on() -> None:
    for side, name in ((0, "client"), (1, "broker")):
        conversation = Conversation().opened().asked(1)
        conversation.add(0, request(3, 12, 2, MetadataRequest()), is_lost=side == 0)
        conversation.add(1, response(3, 12, 2, metadata()), is_lost=side == 1)
        conversation.asked(3).asked(4)
        found, report = read(conversation)
        lost = len(request(3, 12, 2, MetadataRequest()) if side == 0 else response(3, 12, 2, metadata()))
        assert [note for note in found.notes if "missing" in note] == [
            f"{lost} bytes of the {name} are missing in the capture"
        ]
        assert (answered(found), report.missing_bytes) == ([1, 3, 4], lost)
        assert report.lost_bytes == (len(response(3, 12, 2, metadata())) if side == 0 else 0)


def test_bytes_that_come_again_or_too_early_are_counted() -> None:
    conversation = Conversation().opened().asked()
    again = conversation.packets[3]
    conversation.packets.append(again)
    late = (
        Conversation((CLIENT[0], 40_002), BROKER)
        .opened()
        .add(0, PIECES["ask"][:15])
        .add(0, PIECES["ask"][15:])
    )
    late.packets[3:] = late.packets[:2:-1]
    found, report = read(conversation, late, ports=(9092,))
    assert (report.repeated_bytes, report.early_segments) == (len(PIECES["ask"]), 1)
    assert [one.request.api for one in found.exchanges] == ["Metadata", "Metadata"]


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


# --- writing --------------------------------------------------------------------------------------------------------


def comments(data: bytes) -> list[tuple[bytes, str]]:
    """The payload and the comment of each packet that has one."""
    found, at = [], 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 6:
            kept = struct.unpack_from("<I", data, at + 20)[0]
            option = at + 28 + kept + -kept % 4
            if option < at + size - 4:
                code, length = struct.unpack_from("<HH", data, option)
                assert code == 1
                found.append(
                    (data[at + 28 : at + 28 + kept], data[option + 4 : option + 4 + length].decode())
                )
        assert data[at + size - 4 : at + size] == data[at + 4 : at + 8]
        at += size
    return found


class Named:
    """A keeper that gives its frames to a stream of a capture as if they were of this connection."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __call__(self, exchange: Exchange, frame: Any, size: int, *, from_client: bool, at: float) -> None:
        self.stream(exchange, frame, size, from_client=from_client, at=at)


def test_frames_are_written_in_segments_with_flags_numbers_and_a_comment() -> None:
    file = io.BytesIO()
    writer = CaptureWriter(file, "app")
    stream = writer.stream(("10.0.0.1", 40_000), ("10.0.0.2", 9092), 4.0)
    seen_ = Seen()
    from tests.unit.tools.tap.test_session import session_of

    session = session_of(seen_, keeper=Named(stream))
    session.from_client(PIECES["ask"], 5.0)
    session.from_broker(PIECES["answer"], 6.25)
    exchange = seen_.exchanges[0]
    big = bytes(120_001 - 4)
    stream(exchange, big, len(big) + 50, from_client=False, at=7.0)  # 50 bytes are not kept
    stream.close(8.0)
    file.seek(0)
    found = [segment_of(one) for one in CaptureReader(file).packets()]
    asked, told = len(PIECES["ask"]), len(PIECES["answer"])
    ends = 1 + told + 120_001 + 50
    assert [
        (one.at, one.source[1], one.sequence, one.acknowledged, one.flags, len(one.payload))
        for one in found if isinstance(one, Segment)
    ] == [
        (4.0, 40_000, 0, None, SYN, 0), (4.0, 9092, 0, 1, SYN | ACK, 0), (4.0, 40_000, 1, 1, ACK, 0),
        (5.0, 40_000, 1, 1, ACK | PSH, asked), (6.25, 9092, 1, 1 + asked, ACK | PSH, told),
        (7.0, 9092, 1 + told, 1 + asked, ACK, 60_000), (7.0, 9092, 1 + told + 60_000, 1 + asked, ACK, 60_000),
        (7.0, 9092, 1 + told + 120_000, 1 + asked, ACK | PSH, 1),
        (8.0, 40_000, 1 + asked, ends, FIN | ACK, 0), (8.0, 9092, ends, 2 + asked, FIN | ACK, 0),
        (8.0, 40_000, 2 + asked, ends + 1, ACK, 0),
    ]  # fmt: skip
    told_ = [text for _, text in comments(file.getvalue())]
    assert told_ == ["#1.1 Metadata v12 request no topics", "#1.1 Metadata v12 answer ok 1 broker", told_[1]]


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


def test_a_capture_that_cannot_be_written_ends_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    class Full(io.BytesIO):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def write(self, data: Any) -> int:
            self.calls += 1
            if self.calls > 2:
                raise OSError("disk full")
            return super().write(data)

    file = Full()
    writer = CaptureWriter(file, "app")
    assert writer.failure is None
    for _ in range(3):
        writer.packet(b"a", 1.0)
    assert (file.calls, str(writer.failure)) == (3, "disk full")
    assert caplog.text.count("disk full") == 1
    writer.close()
    assert not file.closed
    whole = io.BytesIO()
    CaptureWriter(whole, "app").close()
    assert whole.closed

"""Captures: written and read again, of others, out of order, cut."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import pytest

from barnabas.tools.tap import capture_writing as writing
from barnabas.tools.tap.capture_reading import CaptureError, CaptureReader, Packet
from barnabas.tools.tap.captured import Captured
from barnabas.tools.tap.packets import ETHERNET, LINUX_COOKED, LINUX_COOKED_2, LOOP, NULL, segment_of
from barnabas.tools.tap.reassembly import Reassembly
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.tools.tap.test_session import Seen, metadata, request, response, session_of

CLIENT, BROKER = ("10.0.0.1", 40_000), ("10.0.0.2", 9092)


def written(
    *steps: tuple[bool, bytes], client: tuple[str, int] = CLIENT, broker: tuple[str, int] = BROKER
) -> bytes:
    """The capture of a conversation: which side sends what."""
    file = io.BytesIO()
    writer = writing.CaptureWriter(file, "test")
    stream = writer.stream(client, broker, 1_700_000_000.0)
    session = session_of(Seen(), keeper=stream)
    for number, (is_client, data) in enumerate(steps):
        at = 1_700_000_000.001 + number / 1000
        if is_client:
            session.from_client(data, at)
        else:
            session.from_broker(data, at)
    stream.close(1_700_000_001.0)
    return file.getvalue()


CONVERSATION = (
    (True, request(3, 12, 1, MetadataRequest())),
    (False, response(3, 12, 1, metadata())),
    (True, request(3, 12, 2, MetadataRequest()) + request(3, 12, 3, MetadataRequest())),
    (False, response(3, 12, 2, metadata()) + response(3, 12, 3, metadata())),
)


def read(data: bytes, *ports: int) -> tuple[Seen, Captured]:
    seen = Seen()
    captured = Captured(seen, ports=ports)
    captured.read(io.BytesIO(data))
    return seen, captured


@pytest.mark.parametrize(
    "addresses", [(CLIENT, BROKER), (("::1", 40_000), ("::1", 9092)), (("::1", 40_000), ("10.0.0.2", 9092))]
)
def test_what_is_written_is_read_again(addresses: tuple[tuple[str, int], tuple[str, int]]) -> None:
    seen, captured = read(written(*CONVERSATION, client=addresses[0], broker=addresses[1]))
    assert [exchange.request.correlation_id for exchange in seen.exchanges] == [1, 2, 3]
    assert all(row.response is not None and row.response.message == metadata() for row in seen.exchanges)
    assert seen.exchanges[0].latency_ms == pytest.approx(1.0, abs=0.01)
    assert captured.report.connections == 1
    assert captured.report.missing_bytes == 0


def test_passwords_are_not_in_the_capture() -> None:
    data = written(
        (True, request(17, 1, 1, SaslHandshakeRequest("PLAIN"))),
        (False, response(17, 1, 1, SaslHandshakeResponse(mechanisms=["PLAIN"]))),
        (True, request(36, 2, 2, SaslAuthenticateRequest(b"\0alice\0hunter2"))),
    )
    assert b"hunter2" not in data
    seen, _ = read(data)
    assert seen.exchanges[1].request.message.auth_bytes == b"*" * 14


def packets_of(data: bytes) -> list[Packet]:
    return list(CaptureReader(io.BytesIO(data)).packets())


def pcap(
    packets: list[bytes], link_type: int, order: str = "<", magic: int = 0xA1B2C3D4, cut: int = 0
) -> bytes:
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link_type)
    for number, data in enumerate(packets):
        kept = data[:cut] if cut else data
        out += struct.pack(order + "IIII", 1_700_000_000 + number, 5, len(kept), len(data)) + kept
    return out


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (ETHERNET, bytes(12) + b"\x08\0"),
        (ETHERNET, bytes(12) + b"\x81\0\0\x05\x08\0"),
        (LINUX_COOKED, bytes(14) + b"\x08\0"),
        (LINUX_COOKED_2, b"\x08\0" + bytes(18)),
        (NULL, b"\2\0\0\0"),
        (LOOP, b"\0\0\0\2"),
        (101, b""),
        (228, b""),
    ],
)
@pytest.mark.parametrize(("order", "magic"), [("<", 0xA1B2C3D4), (">", 0xA1B2C3D4), ("<", 0xA1B23C4D)])
def test_link_types_and_kinds_of_pcap(link_type: int, head: bytes, order: str, magic: int) -> None:
    packets = [head + entry.data for entry in packets_of(written(*CONVERSATION))]
    seen, _ = read(pcap(packets, link_type, order, magic))
    assert len(seen.exchanges) == 3


def test_packets_out_of_order_and_repeated_are_put_together() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    data = bytes(rng.randrange(256) for _ in range(20_000))
    for start in (0, 2**32 - 5_000):
        segments = []
        at = 0
        while at < len(data):
            size = rng.randrange(1, 700)
            segments.append((at, data[at : at + size]))
            at += size - (rng.randrange(5) if rng.random() < 0.2 else 0) if size > 5 else size
        mixed = sorted(range(len(segments)), key=lambda n: n + rng.uniform(0, 8))
        mixed += [rng.randrange(len(segments)) for _ in range(20)]
        stream = Reassembly()
        stream.begin((start - 1) % 2**32)
        result = b""
        for number in mixed:
            at, payload = segments[number]
            for piece in stream.feed(0.0, (start + at) % 2**32, payload):
                assert not piece.gap
                result += piece.data
        assert result == data


def test_lost_packet_is_a_gap_and_reading_resumes() -> None:
    packets = [exchange.data for exchange in packets_of(written(*CONVERSATION))]
    requests = [
        n
        for n, exchange in enumerate(packets)
        if len(exchange) > 40 and exchange[20:22] == struct.pack(">H", 40_000)
    ]
    del packets[requests[1]]  # the second request
    seen, captured = read(pcap(packets, 101))
    answered = [
        exchange.request.correlation_id for exchange in seen.exchanges if exchange.response is not None
    ]
    assert answered == [1, 3]
    assert captured.report.missing_bytes == len(request(3, 12, 2, MetadataRequest()))
    assert any("missing in the capture" in note for note in seen.notes)


def test_packets_that_were_cut_off_are_said() -> None:
    packets = [exchange.data for exchange in packets_of(written(*CONVERSATION))]
    seen, captured = read(pcap(packets, 101, cut=60))
    assert captured.report.missing_bytes
    assert any(
        "not decoded" in exchange.request.problem or "cut" in exchange.request.problem
        for exchange in seen.exchanges
    )
    assert any("-s 0" in line for line in captured.report.lines())


def test_capture_from_the_middle_is_read_from_next_request() -> None:
    packets = [exchange.data for exchange in packets_of(written(*CONVERSATION))][5:]
    for ports in ((9092,), ()):
        seen, _ = read(pcap(packets, 101), *ports)
        assert [exchange.request.correlation_id for exchange in seen.exchanges] == [2, 3]
        assert "begins in the middle" in seen.notes[0]


def test_connections_with_others_are_left_out() -> None:
    seen, captured = read(written(*CONVERSATION), 9999)
    assert not seen.exchanges
    assert captured.report.other_segments


def test_damaged_files_are_refused_or_read_up_to_the_damage(tmp_path: Path) -> None:
    data = written(*CONVERSATION)
    for end in range(0, len(data), 7):
        reader = CaptureReader(io.BytesIO(data[:end]))
        try:
            count = len(list(reader.packets()))
        except CaptureError:
            assert end < 100
        else:
            assert count < len(packets_of(data)) or end == len(data)
    with pytest.raises(CaptureError, match="neither pcap nor pcapng"):
        list(CaptureReader(io.BytesIO(b"hello world")).packets())
    rng = random.Random(5)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(3):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            Captured(Seen()).read(io.BytesIO(bytes(broken)))
        except CaptureError:
            continue


def test_fragments_and_unknown_link_types_are_counted() -> None:
    assert segment_of(Packet(0, 999, b"x" * 40, 40)) == "packets of link type 999, which is not read"
    packet = bytearray(packets_of(written(*CONVERSATION))[4].data)
    packet[6] = 0x20
    assert "fragments" in str(segment_of(Packet(0, 101, bytes(packet), len(packet))))

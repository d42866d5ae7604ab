"""Packets of captures, field by field: files of each kind, and the headers of each layer."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest

from barnabas.tools.tap.capture_reading import BLOCK_BYTES_MAX, CaptureError, CaptureReader, Packet
from barnabas.tools.tap.capture_writing import ACK, PSH, packet
from barnabas.tools.tap.packets import Segment, segment_of

IP4 = (b"\x0a\0\0\1", 40_000), (b"\x0a\0\0\2", 9092)
IP6 = (b"\xfe\x80" + bytes(13) + b"\1", 40_000), (b"\xfe\x80" + bytes(13) + b"\2", 9092)
RAW, ETHERNET = 101, 1


def raw(*ends: tuple[bytes, int], payload: bytes = b"payload", flags: int = ACK | PSH) -> bytes:
    return packet(ends[0], ends[1], 1111, 2222, flags, payload)


def seen(
    data: bytes, link_type: int = RAW, cut: int | None = None, size: int | None = None
) -> Segment | str | None:
    return segment_of(Packet(5.5, link_type, data[:cut], len(data) if size is None else size))


# --- headers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [IP4, IP6])
def test_what_is_cut_off_is_said_or_counted_as_missing(ends: Any) -> None:
    data = raw(*ends)
    header = 20 if ends is IP4 else 40
    assert seen(data, cut=0) == "packets without an IP header"
    assert {seen(data, cut=end) for end in range(1, header)} == {"packets whose IP header is cut off"}
    assert {seen(data, cut=end) for end in range(header, header + 20)} == {
        "packets whose TCP header is cut off"
    }
    for kept in range(8):
        result = seen(data, cut=header + 20 + kept)
        assert isinstance(result, Segment)
        assert (result.payload, result.missing) == (b"payload"[:kept], 7 - kept)


@pytest.mark.parametrize(
    ("link_type", "head", "is_read"),
    [
        (ETHERNET, bytes(12) + b"\x08\0", True),
        (ETHERNET, bytes(12) + b"\x86\xdd", True),
        (ETHERNET, bytes(12) + b"\x81\0\0\5\x88\xa8\0\6\x91\0\0\7\x08\0", True),
        (ETHERNET, bytes(12) + b"\x08\6", False),
        (ETHERNET, bytes(12) + b"\x81\0\0\5\x08\6", False),
        (113, bytes(14) + b"\x86\xdd", True),
        (113, bytes(14) + b"\x08\6", False),
        (276, b"\x86\xdd" + bytes(18), True),
        (276, b"\x08\6" + bytes(18), False),
        (229, b"", True),
    ],
)
def test_the_link_layer_says_whether_ip_follows(link_type: int, head: bytes, is_read: bool) -> None:
    result = seen(head + raw(*IP6), link_type)
    assert isinstance(result, Segment) is is_read
    assert is_read or result is None


# --- files ----------------------------------------------------------------------------------------------------------


def pcapng(*blocks: tuple[int, bytes], order: str = "<") -> bytes:
    section = (0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    return b"".join(block(kind, body, order) for kind, body in (section, *blocks))


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    size = 12 + len(body)
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def interface(link_type: int, snap: int = 0, options: bytes = b"", order: str = "<") -> tuple[int, bytes]:
    return 1, struct.pack(order + "HHI", link_type, 0, snap) + options


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def test_a_simple_packet_without_a_limit_is_whole() -> None:
    data = pcapng(interface(101, 0), (3, struct.pack("<I", 5) + padded(b"klmno")))
    assert [packet.data for packet in CaptureReader(io.BytesIO(data)).packets()] == [b"klmno"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "begins with nothing"),
        (b"GET ", "begins with 47 45 54 20"),
        (b"\xd4\xc3\xb2\xa1" + bytes(19), "the file's header is cut short"),
        (b"\xd4\xc3\xb2\xa1" + bytes(20) + struct.pack("<IIII", 0, 0, BLOCK_BYTES_MAX + 1, 0), "67108865 bytes cannot be"),
        (b"\x0a\x0d\x0d\x0a" + bytes(8), "the byte order of a section cannot be 00000000"),
        (b"\x0a\x0d\x0d\x0a" + bytes(4), "the byte order of a section cannot be missing"),
        (pcapng(interface(1))[:28] + struct.pack("<II", 6, 8), "a block of 8 bytes cannot be"),
        (pcapng(interface(1)) + struct.pack("<II", 6, 14), "a block of 14 bytes cannot be"),
        (pcapng(interface(1)) + struct.pack("<II", 6, BLOCK_BYTES_MAX + 4), "a block of 67108868 bytes cannot be"),
        (pcapng((1, b"\0\0\0\0")), "the description of an interface is cut short"),
        (pcapng(interface(1), (6, struct.pack("<IIIII", 0, 0, 0, 5, 5) + b"abcd")), "larger than its block"),
        (pcapng(interface(1), (6, b"\0\0\0\0")), "a packet's header is broken"),
        (pcapng(interface(1), (6, struct.pack("<IIIII", 1, 0, 0, 0, 0))), "an interface that is not described"),
    ],
)  # fmt: skip
def test_a_file_that_is_damaged_is_refused_with_its_reason(data: bytes, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        list(CaptureReader(io.BytesIO(data)).packets())

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
        found = seen(data, cut=header + 20 + kept)
        assert isinstance(found, Segment)
        assert (found.payload, found.missing) == (b"payload"[:kept], 7 - kept)


@pytest.mark.parametrize("kind", [0, 43, 60, 135, 139, 140])
def test_extension_headers_of_ipv6_are_passed_over(kind: int) -> None:
    data = raw(*IP6)
    for units in (0, 1):
        extension = bytes([6, units]) + bytes(6 + 8 * units)
        longer = bytearray(data[:40] + extension + data[40:])
        longer[4:6] = (len(longer) - 40).to_bytes(2, "big")
        longer[6] = kind
        found = seen(bytes(longer))
        assert isinstance(found, Segment)
        assert (found.target, found.payload, found.missing) == (("fe80::2", 9092), b"payload", 0)
        assert seen(bytes(longer), cut=41) == "packets whose IP header is cut off"
        assert seen(bytes(longer), cut=42 + 6 + 8 * units) == "packets whose TCP header is cut off"
        longer[40] = 44
        assert seen(bytes(longer)) == "IP fragments, which are not put together"
        longer[40] = 17
        assert seen(bytes(longer)) is None


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
    found = seen(head + raw(*IP6), link_type)
    assert isinstance(found, Segment) is is_read
    assert is_read or found is None


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


@pytest.mark.parametrize("order", ["<", ">"])
def test_packets_of_each_kind_have_time_link_type_bytes_and_size(order: str) -> None:
    def fields(form: str, *values: int) -> bytes:
        return struct.pack(order + form, *values)

    nanoseconds = struct.pack(order + "HH", 9, 1) + b"\x09\0\0\0"
    later = struct.pack(order + "HHq", 14, 8, 100)
    data = pcapng(
        interface(101, 5, order=order),
        interface(113, 0, nanoseconds + later, order=order),
        (6, fields("IIIII", 0, 1, 500_000, 3, 30) + padded(b"abc")),
        (6, fields("IIIII", 1, 0, 2_500_000_000, 5, 5) + padded(b"defgh")),
        (99, b"what nobody knows"[:16]),
        (2, fields("HHIIII", 1, 7, 0, 1_500_000_000, 2, 20) + padded(b"ij")),
        (3, fields("I", 9) + padded(b"klmno")),
        (3, fields("I", 2) + padded(b"pq")),
        order=order,
    )
    reader = CaptureReader(io.BytesIO(data))
    assert list(reader.packets()) == [
        Packet((2**32 + 500_000) / 1_000_000, 101, b"abc", 30), Packet(102.5, 113, b"defgh", 5),
        Packet(101.5, 113, b"ij", 20), Packet(0.0, 101, b"klmno", 9), Packet(0.0, 101, b"pq", 2),
    ]  # fmt: skip
    assert reader.problem == ""


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

"""Packets of captures, field by field: files of each kind, and the headers of each layer."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest

from barnabas.tools.tap.capture_reading import BLOCK_BYTES_MAX, CaptureError, CaptureReader, Packet
from barnabas.tools.tap.capture_writing import ACK, PSH, SYN, packet
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


def test_a_segment_has_the_fields_of_its_headers() -> None:
    for ends, names in ((IP4, ("10.0.0.1", "10.0.0.2")), (IP6, ("fe80::1", "fe80::2"))):
        expected = Segment(5.5, (names[0], 40_000), (names[1], 9092), 1111, 2222, ACK | PSH, b"payload", 0)
        assert seen(raw(*ends)) == expected
        for link_type in (12, 14):
            assert seen(raw(*ends), link_type) == expected
        assert seen(raw(*ends) + b"padding") == expected, "what Ethernet pads is no payload"
    assert seen(raw(*IP4, flags=SYN)) == Segment(
        5.5, ("10.0.0.1", 40_000), ("10.0.0.2", 9092), 1111, None, SYN, b"payload", 0
    )


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


def test_options_of_both_headers_are_passed_over() -> None:
    data = raw(*IP4)
    with_options = bytearray(data[:20] + b"\1" * 8 + data[20:40] + b"\1" * 4 + data[40:])
    with_options[0] = 0x47
    with_options[2:4] = len(with_options).to_bytes(2, "big")
    with_options[28 + 12] = 6 << 4
    found = seen(bytes(with_options))
    assert isinstance(found, Segment)
    assert (found.source[1], found.sequence, found.payload, found.missing) == (40_000, 1111, b"payload", 0)


def test_a_length_of_zero_is_that_of_the_packet() -> None:
    for ends, at in ((IP4, 2), (IP6, 4)):
        data = bytearray(raw(*ends))
        data[at : at + 2] = b"\0\0"
        for head, link_type in (
            (b"", RAW),
            (bytes(12) + (b"\x08\0" if ends is IP4 else b"\x86\xdd"), ETHERNET),
        ):
            whole = head + bytes(data)
            found = seen(whole, link_type, cut=len(whole) - 3)
            assert isinstance(found, Segment)
            assert (found.payload, found.missing) == (b"payl", 3)


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
    ("at", "value", "found"),
    [
        (9, 17, None),  # UDP
        (0, 0x55, None),  # no IP that there is
        (6, 0x40, "segment"),  # not to be fragmented
        (6, 0x20, "IP fragments, which are not put together"),
        (7, 0x01, "IP fragments, which are not put together"),
    ],
)
def test_what_is_no_tcp_is_passed_over_and_fragments_are_said(at: int, value: int, found: str | None) -> None:
    data = bytearray(raw(*IP4))
    data[at] = value
    got = seen(bytes(data))
    assert ("segment" if isinstance(got, Segment) else got) == found


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


def test_a_simple_packet_without_a_limit_is_whole() -> None:
    data = pcapng(interface(101, 0), (3, struct.pack("<I", 5) + padded(b"klmno")))
    assert [one.data for one in CaptureReader(io.BytesIO(data)).packets()] == [b"klmno"]


def test_each_section_has_its_own_byte_order_and_interfaces() -> None:
    one = pcapng(interface(101), (6, struct.pack("<IIIII", 0, 0, 1_000_000, 1, 1) + padded(b"a")))
    other = pcapng(
        interface(113, order=">"), (6, struct.pack(">IIIII", 0, 0, 2_000_000, 1, 1) + padded(b"b")), order=">"
    )
    for data in (one + other, other + one):
        found = {packet_.data: packet_ for packet_ in CaptureReader(io.BytesIO(data)).packets()}
        assert found == {b"a": Packet(1.0, 101, b"a", 1), b"b": Packet(2.0, 113, b"b", 1)}
    bare = pcapng((6, struct.pack("<IIIII", 0, 0, 0, 1, 1) + padded(b"a")))
    with pytest.raises(CaptureError, match="an interface that is not described"):
        list(CaptureReader(io.BytesIO(one + bare)).packets())


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


def test_a_file_that_ends_early_gives_the_packets_before_and_says_so() -> None:
    pcap = b"\xd4\xc3\xb2\xa1" + struct.pack("<HHiIII", 2, 4, 0, 0, 65535, 0xF000_0065)
    whole = pcap + struct.pack("<IIII", 7, 250_000, 3, 30) + b"abc"
    expected = Packet(7.25, 101, b"abc", 30)
    assert list(CaptureReader(io.BytesIO(whole)).packets()) == [expected]
    tail = struct.pack("<IIII", 8, 0, 3, 30) + b"ab"
    for end in range(len(tail) + 1):
        reader = CaptureReader(io.BytesIO(whole + tail[:end]))
        assert list(reader.packets()) == [expected]
        assert reader.problem == ("the file ends in the middle of a packet" if end else "")
    data = pcapng(interface(101), (6, struct.pack("<IIIII", 0, 0, 1_000_000, 1, 1) + padded(b"a")))
    last = len(block(6, bytes(24)))
    for end in range(len(data) - last, len(data)):
        reader = CaptureReader(io.BytesIO(data[:end]))
        assert list(reader.packets()) == []
        there = end - (len(data) - last)
        what = "block" if there in (4, 8) else "packet"  # after its kind, after its size
        assert reader.problem == (f"the file ends in the middle of a {what}" if there else "")

"""TCP segments in packets of the common link types, IPv4 and IPv6. Pure.

The rule: a packet without TCP is None; an unreadable packet is a reason in words, which the caller counts and reports.
Sources: the link types of tcpdump.org, RFC 791, RFC 8200, RFC 9293.
"""

from __future__ import annotations

import ipaddress
from struct import Struct
from typing import NamedTuple

from barnabas.tools.tap.capture_reading import Packet

NULL, ETHERNET, RAW_BSD, RAW_OPENBSD, RAW, LOOP, LINUX_COOKED = 0, 1, 12, 14, 101, 108, 113
IPV4, IPV6, LINUX_COOKED_2 = 228, 229, 276
_TCP = 6
_ACK = 16
_ETHER_IP4, _ETHER_IP6, _VLANS = 0x0800, 0x86DD, (0x8100, 0x88A8, 0x9100)
_EXTENSIONS = (0, 43, 60, 135, 139, 140)
"""Headers of IPv6 that may stand before TCP: hop-by-hop, routing, destination options, mobility, HIP, shim6."""
_FRAGMENT = 44
_PORTS = Struct(">HHII")


class Segment(NamedTuple):
    """A TCP segment."""

    at: float
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int | None
    """Up to which sequence number the sender has everything of the other side."""
    flags: int
    payload: bytes
    missing: int
    """So many bytes of the payload were not captured."""


def segment_of(packet: Packet) -> Segment | str | None:
    """Return the TCP segment in a packet; None without one, a reason if it cannot be read."""
    offset = _network_layer(packet.link_type, packet.data)
    if isinstance(offset, str) or offset is None:
        return offset
    if packet.data[offset : offset + 1] == b"":
        return "packets without an IP header"
    version = packet.data[offset] >> 4
    if version == 4:
        return _ip4(packet, offset)
    return _ip6(packet, offset) if version == 6 else None


def _network_layer(link_type: int, data: bytes) -> int | str | None:
    """Return where the IP header begins."""
    if link_type == ETHERNET:
        at = 12
        while True:
            kind = int.from_bytes(data[at : at + 2], "big")
            if kind not in _VLANS:
                break
            at += 4
        return at + 2 if kind in (_ETHER_IP4, _ETHER_IP6) else None
    if link_type in (RAW, RAW_BSD, RAW_OPENBSD, IPV4, IPV6):
        return 0
    if link_type == LINUX_COOKED:
        return 16 if int.from_bytes(data[14:16], "big") in (_ETHER_IP4, _ETHER_IP6) else None
    if link_type == LINUX_COOKED_2:
        return 20 if int.from_bytes(data[:2], "big") in (_ETHER_IP4, _ETHER_IP6) else None
    if link_type in (NULL, LOOP):
        return 4
    return f"packets of link type {link_type}, which is not read"


def _ip4(packet: Packet, at: int) -> Segment | str | None:
    data = packet.data
    if len(data) < at + 20:
        return "packets whose IP header is cut off"
    header = (data[at] & 15) * 4
    total = int.from_bytes(data[at + 2 : at + 4], "big")
    if data[at + 9] != _TCP:
        return None
    if int.from_bytes(data[at + 6 : at + 8], "big") & 0x3FFF:
        return "IP fragments, which are not put together"
    source = str(ipaddress.IPv4Address(data[at + 12 : at + 16]))
    target = str(ipaddress.IPv4Address(data[at + 16 : at + 20]))
    # With segmentation offload the length may be 0: then the length of the packet counts.
    end = at + total if total else at + packet.size - at
    return _tcp(packet, at + header, end, source, target)


def _ip6(packet: Packet, at: int) -> Segment | str | None:
    data = packet.data
    if len(data) < at + 40:
        return "packets whose IP header is cut off"
    length = int.from_bytes(data[at + 4 : at + 6], "big")
    following = data[at + 6]
    source = str(ipaddress.IPv6Address(data[at + 8 : at + 24]))
    target = str(ipaddress.IPv6Address(data[at + 24 : at + 40]))
    end = at + 40 + length if length else packet.size
    at += 40
    while following in _EXTENSIONS:
        if len(data) < at + 2:
            return "packets whose IP header is cut off"
        following, at = data[at], at + (data[at + 1] + 1) * 8
    if following == _FRAGMENT:
        return "IP fragments, which are not put together"
    return _tcp(packet, at, end, source, target) if following == _TCP else None


def _tcp(packet: Packet, at: int, end: int, source: str, target: str) -> Segment | str:
    data = packet.data
    if len(data) < at + 20:
        return "packets whose TCP header is cut off"
    source_port, target_port, sequence, acknowledged = _PORTS.unpack_from(data, at)
    flags = data[at + 13]
    start = at + (data[at + 12] >> 4) * 4
    payload = data[start:end]
    missing = max(0, end - start - len(payload))
    return Segment(
        packet.at, (source, source_port), (target, target_port), sequence,
        acknowledged if flags & _ACK else None, flags, payload, missing,
    )  # fmt: skip

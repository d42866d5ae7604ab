"""Connections written as a pcapng file for Wireshark: each frame in separate TCP segments, with a comment.

The rule: the file is a valid capture at any time: whole blocks, correct checksums, sequence numbers without gaps.
Sources: the pcapng specification (draft-ietf-opsawg-pcapng), RFC 791, RFC 8200, RFC 9293, RFC 1071.
"""

from __future__ import annotations

import ipaddress
import logging
from struct import Struct
from typing import IO

from barnabas.tools.tap.cutting import Data
from barnabas.tools.tap.exchange import Exchange
from barnabas.tools.tap.masking import masked

log = logging.getLogger(__name__)

SECTION, INTERFACE, ENHANCED_PACKET = 0x0A0D0D0A, 1, 6
BYTE_ORDER = 0x1A2B3C4D
RAW_IP = 101
"""Link type: packets begin with the IP header."""
SEGMENT_BYTES_MAX = 60_000
COMMENT, USER_APPLICATION = 1, 4
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
WINDOW = 65_535
_TCP = 6
_COMMENT_BYTES_MAX = 400

_BLOCK = Struct("<II")
_OPTION = Struct("<HH")
_SECTION = Struct("<IHHq")
_INTERFACE = Struct("<HHI")
_PACKET = Struct("<IIIII")
_IP4 = Struct(">BBHHHBBH4s4s")
_IP6 = Struct(">IHBB16s16s")
_TCP_HEADER = Struct(">HHIIBBHHH")
_PSEUDO4 = Struct(">4s4sBBH")
_PSEUDO6 = Struct(">16s16sII")
Address = tuple[str, int]


class CaptureWriter:
    """Writes a capture; `stream` begins a connection."""

    def __init__(self, file: IO[bytes], application: str) -> None:
        """Write the beginning. Raises OSError."""
        self._file = file
        self.failure: OSError | None = None
        """The error that ended writing, if any."""
        options = _option(USER_APPLICATION, application.encode()) + _option(0, b"")
        self._write(_block(SECTION, _SECTION.pack(BYTE_ORDER, 1, 0, -1) + options))
        self._write(_block(INTERFACE, _INTERFACE.pack(RAW_IP, 0, 0)))
        self._file.flush()

    def stream(self, client: Address, broker: Address, at: float) -> CaptureStream:
        """Begin a connection between these addresses."""
        return CaptureStream(self, client, broker, at)

    def packet(self, data: bytes, at: float, comment: str = "") -> None:
        """Write a packet; a failure ends the capture and is kept in `failure`."""
        if self.failure is not None:
            return
        microseconds = max(0, round(at * 1_000_000))
        body = _PACKET.pack(0, microseconds >> 32, microseconds & 0xFFFFFFFF, len(data), len(data)) + _padded(
            data
        )
        if comment:
            body += _option(COMMENT, comment.encode()[:_COMMENT_BYTES_MAX]) + _option(0, b"")
        try:
            self._write(_block(ENHANCED_PACKET, body))
        except OSError as error:
            self.failure = error
            log.error("nothing more is written to the capture: %s", error)

    def _write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        """Flush buffered blocks. Raises OSError."""
        if self.failure is None:
            self._file.close()


class CaptureStream:
    """One connection of a capture: keeps the frames that it is called with."""

    def __init__(self, writer: CaptureWriter, client: Address, broker: Address, at: float) -> None:
        self._writer = writer
        self._client, self._broker = _same_family(client, broker)
        self._sequences = [0, 0]  # next sequence numbers of client and broker
        self._segment(0, b"", SYN, at)
        self._sequences[0] = 1
        self._segment(1, b"", SYN | ACK, at)
        self._sequences[1] = 1
        self._segment(0, b"", ACK, at)

    def __call__(self, exchange: Exchange, frame: Data, size: int, *, from_client: bool, at: float) -> None:
        """Write a frame with masked secrets; bytes missing from it are missing in the capture."""
        side = 0 if from_client else 1
        data = size.to_bytes(4, "big") + bytes(masked(exchange, frame, from_client=from_client))
        comment = _comment(exchange, from_client=from_client)
        for start in range(0, len(data), SEGMENT_BYTES_MAX):
            part = data[start : start + SEGMENT_BYTES_MAX]
            is_last = start + SEGMENT_BYTES_MAX >= len(data)
            self._segment(side, part, ACK | PSH if is_last else ACK, at, comment if is_last else "")
            self._sequences[side] += len(part)
        self._sequences[side] += size - len(frame)

    def close(self, at: float) -> None:
        """Write the connection's end."""
        for side in (0, 1):
            self._segment(side, b"", FIN | ACK, at)
            self._sequences[side] += 1
        self._segment(0, b"", ACK, at)

    def _segment(self, side: int, payload: bytes, flags: int, at: float, comment: str = "") -> None:
        source, target = (self._client, self._broker) if side == 0 else (self._broker, self._client)
        sequence, other = self._sequences[side] & 0xFFFFFFFF, self._sequences[1 - side] & 0xFFFFFFFF
        acknowledged = other if flags & ACK else 0
        self._writer.packet(packet(source, target, sequence, acknowledged, flags, payload), at, comment)


def _comment(exchange: Exchange, *, from_client: bool) -> str:
    from barnabas.tools.tap import rendering

    request = exchange.request
    name = f"{request.api} v{request.version}" if request.version >= 0 else request.api
    if from_client:
        return f"#{exchange.connection.id}.{exchange.number} {name} request {rendering.describe_request(exchange)}"
    return f"#{exchange.connection.id}.{exchange.number} {name} answer {rendering.describe_answer(exchange)}"


# --- packets ------------------------------------------------------------------------------------------------------


def packet(
    source: tuple[bytes, int],
    target: tuple[bytes, int],
    sequence: int,
    acknowledged: int,
    flags: int,
    payload: bytes,
) -> bytes:
    """Return an IP packet with a TCP segment; addresses are 4 or 16 bytes with a port."""
    (source_ip, source_port), (target_ip, target_port) = source, target
    length = _TCP_HEADER.size + len(payload)

    def header(checksum: int) -> bytes:
        return _TCP_HEADER.pack(
            source_port, target_port, sequence, acknowledged, 5 << 4, flags, WINDOW, checksum, 0
        )

    if len(source_ip) == 4:
        pseudo = _PSEUDO4.pack(source_ip, target_ip, 0, _TCP, length)
        fields = (0x45, 0, 20 + length, 0, 0x4000, 64, _TCP)
        ip = _IP4.pack(
            *fields, checksum_of(_IP4.pack(*fields, 0, source_ip, target_ip)), source_ip, target_ip
        )
    else:
        pseudo = _PSEUDO6.pack(source_ip, target_ip, length, _TCP)
        ip = _IP6.pack(6 << 28, length, _TCP, 64, source_ip, target_ip)
    return ip + header(checksum_of(pseudo + header(0) + payload)) + payload


def checksum_of(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of bytes."""
    if len(data) % 2:
        data += b"\0"
    total = int.from_bytes(data, "big")
    # 2^16 is 1 modulo 65535: the sum of all 16-bit words, carried around, is the number itself modulo 65535.
    rest = total % 0xFFFF
    if not rest and total:
        rest = 0xFFFF
    return ~rest & 0xFFFF


def _same_family(client: Address, broker: Address) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """Return both addresses as bytes; if only one is IPv4, it is mapped to IPv6."""
    addresses = [ipaddress.ip_address(host.partition("%")[0]) for host, _ in (client, broker)]
    packed = [address.packed for address in addresses]
    if len(packed[0]) != len(packed[1]):
        packed = [address if len(address) == 16 else b"\0" * 10 + b"\xff\xff" + address for address in packed]
    return (packed[0], client[1]), (packed[1], broker[1])


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return _OPTION.pack(code, len(value)) + _padded(value)


def _block(kind: int, body: bytes) -> bytes:
    size = 12 + len(body)
    return _BLOCK.pack(kind, size) + body + size.to_bytes(4, "little")

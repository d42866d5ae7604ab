"""Captures of other tools, pcap and pcapng, read as packets. Pure, except for the file.

The rule: a truncated file yields its whole packets and reports the truncation; an impossible length is an error.
Sources: the pcap and pcapng specifications (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import IO, NamedTuple

from barnabas.tools.tap.capture_writing import BYTE_ORDER, ENHANCED_PACKET, INTERFACE, SECTION

SIMPLE_PACKET, OLD_PACKET = 3, 2
BLOCK_BYTES_MAX = 64 << 20
_TIME_RESOLUTION, _TIME_OFFSET = 9, 14
_PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1_000_000_000),
    b"\xa1\xb2\x3c\x4d": (">", 1_000_000_000),
}


class CaptureError(ValueError):
    """A file that is no capture, or is broken."""


class Packet(NamedTuple):
    """One captured packet."""

    at: float
    """Seconds since 1970."""
    link_type: int
    data: bytes
    size: int
    """Bytes of the packet on the wire; more than `data` where the capture cut it."""


class _Interface(NamedTuple):
    link_type: int
    snap_length: int
    ticks_per_second: int
    offset_s: int


class CaptureReader:
    """Reads the packets of a file; afterwards `problem` describes a truncation."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.problem = ""

    def packets(self) -> Iterator[Packet]:
        """Yield the packets in the order of the file. Raises CaptureError, OSError."""
        magic = self._file.read(4)
        if magic in _PCAP_MAGICS:
            yield from self._pcap(*_PCAP_MAGICS[magic])
        elif magic == SECTION.to_bytes(4, "little"):
            yield from self._pcapng()
        else:
            raise CaptureError(f"neither pcap nor pcapng: it begins with {magic.hex(' ') or 'nothing'}")

    def _read(self, size: int) -> bytes | None:
        """Return `size` bytes; None at the end of the file, with a note if it is truncated."""
        data = self._file.read(size)
        if len(data) == size:
            return data
        if data:
            self.problem = "the file ends in the middle of a packet"
        return None

    # --- pcap -------------------------------------------------------------------------------------------------

    def _pcap(self, order: str, ticks_per_second: int) -> Iterator[Packet]:
        head = self._read(20)
        if head is None:
            raise CaptureError("the file's header is cut short")
        link_type = Struct(order + "HHiIII").unpack(head)[5] & 0x0FFFFFFF
        record = Struct(order + "IIII")
        while (head := self._read(record.size)) is not None:
            seconds, ticks, kept, size = record.unpack(head)
            if kept > BLOCK_BYTES_MAX:
                raise CaptureError(f"a packet of {kept} bytes cannot be: the file is damaged")
            data = self._read(kept)
            if data is None:
                self.problem = "the file ends in the middle of a packet"
                return
            yield Packet(seconds + ticks / ticks_per_second, link_type, data, size)

    # --- pcapng -----------------------------------------------------------------------------------------------

    def _pcapng(self) -> Iterator[Packet]:
        order = "<"
        interfaces: list[_Interface] = []
        head: bytes | None = SECTION.to_bytes(4, "little")
        while head is not None:
            kind: int = Struct(order + "I").unpack(head)[0]
            size_bytes, read_size = self._read(4), 8
            if kind == SECTION:  # which reads the same in both byte orders
                order, interfaces, read_size = self._byte_order(), [], 12
            body = (
                None
                if size_bytes is None
                else self._body(Struct(order + "I").unpack(size_bytes)[0], read_size)
            )
            if body is None:
                self.problem = self.problem or "the file ends in the middle of a block"
                return
            if kind == INTERFACE:
                interfaces.append(_interface(order, body))
            elif kind in (ENHANCED_PACKET, SIMPLE_PACKET, OLD_PACKET):
                yield _packet(order, kind, body, interfaces)
            head = self._read(4)

    def _byte_order(self) -> str:
        """Return the byte order of a section, from its header. Raises CaptureError."""
        magic = self._read(4)
        if magic == BYTE_ORDER.to_bytes(4, "little"):
            return "<"
        if magic == BYTE_ORDER.to_bytes(4, "big"):
            return ">"
        raise CaptureError(f"the byte order of a section cannot be {(magic or b'').hex() or 'missing'}")

    def _body(self, size: int, read_size: int) -> bytes | None:
        """Return the rest of a block of `size` bytes, after `read_size` bytes. Raises CaptureError."""
        if size < read_size + 4 or size % 4 or size > BLOCK_BYTES_MAX:
            raise CaptureError(f"a block of {size} bytes cannot be: the file is damaged")
        body = self._read(size - read_size)
        return None if body is None else body[:-4]


def _interface(order: str, body: bytes) -> _Interface:
    if len(body) < 8:
        raise CaptureError("the description of an interface is cut short")
    link_type, _, snap_length = Struct(order + "HHI").unpack_from(body)
    ticks, offset_s = 1_000_000, 0
    for code, value in _options(order, body, 8):
        if code == _TIME_RESOLUTION and value:
            exponent = value[0] & 0x7F
            ticks = 2**exponent if value[0] & 0x80 else 10**exponent
        elif code == _TIME_OFFSET and len(value) == 8:
            offset_s = int.from_bytes(value, "little" if order == "<" else "big", signed=True)
    return _Interface(link_type, snap_length, ticks, offset_s)


def _options(order: str, body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    head = Struct(order + "HH")
    while at + head.size <= len(body):
        code, length = head.unpack_from(body, at)
        if code == 0:
            return
        at += head.size
        yield code, body[at : at + length]
        at += length + -length % 4


def _packet(order: str, kind: int, body: bytes, interfaces: list[_Interface]) -> Packet:
    try:
        if kind == SIMPLE_PACKET:
            number, high, low = 0, 0, 0
            size = Struct(order + "I").unpack_from(body)[0]
            start = 4
            snap_length = interfaces[0].snap_length
            kept = min(size, snap_length) if snap_length else size
        elif kind == ENHANCED_PACKET:
            number, high, low, kept, size = Struct(order + "IIIII").unpack_from(body)
            start = 20
        else:
            number, _, high, low, kept, size = Struct(order + "HHIIII").unpack_from(body)
            start = 20
        interface = interfaces[number]
    except IndexError:
        raise CaptureError("a packet of an interface that is not described") from None
    except Exception as error:
        raise CaptureError(f"a packet's header is broken: {error}") from None
    if start + kept > len(body):
        raise CaptureError("a packet is larger than its block")
    at = interface.offset_s + (high << 32 | low) / interface.ticks_per_second
    return Packet(at, interface.link_type, body[start : start + kept], size)

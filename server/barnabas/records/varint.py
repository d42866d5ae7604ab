"""Zigzag variable-length integers, as message format v2 uses them inside a record.

The rule: a reader never reads beyond the given end, and refuses encodings that no writer produces: more than 5 bytes for an
int32, more than 10 for an int64, or bits above that width.
"""

from typing import Final

from barnabas.records.errors import InvalidRecordsError

Buffer = bytes | bytearray | memoryview


def read_varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Read an int32 at `pos`, not beyond `end`: (value, next position). Raises InvalidRecordsError."""
    raw, pos = read_unsigned(buf, pos, end, 32)
    return raw >> 1 ^ -(raw & 1), pos


def read_unsigned(buf: Buffer, pos: int, end: int, bits: int) -> tuple[int, int]:
    """Read the unsigned number that a varint is before the zigzag: (number below 2**bits, next position)."""
    raw = shift = 0
    for at in range(pos, min(end, pos + bits // 7 + 1)):
        byte = buf[at]
        if byte < 0x80:
            raw |= byte << shift
            if raw >> bits:
                break
            return raw, at + 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    raise InvalidRecordsError(f"varint at byte {pos} is cut short or longer than {bits} bits")


def encode_varint(value: int) -> bytes:
    """Encode an int32 or int64 (their encoding is the same) in 1 to 10 bytes. OverflowError beyond int64."""
    if -1 <= value < SMALL_COUNT:
        return SMALL[value]
    return _encode(value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _encode(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} is no int64")
    raw = _zigzag(value)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# Lengths, deltas and counts are nearly always small: SMALL[n] encodes n, and SMALL[-1] encodes -1 (null).
SMALL_COUNT: Final = 1 << 11
SMALL = [bytes((n << 1,)) for n in range(64)]
SMALL += [bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(64, SMALL_COUNT)]
SMALL.append(b"\x01")

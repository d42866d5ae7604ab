"""The parts of the encoding that generated codecs share: varints, arrays of numbers, tagged fields, errors.

The rule: nothing is allocated, sliced or counted before it is known to fit into the remaining bytes of the frame.
The generated code has short, common cases inline, and calls this module for all others.
"""

from __future__ import annotations

from struct import Struct

from barnabas.wire.errors import (
    DecodeError,
    EncodeError,
    NullFieldError,
    TooManyEntriesError,
    UnsupportedFieldError,
)
from barnabas.wire.regions import Chunk, FileRegion

__all__ = [
    "BOOLS",
    "FLOAT64S",
    "INT8S",
    "INT16S",
    "INT32S",
    "INT64S",
    "NO_LIMIT",
    "UINT16S",
    "UINT32S",
    "UUIDS",
    "UVARINT",
    "ZERO_UUID",
    "Buffer",
    "Chunk",
    "DecodeError",
    "EncodeError",
    "FileRegion",
    "NullFieldError",
    "UnsupportedFieldError",
    "bad_tag_size",
    "cut_short",
    "encode_string_length",
    "encode_uvarint",
    "join",
    "new",
    "null_value",
    "read_tags",
    "read_unknown_tags",
    "read_uvarint",
    "string_length",
    "too_many_entries",
    "write_tags",
]

Buffer = bytes | bytearray | memoryview

ZERO_UUID = b"\0" * 16
"""Stands for "no uuid"."""

STRING_BYTES_MAX = 0x7FFF
"""The longest string that Kafka reads or writes, in UTF-8, compact or not."""

UVARINT_MAX = 0x7FFFFFFF

NO_LIMIT = (1 << 30) - 1
"""More entries than any message has: what a decoder may read unless its caller says how many. Counted down in one digit."""

new = object.__new__
"""Makes a message without its __init__: a decoder sets every field itself, which is faster."""


# Errors, raised by the generated code.


def cut_short(field: str, pos: int, end: int) -> DecodeError:
    """Return the error for a value at `pos` that extends beyond `end`."""
    return DecodeError(f"needs more than the {max(0, end - pos)} bytes that are left", field, pos)


def null_value(field: str, pos: int) -> DecodeError:
    """Return the error for a null before `pos` in a version that does not allow null."""
    return DecodeError("is null, which this version does not allow", field, pos)


def bad_tag_size(field: str, pos: int, stop: int) -> DecodeError:
    """Return the error for a tagged field that does not end where its size says."""
    return DecodeError(f"ends at byte {pos} but its size says {stop}", field, pos)


def too_many_entries(field: str, pos: int) -> TooManyEntriesError:
    """Return the error for an array or tagged fields with more entries than the message may still have."""
    return TooManyEntriesError("has more entries than a message may have", field, pos)


# Unsigned varints (KIP-482).

UVARINT = tuple(bytes((n,)) for n in range(128))
"""The encodings of the numbers that take one byte."""


def read_uvarint(buf: Buffer, pos: int, end: int, field: str) -> tuple[int, int]:
    """Read a number of at most 31 bits: (value, next position). Raises DecodeError."""
    value = shift = 0
    for at in range(pos, min(end, pos + 5)):
        byte = buf[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                break
            return value, at + 1
        shift += 7
    if end - pos < 5:
        raise cut_short(field, pos, end)
    raise DecodeError("is a varint of more than 31 bits", field, pos)


def string_length(buf: Buffer, pos: int, end: int, field: str) -> tuple[int, int]:
    """Read the length + 1 of a compact string: (value, next position). Raises DecodeError."""
    value, after = read_uvarint(buf, pos, end, field)
    if value > STRING_BYTES_MAX + 1:
        raise DecodeError(f"is a string of {value - 1} bytes, more than {STRING_BYTES_MAX}", field, pos)
    return value, after


def encode_uvarint(value: int) -> bytes:
    """Encode a number of at most 31 bits. Raises EncodeError."""
    if not 0 <= value <= UVARINT_MAX:
        raise EncodeError(f"{value} does not fit into an unsigned varint of 31 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string_length(value: int) -> bytes:
    """Encode the length + 1 of a compact string. Raises EncodeError if the string is too long."""
    if value > STRING_BYTES_MAX + 1:
        raise EncodeError(f"a string takes {value - 1} bytes, more than {STRING_BYTES_MAX}")
    return encode_uvarint(value)


# Arrays of fixed-width primitives.


class ArrayStructs(dict[int, Struct]):
    """`structs[n]` packs and unpacks `n` values of one type; structs of up to KEPT_MAX values are cached."""

    KEPT_MAX = 64

    def __init__(self, character: str) -> None:
        super().__init__()
        self.character = character

    def __missing__(self, count: int) -> Struct:
        struct = Struct(
            f">{count}{self.character}" if len(self.character) == 1 else ">" + self.character * count
        )
        if count <= self.KEPT_MAX:
            self[count] = struct
        return struct


BOOLS = ArrayStructs("?")
INT8S = ArrayStructs("b")
INT16S = ArrayStructs("h")
UINT16S = ArrayStructs("H")
INT32S = ArrayStructs("i")
UINT32S = ArrayStructs("I")
INT64S = ArrayStructs("q")
FLOAT64S = ArrayStructs("d")
UUIDS = ArrayStructs("16s")


# Tagged fields (KIP-482).


def read_tags(
    buf: Buffer, pos: int, end: int, struct: str, entries_max: int = NO_LIMIT
) -> tuple[list[tuple[int, int, int]], int]:
    """Find the tagged fields at `pos`, at most `entries_max`: ([(tag, start, stop)], next position).

    Raises DecodeError also when tags repeat or do not ascend, so no later field can overrule an earlier one.
    """
    field = f"{struct} tagged fields"
    count, at = read_uvarint(buf, pos, end, field)
    if count * 2 > end - at:
        raise DecodeError(
            f"{count} tagged fields do not fit into the {end - at} bytes that are left", field, pos
        )
    if count > entries_max:
        raise too_many_entries(field, pos)
    fields = []
    last = -1
    for _ in range(count):
        tag, at = read_uvarint(buf, start := at, end, field)
        if tag <= last:
            raise DecodeError(f"tag {tag} comes after tag {last}", field, start)
        last = tag
        size, at = read_uvarint(buf, at, end, field)
        if size > end - at:
            raise DecodeError(
                f"tag {tag} of {size} bytes goes beyond the {end - at} that are left", field, start
            )
        fields.append((tag, at, at + size))
        at += size
    return fields, at


def read_unknown_tags(
    buf: Buffer, pos: int, end: int, struct: str, entries_max: int = NO_LIMIT
) -> tuple[dict[int, bytes] | None, int]:
    """Read the tagged fields of a struct without any, at most `entries_max`: ({tag: content} or None, next position)."""
    fields, at = read_tags(buf, pos, end, struct, entries_max)
    return {tag: bytes(buf[start:stop]) for tag, start, stop in fields} or None, at


def write_tags(out: list[Chunk], fields: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> None:
    """Append the number of tagged fields and the fields, in ascending order of their tags."""
    if unknown:
        repeated = unknown.keys() & {tag for tag, _ in fields}
        if repeated:
            raise EncodeError(f"unknown tagged fields repeat the known tags {sorted(repeated)}")
        fields = sorted([*fields, *unknown.items()], key=lambda entry: entry[0])
    out.append(encode_uvarint(len(fields)))
    for tag, content in fields:
        out.append(encode_uvarint(tag) + encode_uvarint(len(content)))
        out.append(content)


def join(chunks: list[Chunk]) -> bytes:
    """Join the chunks of a tagged field, none of which is a file region. Raises EncodeError."""
    try:
        return b"".join(chunks)  # type: ignore[arg-type]
    except TypeError as error:
        raise EncodeError("a file region cannot be part of a tagged field") from error

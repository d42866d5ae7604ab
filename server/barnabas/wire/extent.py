"""How much there is to decode or encode: found out before it is done, by counting entries of arrays. Pure.

The rule: counting stops as soon as there is too much, so it costs little whatever the message.
"""

from __future__ import annotations

from dataclasses import fields
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from barnabas.wire.primitives import Buffer, DecodeError, read_uvarint
from barnabas.wire.structs import is_array, struct_of

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_unpack_int32: Final = _INT32.unpack_from


class _Parts:
    """The fields of a struct that hold entries of arrays, by name; those in `structs` are no arrays themselves.

    Each comes with the parts of what it holds, None where that has no arrays inside.
    """

    __slots__ = ("arrays", "structs")

    def __init__(self, kind: type[Any]) -> None:
        self.arrays: list[tuple[str, _Parts | None]] = []
        self.structs: list[tuple[str, _Parts]] = []
        for field in fields(kind):
            nested = struct_of(kind, field)
            parts = _parts_of(nested) if nested is not None else None
            if is_array(field):
                self.arrays.append((field.name, parts))
            elif parts is not None:
                self.structs.append((field.name, parts))


_known: dict[type[Any], _Parts | None] = {}


def _parts_of(kind: type[Any]) -> _Parts | None:
    """Return the parts of a generated struct, None if there are no arrays in it."""
    try:
        return _known[kind]
    except KeyError:
        parts = _Parts(kind)
        _known[kind] = parts if parts.arrays or parts.structs else None
        return _known[kind]


def has_more_entries(message: Any, most: int) -> bool:
    """Say whether the arrays of a generated struct, nested ones included, have more than `most` entries together."""
    parts = _parts_of(type(message))
    return parts is not None and _left(message, parts, most) < 0


def _left(struct: Any, parts: _Parts, left: int) -> int:
    """Return how many of `left` entries more there may be beside those in a struct; negative if there are too many."""
    for name, inner in parts.arrays:
        items = getattr(struct, name)
        if items:
            left -= len(items)
            if left < 0:
                return left
            if inner is not None:
                for item in items:
                    left = _left(item, inner, left)
                    if left < 0:
                        return left
    for name, within in parts.structs:
        value = getattr(struct, name)
        if value is not None:
            left = _left(value, within, left)
            if left < 0:
                return left
    return left


def produces_to_more(frame: Buffer, pos: int, version: int, most: int) -> bool:
    """Say whether a Produce request with its body at `pos` has more than `most` topics and partitions together.

    False also for a body that cannot be read up to there: decoding it tells what is wrong.
    """
    try:
        return _count_produced(frame, pos, version, most) > most
    except (DecodeError, IndexError, struct_error):
        return False


def _count_produced(frame: Buffer, pos: int, version: int, most: int) -> int:
    flexible = version >= 9
    if version >= 3:
        pos = _skip(frame, pos, flexible, _INT16)
    pos += 6
    topics, pos = _length(frame, pos, flexible)
    count = topics
    for _ in range(topics):
        pos = pos + 16 if version >= 13 else _skip(frame, pos, flexible, _INT16)
        partitions, pos = _length(frame, pos, flexible)
        count += partitions
        if count > most:
            break
        if flexible:
            for _ in range(partitions):
                pos = _skip_tags(frame, _skip(frame, pos + 4, flexible, _INT32))
            pos = _skip_tags(frame, pos)
        else:  # in line: it is done for each partition of each such request
            for _ in range(partitions):
                size: int = _unpack_int32(frame, pos + 4)[0]
                pos += 8 + size if size > 0 else 8
    return count


def _length(frame: Buffer, pos: int, flexible: bool, number: Struct = _INT32) -> tuple[int, int]:
    """Return the length of an array, a string or bytes at `pos`, at least 0, and the position after it."""
    if flexible:
        length, pos = read_uvarint(frame, pos, len(frame), "length")
        return max(length - 1, 0), pos
    return max(number.unpack_from(frame, pos)[0], 0), pos + number.size


def _skip(frame: Buffer, pos: int, flexible: bool, number: Struct) -> int:
    length, pos = _length(frame, pos, flexible, number)
    return pos + length


def _skip_tags(frame: Buffer, pos: int) -> int:
    if frame[pos] == 0:
        return pos + 1
    count, pos = read_uvarint(frame, pos, len(frame), "tagged fields")
    for _ in range(count):
        _, pos = read_uvarint(frame, pos, len(frame), "tag")
        size, pos = read_uvarint(frame, pos, len(frame), "tag size")
        pos += size
    return pos

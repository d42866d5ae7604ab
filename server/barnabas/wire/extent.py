"""How much there is to decode or encode: found out before it is done, by counting entries of arrays. Pure.

The rule: counting stops as soon as there is too much, so it costs little whatever the message.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from struct import Struct
from struct import error as struct_error
from typing import Any

from barnabas.wire.primitives import Buffer, DecodeError, read_uvarint

PRODUCE = 0

_INT16 = Struct(">h")
_INT32 = Struct(">i")

Arrays = tuple[tuple[str, bool, bool], ...]
"""Fields of a struct that are arrays or hold some: name, whether it is an array, whether there is more inside."""

_arrays: dict[type[Any], Arrays] = {}


def has_more_entries(message: Any, most: int) -> bool:
    """Whether the arrays of a generated struct, nested ones included, have more than `most` entries together."""
    return _left(message, most) < 0


def _left(struct: Any, left: int) -> int:
    kind = type(struct)
    arrays = _arrays.get(kind)
    if arrays is None:
        arrays = _arrays[kind] = _find_arrays(kind)
    for name, is_array, is_nested in arrays:
        value = getattr(struct, name)
        if not value:
            continue
        if not is_array:
            left = _left(value, left)
        else:
            left -= len(value)
            if left >= 0 and is_nested:
                for item in value:
                    left = _left(item, left)
                    if left < 0:
                        break
        if left < 0:
            break
    return left


def _find_arrays(kind: type[Any]) -> Arrays:
    found = []
    for field in fields(kind):
        text = str(field.type)
        is_array = text.startswith("list[")
        outer, _, inner = text.removeprefix("list[").split("]")[0].split(" ")[0].rpartition(".")
        nested = getattr(getattr(sys.modules[kind.__module__], outer, None), inner, None) if outer else None
        is_nested = isinstance(nested, type) and bool(_find_arrays(nested))
        if is_array or is_nested:
            found.append((field.name, is_array, is_nested))
    return tuple(found)


def produces_to_more(frame: Buffer, pos: int, version: int, most: int) -> bool:
    """Whether a Produce request with its body at `pos` has more than `most` topics and partitions together.

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
        for _ in range(partitions):
            pos = _skip(frame, pos + 4, flexible, _INT32)
            if flexible:
                pos = _skip_tags(frame, pos)
        if flexible:
            pos = _skip_tags(frame, pos)
    return count


def _length(frame: Buffer, pos: int, flexible: bool, number: Struct = _INT32) -> tuple[int, int]:
    """The length of an array, a string or bytes at `pos`, at least 0, and the position after it."""
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

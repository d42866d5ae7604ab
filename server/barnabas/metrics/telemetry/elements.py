"""Counting the elements of a protobuf message without parsing it. Pure.

The rule: protobuf's own parser is called only once the number of elements, and so its work, is known.
"""

from __future__ import annotations

from typing import Any

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_VARINT_BYTES_MAX = 10


def has_more_elements(data: bytes | memoryview, descriptor: Any, count_max: int) -> bool:
    """Return whether a message contains more than `count_max` fields, nested ones included.

    `descriptor` is protobuf's descriptor of the message's type. Malformed bytes end the count: a parser stops there, too.
    """
    count = 0
    outer: list[tuple[Any, int]] = []  # the messages around the one that is looked at, and where they end
    groups = 0  # open ones; no message has any that is known, but the parser passes over them
    pos, end = 0, len(data)
    while True:
        while pos >= end:
            if pos > end or groups or not outer:
                return False
            descriptor, end = outer.pop()
        count += 1
        if count > count_max:
            return True
        tag, pos = _varint(data, pos, end)
        kind = tag & 7
        if kind == _VARINT:
            _, pos = _varint(data, pos, end)
        elif kind == _FIXED64:
            pos += 8
        elif kind == _FIXED32:
            pos += 4
        elif kind == _LENGTH:
            size, pos = _varint(data, pos, end)
            field = descriptor.fields_by_number.get(tag >> 3)
            if groups or field is None or field.message_type is None or pos + size > end:
                pos += size
            else:
                outer.append((descriptor, end))
                descriptor, end = field.message_type, pos + size
        elif kind == _GROUP:
            groups += 1
        elif kind == _GROUP_END and groups:
            groups -= 1
        else:
            return False


def _varint(data: bytes | memoryview, pos: int, end: int) -> tuple[int, int]:
    """Return a number and the position after it; a position after `end` if the number is incomplete."""
    value = shift = 0
    for at in range(pos, min(end, pos + _VARINT_BYTES_MAX)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    return 0, end + 1

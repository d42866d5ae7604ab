"""The count of a Protobuf message's values, including unset ones, before it is parsed.

The rule: an inner message takes as little as two bytes, but memory for all of its fields; so payloads that may contain very
many of them are counted, and others are not.
"""

from __future__ import annotations

from typing import Any

from barnabas.registry.errors import SchemaError

VALUES_MAX = 1_000_000
"""Values of a message and its inner messages."""
_VARINT, _FIXED64, _BYTES, _BEGIN, _END, _FIXED32 = range(6)


class ValueCounter:
    """Counts values of messages of one type."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor
        self._fields_max = _fields_max(descriptor)

    def check(self, data: bytes) -> None:
        """Raise SchemaError for more values than are believed."""
        if (
            self._fields_max * (len(data) // 2 + 1) > VALUES_MAX
            and _count(self._descriptor, data) > VALUES_MAX
        ):
            raise SchemaError(f"the data has more than {VALUES_MAX:,} values, most of which are not set")


def _fields_max(descriptor: Any) -> int:
    """Return the largest number of fields among a message type and the types that it may contain."""
    largest = 1
    messages, seen = [descriptor], {descriptor.full_name}
    while messages:
        message = messages.pop()
        largest = max(largest, len(message.fields))
        for field in message.fields:
            if field.message_type is not None and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                messages.append(field.message_type)
    return largest


def _count(descriptor: Any, data: bytes) -> int:
    """Return the number of values in bytes; malformed data end the count, and the parser reports them."""
    count = 0
    fields_of: dict[str, dict[int, Any]] = {}
    pending = [(descriptor, 0, len(data))]
    while pending and count <= VALUES_MAX:
        message, at, end = pending.pop()
        groups = [message]
        count += len(message.fields)
        while at < end:
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            inner = None
            if kind in (_BYTES, _BEGIN) and groups[-1] is not None:
                name = groups[-1].full_name
                fields = fields_of.get(name)
                if fields is None:
                    fields = fields_of[name] = {
                        field.number: field.message_type
                        for field in groups[-1].fields
                        if field.message_type is not None
                    }
                inner = fields.get(number)
            if kind == _VARINT:
                _, at = _varint(data, at)
            elif kind == _BYTES:
                size, at = _varint(data, at)
                if inner is not None:
                    pending.append((inner, at, min(at + size, end)))
                at += size
            elif kind == _BEGIN:
                groups.append(inner)
                count += len(inner.fields) if inner is not None else 0
            elif kind == _END and len(groups) > 1:
                groups.pop()
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                break
    return count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it; for truncated bytes, a position beyond their end."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 56:
            return value, at
        shift += 7
    return 0, len(data) + 1

"""Size of a message before it is answered or encoded, as the number of entries in its arrays. Pure.

The rule: counting stops as soon as the limit is exceeded, so the cost is low for every message.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from barnabas.wire.primitives import NO_LIMIT
from barnabas.wire.structs import is_array, struct_of


class _Parts:
    """The fields of a struct that contain arrays: `arrays` are arrays themselves, `structs` are nested structs with arrays.

    Each name comes with the parts of the nested type; None for an array of entries without arrays.
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
    """Return whether the arrays of a generated struct, nested ones included, have more than `most` entries together."""
    parts = _parts_of(type(message))
    return parts is not None and _room_after(message, parts, most) < 0


def entries_of(message: Any) -> int:
    """Return how many entries the arrays of a generated struct, nested ones included, have together."""
    parts = _parts_of(type(message))
    return 0 if parts is None else NO_LIMIT - _room_after(message, parts, NO_LIMIT)


def _room_after(struct: Any, parts: _Parts, room: int) -> int:
    """Return how many of `room` entries remain after those of a struct; negative if the struct has more."""
    for name, inner in parts.arrays:
        items = getattr(struct, name)
        if items:
            room -= len(items)
            if room < 0:
                return room
            if inner is not None:
                for item in items:
                    room = _room_after(item, inner, room)
                    if room < 0:
                        return room
    for name, within in parts.structs:
        value = getattr(struct, name)
        if value is not None:
            room = _room_after(value, within, room)
            if room < 0:
                return room
    return room

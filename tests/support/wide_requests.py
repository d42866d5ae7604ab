"""Requests with as many entries as a frame may have, of every API, version and array, generated from the schemas.

The rule: an element is encoded once, and copied with other names, so a hundred thousand elements take little time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from codegen.model import Field
from compat.hostile.messages import Path, arrays, field_at, filled, framed, plausible
from compat.kit.wire import Writer, message, uvarint

NAME = "n0000000"
ID = b"id of 16 bytes.."
NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
TAGS: Path = ("unknown tagged fields",)
"""Stands for the tagged fields after a whole request, of which there may be many as well."""


@dataclass(frozen=True)
class Names:
    """The names in the elements of a wide array: of topics, groups and the like."""

    label: str
    text: str
    are_distinct: bool = False


UNKNOWN = Names("unknown names", NAME, are_distinct=True)
EMPTY = Names("empty names, nothing in them", "")
SAME = Names("the same name", "topic-0")


def wide(api: str, version: int, path: Path, count: int, names: Names = UNKNOWN) -> bytes:
    """The frame of a request with one element in each array, but `count` in the array at `path`."""
    request = message(f"{api}Request")
    values = filled(api, version, partial(_value, names))
    values |= {"Acks": 1} if api == "Produce" else {}
    if path == TAGS:
        plain = {
            field.name: values[field.name]
            for field in request.fields
            if field.name in values and version not in field.tagged
        }
        whole = Writer(request, version).struct(request, plain)
        tags = b"".join(uvarint(1_000 + number) + b"\0" for number in range(count))
        return framed(api, version, whole[:-1] + uvarint(count) + tags)
    if not names.text:
        _empty(values, path)
    writer = _WideWriter(request, version, field_at(api, path), count, names)
    return framed(api, version, writer.struct(request, values))


def _empty(values: Any, path: Path) -> None:
    """Empty the arrays in the element at a path."""
    if path:
        inside = values[path[0]]
        _empty(inside[0] if isinstance(inside, list) else inside, path[1:])
    elif isinstance(values, dict):
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = []


def places(api: str, version: int) -> Iterator[Path]:
    """Yield the paths of the arrays of a request, and TAGS if it has tagged fields."""
    yield from arrays(api, version)
    if version in message(f"{api}Request").flexible:
        yield TAGS


def shape(api: str, version: int, path: Path) -> set[Path]:
    """Return the paths of an array and of the fields of its elements; empty if the version has no such array."""
    request = message(f"{api}Request")

    def walk(fields: Sequence[Field], above: Path) -> Iterator[Path]:
        for field in fields:
            if version in field.versions:
                here = (*above, field.name)
                yield here
                if field.type.is_struct:
                    yield from walk(request.structs[field.type.name].fields, here)

    return {each for each in walk(request.fields, ()) if each[: len(path)] == path}


def _value(names: Names, api: str, field: Field, index: int) -> Any:
    if field.type.name == "string":
        return names.text
    if field.type.name == "uuid":
        return ID if names.text else bytes(16)
    return plausible(api, field, index)


class _WideWriter(Writer):
    """Writes `count` elements where one field has one."""

    def __init__(self, definition: Any, version: int, field: Field, count: int, names: Names) -> None:
        super().__init__(definition, version)
        self.wide_field = field
        self.count = count
        self.names = names

    def field(self, field: Field, value: Any) -> bytes:
        data = super().field(field, value)
        if field is not self.wide_field:
            return data
        compact = self.compact(field)
        element = data[1 if compact else 4 :]
        head = uvarint(self.count + 1) if compact else struct.pack(">i", self.count)
        return head + self.elements(field, element)

    def elements(self, field: Field, element: bytes) -> bytes:
        if not self.names.are_distinct:
            return element * self.count
        number = NUMBERS.get(field.type.name)
        if number is not None:
            top = (1 << 8 * struct.calcsize(number) - 1) - 1
            return b"".join(struct.pack(number, index % top) for index in range(self.count))
        name = NAME.encode()
        return b"".join(
            element.replace(name, b"n%07d" % index).replace(ID, struct.pack(">qq", 7, index))
            for index in range(self.count)
        )

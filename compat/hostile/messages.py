"""Requests as bytes for attacks: filled by the schema, with arrays of any length, or mutated.

The rule: random values come from the passed generator, so that a seed repeats them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from codegen.model import Field, Message, Struct
from compat.kit.wire import Values, encode, message

Path = tuple[str, ...]
Fill = Callable[[str, Field, int], Any]
"""The value of a field that is no struct: (API, field, index in the innermost array)."""

STRING_BYTES_MAX = 32_767
EXTREMES = (0, 1, -1, 0x7F, 0x80, 0x7FFF, -0x8000, 0x7FFFFFFF, -0x80000000, 0xFFFF, 0x10000, 1_000_000)


def frame(
    api: str, version: int, values: Values, *, correlation_id: int = 1, client_id: str = "hostile"
) -> bytes:
    """A whole request frame with its size."""
    request = message(f"{api}Request")
    return framed(api, version, encode(request, version, values), correlation_id, client_id)


def framed(api: str, version: int, body: bytes, correlation_id: int = 1, client_id: str = "hostile") -> bytes:
    """A whole request frame around an encoded body."""
    request = message(f"{api}Request")
    assert request.api_key is not None
    client = client_id.encode()
    head = struct.pack(">hhih", request.api_key, version, correlation_id, len(client)) + client
    head += b"\0" if version in request.flexible else b""
    return struct.pack(">i", len(head) + len(body)) + head + body


def plausible(api: str, field: Field, index: int) -> Any:
    """Return a value that fits the field's type and the entity type in its schema."""
    if field.type.name == "string":
        return f"hostile-{field.entity_type or 'value'}-{index}"
    if field.type.name == "uuid":
        return struct.pack(">QQ", 0xBAD, index)
    if field.type.name in ("bytes", "records"):
        return b""
    if field.type.name == "bool":
        return False
    if field.entity_type == "brokerId":
        return 1
    if field.type.name == "int8":
        return index % 100
    if field.type.name in ("int16", "uint16"):
        return index % 30_000
    return field.default if field.has_default and isinstance(field.default, int | float) else index


def filled(api: str, version: int, fill: Fill = plausible, *, wide: Path = (), count: int = 1) -> Values:
    """The fields of a request with one element in each array, but `count` in the array at the path `wide`."""
    request = message(f"{api}Request")

    def struct_values(shape: Message | Struct, path: Path, index: int) -> Values:
        return {
            field.name: field_value(field, (*path, field.name), index)
            for field in shape.fields
            if version in field.versions
        }

    def field_value(field: Field, path: Path, index: int) -> Any:
        if field.type.array:
            indexes = range(count if path == wide else 1)
            # An inner array of one element goes on with the index of its outer element.
            return [element(field, path, at or index) for at in indexes]
        return element(field, path, index)

    def element(field: Field, path: Path, index: int) -> Any:
        if field.type.is_struct:
            return struct_values(request.structs[field.type.name], path, index)
        return fill(api, field, index)

    return struct_values(request, (), 0)


def arrays(api: str, version: int) -> Iterator[Path]:
    """The path of every array in a request of that version, outer ones first."""
    request = message(f"{api}Request")

    def walk(shape: Message | Struct, path: Path) -> Iterator[Path]:
        for field in shape.fields:
            if version not in field.versions:
                continue
            if field.type.array:
                yield (*path, field.name)
            if field.type.is_struct:
                yield from walk(request.structs[field.type.name], (*path, field.name))

    yield from walk(request, ())


def field_at(api: str, path: Path) -> Field:
    """The field of a request at a path of `arrays`."""
    request = message(f"{api}Request")
    shape: Message | Struct = request
    for name in path:
        member = next(field for field in shape.fields if field.name == name)
        if member.type.is_struct:
            shape = request.structs[member.type.name]
    return member


def mutated(whole: bytes, rng: random.Random) -> bytes:
    """A frame with a few bytes changed behind its API key and version; its size is right nine times of ten."""
    data = bytearray(whole[4:])
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(4, len(data)) if len(data) > 4 else 4
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            data[at : at + 4] = struct.pack(">I", rng.choice(EXTREMES) & 0xFFFFFFFF)
        else:
            data[at : at + 5] = b"\xff\xff\xff\xff\x07"  # the largest length of a flexible version
    size = len(data) if rng.random() < 0.9 else len(data) + rng.choice((-1, 1, 5))
    return struct.pack(">i", size) + bytes(data)

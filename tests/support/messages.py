"""Messages with arbitrary contents, made from the schemas and not from the generated code under test."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from barnabas.wire.codec import MessageCodec
from codegen.model import Field, FieldType, Message
from codegen.parse import load_messages
from codegen.render import CODEC_NAMES, module_path

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"

EDGES: dict[str, tuple[int, ...]] = {
    "int8": (-(1 << 7), -1, 0, 1, (1 << 7) - 1),
    "int16": (-(1 << 15), -1, 0, 1, (1 << 15) - 1),
    "uint16": (0, 1, (1 << 16) - 1),
    "int32": (-(1 << 31), -1, 0, 1, (1 << 31) - 1),
    "uint32": (0, 1, (1 << 32) - 1),
    "int64": (-(1 << 63), -1, 0, 1, (1 << 63) - 1),
}
FLOATS = (0.0, -1.5, 1e300, 5e-324)
ALPHABET = "abcXYZ09._-/\0é→𝄞"
LENGTHS = (0, 0, 1, 2, 3, 9)
LONG_LENGTHS = (126, 127, 128, 300)
"""Lengths around the one where a varint takes two bytes."""


@cache
def all_messages() -> dict[str, Message]:
    """Every message of the schemas by name."""
    return {message.name: message for message in load_messages(SCHEMAS)}


def all_names() -> list[str]:
    """The names of all messages, for parametrised tests."""
    return sorted(all_messages())


def codec_of(message: Message) -> MessageCodec[Any]:
    """The generated codec of a message."""
    module = module_path(message).removesuffix(".py").replace("/", ".")
    name = "REQUEST_HEADER" if message.name == "RequestHeader" else "RESPONSE_HEADER"
    if message.kind != "header":
        name = CODEC_NAMES[message.kind]
    codec: MessageCodec[Any] = getattr(import_module(f"barnabas.wire.generated.{module}"), name)
    return codec


def random_message(message: Message, version: int, random: Random, *, unknown_tags: bool = False) -> Any:
    """A message of the generated class with every field of `version` set to something."""
    return _Builder(message, version, random, unknown_tags).struct(codec_of(message).message, message.fields)


class _Builder:
    def __init__(self, message: Message, version: int, random: Random, unknown_tags: bool) -> None:
        self.message = message
        self.version = version
        self.random = random
        self.flexible = version in message.flexible
        self.unknown_tags = unknown_tags and self.flexible
        self.depth = 0

    def struct(self, cls: type[Any], fields: tuple[Field, ...]) -> Any:
        made = cls()
        for field in fields:
            if self.version in field.versions:
                setattr(made, field.attribute, self.value(field))
        if self.unknown_tags and self.random.random() < 0.3:
            known = [field.tag for field in fields if field.tag is not None]
            free = [tag for tag in (*range(8), 200, 20_000) if tag not in known]
            tags = sorted(self.random.sample(free, self.random.randint(1, 3)))
            made.unknown_tagged_fields = {tag: self.octets() for tag in tags}
        return made

    def value(self, field: Field) -> Any:
        random, kind = self.random, field.type
        if self.version in field.nullable and random.random() < 0.25:
            return None
        if not kind.array:
            return self.one(kind)
        self.depth += 1
        count = random.choice((0, 1, 2, 3)) if kind.is_struct else self.length()
        if self.depth > 3:
            count = min(count, 1)
        items = [self.one(kind) for _ in range(count)]
        self.depth -= 1
        return items

    def one(self, kind: FieldType) -> Any:
        random, name = self.random, kind.name
        if kind.is_struct:
            struct = self.message.structs[name]
            return self.struct(getattr(codec_of(self.message).message, name), struct.fields)
        if name in EDGES:
            edges = EDGES[name]
            return random.choice(edges) if random.random() < 0.5 else random.randint(edges[0], edges[-1])
        if name == "bool":
            return random.random() < 0.5
        if name == "float64":
            return random.choice(FLOATS)
        if name == "uuid":
            return random.choice((bytes(16), random.randbytes(16)))
        if name == "string":
            return "".join(random.choice(ALPHABET) for _ in range(self.length()))
        return self.octets()

    def octets(self) -> bytes:
        return self.random.randbytes(self.length())

    def length(self) -> int:
        return self.random.choice(LONG_LENGTHS if self.random.random() < 0.02 else LENGTHS)

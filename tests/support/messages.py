"""Messages with arbitrary contents, made from the schemas and not from the generated code under test."""

from __future__ import annotations

import base64
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
    """Return a message of the generated class with a random value in every field of `version`."""
    return Builder(message, version, random, unknown_tags).struct(codec_of(message).message, message.fields)


class Builder:
    """Makes the values of a message's fields; a subclass may choose others."""

    def __init__(self, message: Message, version: int, random: Random, unknown_tags: bool) -> None:
        self.message = message
        self.version = version
        self.random = random
        self.flexible = version in message.flexible
        self.unknown_tags = unknown_tags and self.flexible
        self.depth = 0

    def struct(self, cls: type[Any], fields: tuple[Field, ...]) -> Any:
        message = cls()
        for field in fields:
            if self.version in field.versions:
                setattr(message, field.attribute, self.value(field))
        if self.unknown_tags and self.random.random() < 0.3:
            used_tags = [field.tag for field in fields if field.tag is not None]
            free = [tag for tag in (*range(8), 200, 20_000) if tag not in used_tags]
            tags = sorted(self.random.sample(free, self.random.randint(1, min(3, len(free)))))
            message.unknown_tagged_fields = {tag: self.octets() for tag in tags}
        return message

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


def camel(name: str) -> str:
    return name[0].lower() + name[1:]


def to_json(message: Message, version: int, value: Any) -> dict[str, Any]:
    """The message as Kafka's JSON converters write it."""
    return _struct(message, version, message.fields, value)


def _struct(message: Message, version: int, fields: tuple[Field, ...], value: Any) -> dict[str, Any]:
    out = {}
    for field in fields:
        if version not in field.versions:
            continue
        content = getattr(value, field.attribute)
        if version in field.tagged and content == getattr(type(value)(), field.attribute):
            continue
        if content is None:
            out[camel(field.name)] = None
        elif field.type.array:
            out[camel(field.name)] = [_one(message, version, field.type, item) for item in content]
        else:
            out[camel(field.name)] = _one(message, version, field.type, content)
    return out


def _one(message: Message, version: int, kind: FieldType, value: Any) -> Any:
    if kind.is_struct:
        return _struct(message, version, message.structs[kind.name].fields, value)
    if kind.name in ("bytes", "records"):
        return base64.b64encode(value).decode()
    if kind.name == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return value


def from_json(message: Message, version: int, values: dict[str, Any]) -> Any:
    """The message that `to_json` wrote."""
    return _struct_from_json(message, version, codec_of(message).message, message.fields, values)


def _struct_from_json(
    message: Message, version: int, cls: type[Any], fields: tuple[Field, ...], values: dict[str, Any]
) -> Any:
    result = cls()
    for field in fields:
        if version in field.versions and camel(field.name) in values:
            value = values[camel(field.name)]
            if value is not None and field.type.array:
                value = [_one_from_json(message, version, field.type, item) for item in value]
            elif value is not None:
                value = _one_from_json(message, version, field.type, value)
            setattr(result, field.attribute, value)
    return result


def _one_from_json(message: Message, version: int, kind: FieldType, value: Any) -> Any:
    if kind.is_struct:
        cls = getattr(codec_of(message).message, kind.name)
        return _struct_from_json(message, version, cls, message.structs[kind.name].fields, value)
    if kind.name in ("bytes", "records"):
        return base64.b64decode(value)
    return base64.urlsafe_b64decode(value + "==") if kind.name == "uuid" else value


def without_records(message: Message, value: Any) -> Any:
    """Return the message without its records: Kafka's JSON has the size of records, but not their bytes."""
    hidden = {camel(field.name) for _, field in message.all_fields() if field.type.name == "records"}
    if isinstance(value, dict):
        return {
            key: "..." if key in hidden and item is not None else without_records(message, item)
            for key, item in value.items()
        }
    return [without_records(message, item) for item in value] if isinstance(value, list) else value

"""Work on schemas of others, done in a child process of a sandbox: parsed, decoded with, encoded with.

The rule: functions take and return texts and bytes, so that whoever calls never holds what a schema or a record grows to; a
parsed schema stays in the child, which keeps those that it has parsed last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import Dependency, Parsed, parse
from barnabas.registry.schemas import Schema

PARSED_MAX = 200
"""Schemas that a child keeps parsed."""
PARSED_CHARS_MAX = 500_000
"""Characters of their texts, together: a parsed schema takes some fifty times as much memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """A schema that is to be parsed: its format, its text, and what it refers to, each after what that needs."""

    format: str
    text: str
    dependencies: tuple[Dependency, ...] = ()

    @property
    def size(self) -> int:
        """Characters of all texts."""
        return len(self.text) + sum(len(text) for _, text in self.dependencies)


@dataclass(frozen=True, slots=True)
class Text:
    """A decoded payload as JSON; `is_cut` where it has more characters than was asked for."""

    text: str
    is_cut: bool = False


_kept: dict[Source, Parsed] = {}


def parsed(source: Source) -> Parsed:
    """Return a schema, parsed now or before. Raises SchemaError."""
    schema = _kept.pop(source, None)
    if schema is None:
        schema = parse(Schema(source.format, source.text), source.dependencies)
    _kept[source] = schema
    while len(_kept) > 1 and (
        len(_kept) > PARSED_MAX or sum(other.size for other in _kept) > PARSED_CHARS_MAX
    ):
        del _kept[next(iter(_kept))]
    return schema


def decode_many(source: Source, payloads: Sequence[bytes], chars_max: int) -> list[Text | SchemaError]:
    """Return payloads, which stand behind the id of the schema, as JSON. Raises SchemaError for the schema."""
    schema = parsed(source)
    return [_decoded(schema, payload, chars_max) for payload in payloads]


def _decoded(schema: Parsed, payload: bytes, chars_max: int) -> Text | SchemaError:
    try:
        text = json.dumps(schema.decode(payload), ensure_ascii=False)
    except SchemaError as error:
        return error
    return Text(text[:chars_max], len(text) > chars_max)


def encode_many(source: Source, texts: Sequence[str]) -> list[bytes | SchemaError]:
    """Return values, given as JSON, as bytes that stand behind the id of the schema. Raises SchemaError for the schema."""
    schema = parsed(source)
    return [_encoded(schema, text) for text in texts]


def _encoded(schema: Parsed, text: str) -> bytes | SchemaError:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return SchemaError("the value is not JSON")
    try:
        return schema.encode(value)
    except SchemaError as error:
        return error

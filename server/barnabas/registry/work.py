"""Work on clients' schemas in a child process of a sandbox: parsing, comparison, decoding, encoding.

The rule: arguments and results of functions are texts and bytes, so that the caller never holds a parsed schema or a
decoded record; the child process caches the schemas that it has parsed last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from barnabas.registry.compatibility import differences as differences_of
from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import Dependency, Parsed, parse
from barnabas.registry.schemas import Schema

PARSED_MAX = 200
"""Schemas that a child keeps parsed."""
PARSED_CHARS_MAX = 500_000
"""Characters of their texts, together: a parsed schema takes some fifty times as much memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """A schema to parse: its format, its text, and its references, each after its own references."""

    format: str
    text: str
    dependencies: tuple[Dependency, ...] = ()

    @property
    def size(self) -> int:
        """Characters of all texts."""
        return len(self.text) + sum(len(text) for _, text in self.dependencies)


@dataclass(frozen=True, slots=True)
class Understood:
    """A schema to store; schemas with the same `identity` are equal, however they are written."""

    text: str
    identity: bytes
    objection: str = ""
    """The reason why it is refused if it is new, such as a default that its field's type does not allow; empty if valid."""
    normalized: str | None = None
    """The normal form, if requested: meaningless order and spelling are unified."""


@dataclass(frozen=True, slots=True)
class Text:
    """A decoded payload as JSON; `is_cut` if it has more characters than requested."""

    text: str
    is_cut: bool = False


_kept: dict[Source, Parsed] = {}


def parsed(source: Source, *, is_new: bool = False) -> Parsed:
    """Return a schema, parsed now or before. Raises SchemaError."""
    schema = None if is_new else _kept.pop(source, None)
    if schema is None:
        schema = parse(Schema(source.format, source.text), source.dependencies, is_new=is_new)
    _kept[source] = schema
    size = sum(other.size for other in _kept)
    while len(_kept) > 1 and (len(_kept) > PARSED_MAX or size > PARSED_CHARS_MAX):
        oldest = next(iter(_kept))
        size -= oldest.size
        del _kept[oldest]
    return schema


def prepare(format_name: str) -> None:
    """Import the modules of a format, so that its first schema does not wait for that."""
    parsed(Source(format_name, '"null"' if format_name == "AVRO" else "{}"))


# --- for a registry -------------------------------------------------------------------------------------------------


def understand(source: Source, normalizes: bool) -> Understood:
    """Return a schema as it is kept. Raises SchemaError."""
    objection = ""
    try:
        schema = parsed(source, is_new=True)
        schema.breaks(
            schema
        )  # a schema that cannot be compared with itself could not be compared with its successors
    except SchemaError as error:
        objection = str(error)
        schema = parsed(source)
    normalized = schema.normalized() if normalizes else None
    return Understood(schema.text, _identity(schema), objection, normalized)


def identities(sources: Sequence[Source]) -> list[bytes | None]:
    """Return the identities of schemas, None for one that cannot be parsed."""
    return [_identity_of(source) for source in sources]


def _identity_of(source: Source) -> bytes | None:
    try:
        return _identity(parsed(source))
    except SchemaError:
        return None


def _identity(schema: Parsed) -> bytes:
    return blake2b(schema.canonical.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def differences(level: str, new: Source, others: Sequence[Source]) -> tuple[int, list[str]]:
    """Return the index of the first schema with which a new one is incompatible by a level, and the reasons.

    If all are compatible: the number of schemas, and no reasons. Raises SchemaError.
    """
    schema = parsed(new)
    for place, other in enumerate(others):
        reasons = differences_of(level, schema, parsed(other))
        if reasons:
            return place, reasons
    return len(others), []


def written(source: Source, output_format: str) -> str:
    """Return a schema's text in a format: `serialized` is Protobuf as a descriptor, `resolved` Avro with references.

    `normalized` is the normal form: meaningless order and spelling are unified. Raises SchemaError.
    """
    schema: Any = parsed(source)
    if output_format == "serialized" and source.format == "PROTOBUF":
        return str(schema.serialized())
    if output_format == "resolved" and source.format == "AVRO":
        return str(schema.resolved())
    return str(schema.normalized()) if output_format == "normalized" else source.text


# --- for records ----------------------------------------------------------------------------------------------------


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

"""Protobuf: each record is read by its writer's schema, named by the id and message before the value, or by a file's.

The rule: see `binary`. Reasons beside those of JSON: framing, schema_id, protobuf.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.binary import NO_ID, BinaryDecoder, Writer
from barnabas_pipeline.formats.framing import View
from barnabas_pipeline.formats.protobuf_columns import MessageColumns, has_fast_way
from barnabas_pipeline.formats.protobuf_plan import Message, plan_of
from barnabas_pipeline.formats.protobuf_values import MessageReader
from barnabas_pipeline.formats.registry import Registry
from barnabas_pipeline.log.columns import NotSureError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool

    from barnabas.registry.formats.protobuf import ProtobufSchema as ParsedProtobuf
    from barnabas_pipeline.data_types import Column, Document, Mask, Row

PROTOBUF = "PROTOBUF"
DEPTH_MAX = 100
"""Greatest length of the path of a message in its file."""


class ProtobufWriter:
    """A message of a schema, prepared for reading."""

    def __init__(self, descriptor: Descriptor, pool: DescriptorPool) -> None:
        self.name = str(descriptor.full_name)
        self.plan: Message = plan_of(descriptor)
        self.fields: tuple[Field, ...] = self.plan.fields
        self._reader = MessageReader(self.plan, pool)

    def read(self, payload: bytes) -> tuple[Row, Document]:
        """Read one message. Raises RefusedError."""
        return self._reader.read(payload)

    def read_columns(self, view: View) -> tuple[list[Column], Mask]:
        """Read many messages. Raises NotSureError."""
        if not has_fast_way(self.plan):
            raise NotSureError
        return MessageColumns(*view).read(self.plan)


@dataclass(frozen=True, slots=True)
class ProtobufDecoder(BinaryDecoder):
    """Decoder of Protobuf messages. `references` are the files that `text` imports, by name."""

    format = "protobuf"

    references: tuple[tuple[str, str], ...] = ()

    def writer(self, schema_id: int, path: tuple[int, ...]) -> Writer | None:
        """Return a message of the schema of an id."""
        if schema_id == NO_ID:
            return _of_text(self.text, self.references, self.record)
        assert self.registry is not None
        return _of_id(self.registry, schema_id, path) if self.known(schema_id) else None

    def path_of(self, payload: bytes) -> tuple[tuple[int, ...], bytes]:
        """Split the bytes after the id into the path of the message and its bytes. Raises RefusedError."""
        if self.registry is None:
            return (), payload
        count, at = _number(payload, 0)
        if not 0 <= count <= DEPTH_MAX:
            raise RefusedError("framing", "the value does not say which message it is")
        path = []
        for _ in range(count):
            number, at = _number(payload, at)
            path.append(number)
        return tuple(path or (0,)), payload[at:]

    def paths_of(self, view: View) -> tuple[tuple[int, ...], View, Mask]:
        """Return (the path of the first value, the values without it, a mask of values with another path)."""
        if self.registry is None or not len(view.start):
            return (), view, np.zeros(len(view.start), bool)
        first = view.data[int(view.start[0]) : int(view.end[0])]
        try:
            path, rest = self.path_of(first)
        except RefusedError:
            raise NotSureError from None
        prefix = np.frombuffer(first[: len(first) - len(rest)], np.uint8)
        other = view.end - view.start < len(prefix)
        places = np.where(other, 0, view.start)[:, None] + np.arange(len(prefix))
        other |= (np.frombuffer(view.data, np.uint8)[places] != prefix).any(axis=1)
        return path, View(view.data, view.start + len(prefix), view.end), other


def _number(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(payload) and shift < 35:
        value |= (payload[at] & 0x7F) << shift
        at += 1
        if payload[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise RefusedError("framing", "the value does not say which message it is")


@lru_cache(256)
def _of_text(text: str, references: tuple[tuple[str, str], ...], record: str) -> ProtobufWriter:
    try:
        return _named(cast("ParsedProtobuf", parse(Schema(PROTOBUF, text), references)), record)
    except SchemaError as error:
        raise UsageError(f"Protobuf schema: {error}") from None


@lru_cache(1_000)
def _of_id(registry: Registry, schema_id: int, path: tuple[int, ...]) -> ProtobufWriter | None:
    understood = registry.understood(schema_id)
    if understood is None:
        return None
    parsed = cast("ParsedProtobuf", understood[1])
    within, name = parsed.file.message_type, parsed.file.package
    for number in path:
        if not 0 <= number < len(within):
            return None
        name = f"{name}.{within[number].name}" if name else within[number].name
        within = within[number].nested_type
    try:
        return ProtobufWriter(parsed.pool.FindMessageTypeByName(name), parsed.pool)
    except (UsageError, KeyError):
        return None


def _named(parsed: ParsedProtobuf, record: str) -> ProtobufWriter:
    """Return the message of a full name, or the first message if `record` is empty. Raises UsageError."""
    own = parsed.file
    if not own.message_type:
        raise UsageError("Protobuf schema: it has no message")
    package = f"{own.package}." if own.package else ""
    name = record or f"{package}{own.message_type[0].name}"
    try:
        return ProtobufWriter(parsed.pool.FindMessageTypeByName(name), parsed.pool)
    except KeyError:
        raise UsageError(f"Protobuf schema: it has no message {name}") from None


def fields_of_text(
    text: str, references: dict[str, str] | None = None, record: str = ""
) -> tuple[str, tuple[Field, ...]]:
    """Return (the name, the fields) of a message. Raises UsageError."""
    writer = _of_text(text, tuple((references or {}).items()), record)
    return writer.name, writer.fields

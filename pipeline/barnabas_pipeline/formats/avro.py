"""Avro: each record is read by its writer's schema, named by the id before the value, or by the schema of a file.

The rule: see `binary`. Reasons beside those of JSON: framing, schema_id, avro.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import parse
from barnabas.registry.schemas import AVRO, Schema
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Field
from barnabas_pipeline.formats.avro_columns import ColumnReader, has_fast_way
from barnabas_pipeline.formats.avro_plan import Plan, fields_of, plan_of
from barnabas_pipeline.formats.avro_values import Reader
from barnabas_pipeline.formats.binary import NO_ID, BinaryDecoder, Writer
from barnabas_pipeline.formats.framing import View
from barnabas_pipeline.formats.registry import Registry
from barnabas_pipeline.formats.resolve import as_json, has_kept
from barnabas_pipeline.log.columns import NotSureError

if TYPE_CHECKING:
    from barnabas.registry.formats.avro import AvroSchema as ParsedAvro
    from barnabas_pipeline.data_types import Column, Document, Mask, Row


@dataclass(slots=True)
class AvroWriter:
    """A schema of Avro, ready for reading."""

    name: str
    plan: Plan
    fields: tuple[Field, ...]

    def read(self, payload: bytes) -> tuple[Row, Document]:
        """Read one value. Raises RefusedError."""
        reader = Reader(payload)
        value = self._row(reader)
        if not reader.is_inexact:
            return value, {}
        held = {field.name: (value[field.name], field.type) for field in self.fields}
        return value, {name: as_json(*pair) for name, pair in held.items() if has_kept(pair[0])}

    def _row(self, reader: Reader) -> Row:
        value = reader.whole(self.plan)
        is_record = self.plan.kind == "record" and not self.plan.is_recursive
        row: Row = value if is_record else {"value": value}
        return row

    def read_columns(self, view: View) -> tuple[list[Column], Mask]:
        """Read many values. Raises NotSureError."""
        if not has_fast_way(self.plan):
            raise NotSureError
        return ColumnReader(*view, self.plan).read(self.plan)


@dataclass(frozen=True, slots=True)
class AvroDecoder(BinaryDecoder):
    """Decoder of Avro values."""

    format = "avro"

    def writer(self, schema_id: int, path: tuple[int, ...]) -> Writer | None:  # noqa: ARG002
        """Return the schema of an id."""
        if schema_id == NO_ID:
            return _of_text(self.text)
        assert self.registry is not None
        return _of_id(self.registry, schema_id) if self.known(schema_id) else None


@lru_cache(256)
def _of_text(text: str) -> AvroWriter:
    try:
        return _made(cast("ParsedAvro", parse(Schema(AVRO, text))))
    except SchemaError as error:
        raise UsageError(f"Avro schema: {error}") from None


@lru_cache(1_000)
def _of_id(registry: Registry, schema_id: int) -> AvroWriter | None:
    understood = registry.understood(schema_id)
    try:
        return None if understood is None else _made(cast("ParsedAvro", understood[1]))
    except UsageError:
        return None


def _made(parsed: ParsedAvro) -> AvroWriter:
    plan = plan_of(parsed.root)
    return AvroWriter(parsed.root.name, plan, fields_of(plan))


def fields_of_text(text: str, references: dict[str, str] | None = None) -> tuple[str, tuple[Field, ...]]:
    """Return (the name, the fields) of a schema. Raises UsageError."""
    try:
        writer = _made(cast("ParsedAvro", parse(Schema(AVRO, text), [*(references or {}).items()])))
    except SchemaError as error:
        raise UsageError(f"Avro schema: {error}") from None
    return writer.name, writer.fields

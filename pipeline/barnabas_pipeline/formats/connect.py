"""JSON as Kafka Connect's JsonConverter writes it with `schemas.enable`: {"schema": ..., "payload": ...} in each record.

The rule: the payload is judged as JSON is, by the schema of the table; the schema in the record only drafts that one. A
record without such an envelope is its own payload, and a payload that is no object is the field `value`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Array, Decimal, Field, Map, Record, Type, merged, refused
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.formats.json_values import members, parse_object
from barnabas_pipeline.log.columns import Columns
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema, named_apart

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers, Json, Value

PAYLOAD = "payload"
MEMBERS = {"schema", PAYLOAD}
HEADS_MAX = 64
_PLAIN = {
    "boolean": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float",
    "double": "double", "string": "string", "bytes": "bytes",
}  # fmt: skip
_NAMED = {
    "io.debezium.time.Date": "date_days",
    "io.debezium.time.Time": "time_ms",
    "io.debezium.time.MicroTime": "time_us",
    "io.debezium.time.Timestamp": "local_timestamp_ms",
    "io.debezium.time.MicroTimestamp": "local_timestamp_us",
    "io.debezium.time.NanoTimestamp": "local_timestamp_ns",
    "io.debezium.time.ZonedTimestamp": "iso8601",
    "io.debezium.data.Uuid": "uuid",
    "org.apache.kafka.connect.data.Date": "date_days",
    "org.apache.kafka.connect.data.Time": "time_ms",
    "org.apache.kafka.connect.data.Timestamp": "timestamp_ms",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_PRECISION = "connect.decimal.precision"


@dataclass(frozen=True, slots=True)
class ConnectJsonDecoder(JsonDecoder):
    """Decoder of payloads."""

    format = "connect-json"

    def _decode_fast(self, columns: Columns) -> tuple[list[tuple[Integers, pa.Table]], Integers]:
        heads = _Heads()
        try:
            payloads = [heads.payload(value, self.value_bytes_max) for value in columns.value.to_pylist()]
        except RefusedError:
            return [], np.arange(len(columns))
        unwrapped = Columns(*columns[:5], pa.array(payloads, pa.binary()), columns.headers)
        return JsonDecoder._decode_fast(self, unwrapped)

    def read(self, value: bytes) -> Mapping[str, Value]:
        """Decode one event. Raises RefusedError."""
        return JsonDecoder.read(self, payload_of(value, self.value_bytes_max))


def payload_of(value: bytes, bytes_max: int) -> bytes:
    """Return the payload of an encoded value; without a payload, the value itself. Raises RefusedError."""
    if parse_object(value, bytes_max).keys() != MEMBERS:
        return value
    text = next(text for name, text in members(value) if name == PAYLOAD)
    if not text.startswith(f'"{PAYLOAD}"'):
        raise RefusedError("json", "the name of the payload is written with escapes")
    text = text[len(f'"{PAYLOAD}"') :].lstrip(" \t\r\n:")
    return (text if text.startswith("{") else f'{{"value":{text}}}').encode()


class _Heads:
    """Cache of the bytes before a payload, which are equal for equal schemas, so that each is parsed once."""

    def __init__(self) -> None:
        self._known: list[bytes] = []

    def payload(self, value: bytes | None, bytes_max: int) -> bytes | None:
        """Return the payload of a value. Raises RefusedError."""
        if value is None:
            return None
        for head in self._known:
            if value.startswith(head) and value.endswith(b"}"):
                return value[len(head) : -1]  # the JSON reader checks that it is a single object
        payload = payload_of(value, bytes_max)
        head = value[: -1 - len(payload)]
        if len(self._known) < HEADS_MAX and value == head + payload + b"}" and head.endswith(b'"payload":'):
            self._known.append(head)
        return payload


# --- schemas --------------------------------------------------------------------------------------------------------


def draft(name: str, values: Iterable[bytes | None]) -> EventSchema:
    """Draft a schema with all fields of the schemas in some values. Raises UsageError."""
    fields: tuple[Field, ...] = ()
    seen: set[str] = set()
    for value in values:
        try:
            held = parse_object(value)
        except RefusedError:
            continue
        text = json.dumps(held.get("schema"))
        if held.keys() == MEMBERS and isinstance(held["schema"], dict) and text not in seen:
            seen.add(text)
            kind = type_of(held["schema"])
            if not isinstance(kind, Record) or refused(fields, kind.fields):
                raise UsageError(f"the schemas in the records of {name} are not of one table")
            fields = merged(fields, kind.fields)
    if not fields:
        raise UsageError(f"among the records of {name} is none with a schema in it")
    return EventSchema(name, NO_EVENT_TIME, named_apart(fields))


def type_of(schema: Mapping[str, Json]) -> Type:
    """Return the type of a Connect schema; no field is required, since a column may be dropped."""
    kind, name = schema.get("type"), schema.get("name")
    if name in _NAMED:
        return _NAMED[str(name)]
    if name == _DECIMAL:
        parameters = schema.get("parameters", {})
        scale = int(parameters.get("scale", 0))
        return Decimal(max(int(parameters.get(_PRECISION, 38)), scale, 1), scale, is_bytes=True)
    match kind:
        case "struct" if schema.get("fields"):
            return Record(tuple(Field(str(field["field"]), type_of(field)) for field in schema["fields"]))
        case "array":
            return Array(Field("element", type_of(schema["items"])))
        case "map" if schema.get("keys", {}).get("type") == "string":
            return Map(Field("value", type_of(schema["values"])))
    return _PLAIN.get(str(kind), "json")

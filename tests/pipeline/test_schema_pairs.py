"""A field of each type becomes one of each other type: what Iceberg widens is widened, all else is judged by record.

Nothing stops a topic: a value of the newer schema is a row, or a dead letter with its reason, by both ways of decoding.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory

from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema
from barnabas_pipeline.commands.formats import fields_of
from barnabas_pipeline.formats.avro import AvroDecoder
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.formats.protobuf import ProtobufDecoder
from barnabas_pipeline.lake import iceberg, table_schema
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema, named_apart

from . import decoding
from .decoding import written
from .tables import local_place, stock


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int) -> Any:
    return logical("bytes", "decimal", precision=precision, scale=2)


AVRO: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", True),
    "int": ("int", 7),
    "long": ("long", 1 << 40),
    "float": ("float", 1.5),
    "double": ("double", 1e300),
    "string": ("string", "a"),
    "bytes": ("bytes", b"\xff"),
    "date": (logical("int", "date"), 3),
    "date-beyond": (logical("int", "date"), (1 << 31) - 1),
    "time": (logical("long", "time-micros"), 86_400_000_000),
    "millis": (logical("long", "timestamp-millis"), 5),
    "micros": (logical("long", "timestamp-micros"), 9_223_371_331_200_000_000),
    "local": (logical("long", "local-timestamp-micros"), 5),
    "decimal9": (decimal(9), Decimal("1.10")),
    "decimal18": (decimal(18), Decimal("12345678901234.10")),
    "uuid": (logical("string", "uuid"), "507f1f77-bcf8-4cd7-9943-901100000000"),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    "array": ({"type": "array", "items": "int"}, [1, 2]),
    "longs": ({"type": "array", "items": "long"}, [1 << 40]),
    "map": ({"type": "map", "values": "string"}, {"k": "v"}),
    "record": ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}),
    "wider": (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}],
        },
        {"x": 1 << 40, "y": "z"},
    ),
    "empty": ({"type": "record", "name": "R", "fields": []}, {}),
    "union": (["int", "string"], "u"),
}
PROTOBUF: dict[str, tuple[str, Any]] = {
    "int32": ("int32", 7),
    "int64": ("int64", 1 << 40),
    "uint32": ("uint32", 7),
    "uint64": ("uint64", 1 << 63),
    "float": ("float", 1.5),
    "double": ("double", 1e300),
    "bool": ("bool", True),
    "string": ("string", "a"),
    "bytes": ("bytes", b"\xff"),
    "enum": ("E", 1),
    "message": ("M", {"x": 1}),
    "wider": ("W", {"x": 1 << 40, "y": "z"}),
    "empty": ("N", {}),
    "repeated": ("repeated int32", [1, 2]),
}
JSON: dict[str, tuple[Any, Any]] = {
    "integer": ({"type": "integer"}, 1 << 40),
    "number": ({"type": "number"}, 1.5),
    "string": ({"type": "string"}, "a"),
    "boolean": ({"type": "boolean"}, True),
    "time": ({"type": "string", "format": "date-time"}, "2026-11-20T14:00:00.123456789Z"),
    "array": ({"type": "array", "items": {"type": "integer"}}, [1]),
    "object": ({"type": "object", "properties": {"x": {"type": "integer"}}}, {"x": 1}),
    "wider": (
        {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
        {"x": 5, "y": "z"},
    ),
    "empty": ({"type": "object"}, {"q": 1}),
}
MESSAGES = "enum E { A = 0; B = 1; } message M { int32 x = 1; } message W { int64 x = 1; string y = 2; } message N {}"


def avro(kind: Any, value: Any) -> tuple[str, bytes]:
    text = {
        "type": "record",
        "name": "V",
        "fields": [{"name": "_id", "type": "int"}, {"name": "x", "type": kind}],
    }
    return json.dumps(text), written(text, {"_id": 1, "x": value})


def protobuf(kind: str, value: Any) -> tuple[str, bytes]:
    text = f'syntax = "proto3"; message V {{ int32 _id = 1; {kind} x = 2; }} {MESSAGES}'
    pool = parse(Schema("PROTOBUF", text), []).pool  # type: ignore[attr-defined]
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("V"))(_id=1, x=value)
    return text, message.SerializeToString()


def json_schema(kind: Any, value: Any) -> tuple[str, bytes]:
    text = {"type": "object", "title": "V", "properties": {"_id": {"type": "integer"}, "x": kind}}
    return json.dumps(text), json.dumps({"_id": 1, "x": value}).encode()


def decoder(form: str, schema: EventSchema, text: str) -> Any:
    if form == "json":
        return JsonDecoder(schema)
    return AvroDecoder(schema, text=text) if form == "avro" else ProtobufDecoder(schema, text=text)


def schema_of(form: str, text: str) -> EventSchema:
    return EventSchema("t", NO_EVENT_TIME, named_apart(fields_of(form, text, {})[1])).checked()


FORMS: dict[str, tuple[dict[str, Any], Callable[[Any, Any], tuple[str, bytes]], set[str]]] = {
    "avro": (AVRO, avro, {"int long", "float double", "decimal9 decimal18", "array longs", "record wider"}),
    "protobuf": (
        PROTOBUF,
        protobuf,
        {"int32 int64", "float double", "int32 uint32", "message wider", "empty message"},
    ),
    "json": (JSON, json_schema, {"empty object", "empty array", "empty string", "object wider"}),
}
"""Types with a value, what writes it, and pairs of which the first becomes the second where Iceberg can."""


@pytest.mark.parametrize("form", FORMS)
def test_value_of_a_changed_field_is_a_row_or_a_dead_letter(tmp_path: Path, form: str) -> None:
    types, write, widening = FORMS[form]
    place, before, after = local_place(tmp_path), [], []
    for old_name, old in types.items():
        for new_name, new in types.items():
            (old_text, old_value), (new_text, new_value) = write(*old), write(*new)
            mine = schema_of(form, old_text)
            grown = mine.grown(schema_of(form, new_text))
            pair = f"{old_name} {new_name}"
            before.append(replace(mine.fields[1], name=pair))
            after.append(replace(grown.fields[1], name=pair))
            assert verdict(form, mine, old_text, old_value) == "row", pair
            assert verdict(form, grown, old_text, old_value) == "row", pair
            outcomes = [verdict(form, schema, new_text, new_value) for schema in (mine, grown)]
            assert outcomes[1] == "row" or pair not in widening, (pair, outcomes)
    iceberg.create(iceberg.open_catalog(place), place, EventSchema("t", NO_EVENT_TIME, tuple(before)))
    columns = lake_schema(EventSchema("t", NO_EVENT_TIME, tuple(after)))
    table_schema.evolve(stock(place), columns)
    table_schema.check_columns(stock(place), columns)


def verdict(form: str, schema: EventSchema, text: str, value: bytes) -> str:
    """Return `row`, or the reason of a dead letter; both ways of decoding say the same."""
    judging = decoder(form, schema, text)
    [fast], [one_by_one] = (decoding.verdict(each, [value]) for each in (judging, decoding.careful(judging)))
    assert decoding.same(fast, one_by_one)
    return fast if isinstance(fast, str) else "row"

"""Schemas of all types: written and read again, taken from files and registries, grown, drafted; and JSON decoded to
them."""

from __future__ import annotations

import io
import json
import shutil
from argparse import ArgumentParser
from decimal import Decimal as Number
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import fastavro
import pytest

from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema
from barnabas_pipeline import formats
from barnabas_pipeline.commands import formats as options
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Array, Decimal, Enum, Field, Map, Record, Union
from barnabas_pipeline.formats import registry as registries
from barnabas_pipeline.formats.avro import AvroDecoder, fields_of_text
from barnabas_pipeline.formats.base import EXTRA
from barnabas_pipeline.formats.inference import draft
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.formats.json_schema import fields_of_text as json_fields
from barnabas_pipeline.formats.resolve import as_json
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import NOW, careful, columns, verdict, written
from tests.support.pages import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]


# --- growth and resolution ----------------------------------------------------------------------------------------------


def registered(url: str, *texts: str, form: str = "AVRO") -> registries.Registry:
    """A registry that has been asked for schemas 1, 2, ... already."""
    source = registries.Registry(url)
    for n, text in enumerate(texts, 1):
        schema = Schema(form, text)
        registries.SCHEMAS.put(source, n, schema, parse(schema))
    registries.SCHEMAS.put(source, 99, None, None)
    return source


def record(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind, **more} for name, kind, more in fields],
    }


def framed(n: int, schema: Any, value: Any) -> bytes:
    return b"\x00" + n.to_bytes(4) + written(schema, value)


def test_records_are_resolved_from_the_writers_schema() -> None:
    mine = record(
        ("a", "long", {}),
        ("b", ["null", "string"], {"default": None}),
        ("c", "int", {"default": 7}),
        ("d", "double", {}),
        ("e", record(("x", "int", {})) | {"name": "E"}, {}),
    )
    theirs = record(
        ("a", "int", {}),
        ("d", "float", {}),
        ("new", {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}, {}),
        ("e", record(("x", "int", {}), ("y", "bytes", {})) | {"name": "E"}, {}),
        ("b", "string", {}),
    )
    odd = record(
        ("a", "string", {}), ("d", "double", {}), ("e", record(("x", "int", {})) | {"name": "E"}, {})
    )
    source = registered("http://resolved:1", *map(json.dumps, (mine, theirs, odd)))
    decoder = AvroDecoder(
        EventSchema("t", NO_EVENT_TIME, fields_of_text(json.dumps(mine))[1]), registry=source
    )
    values: list[bytes | None] = [
        framed(1, mine, {"a": 1 << 40, "b": None, "c": 3, "d": 0.1, "e": {"x": 1}}),
        framed(2, theirs, {"a": 5, "d": 0.5, "new": {"k": 1}, "e": {"x": 2, "y": b"\xff"}, "b": "hm"}),
        framed(3, odd, {"a": "no", "d": 1.0, "e": {"x": 1}}),
        framed(99, mine, {"a": 1, "b": None, "c": 3, "d": 0.1, "e": {"x": 1}}),
        b"\x00\x00\x00\x00\x01",
        b"\x01",
        b"",
        framed(1, mine, {"a": 2, "b": "x", "c": 4, "d": 0.2, "e": {"x": 3}}),
    ]
    rows = [
        {"a": 1 << 40, "b": None, "c": 3, "d": 0.1, "e": {"x": 1}, EXTRA: None},
        {
            "a": 5,
            "b": "hm",
            "c": 7,
            "d": 0.5,
            "e": {"x": 2},
            EXTRA: '{"new":{"k":"1970-01-01T00:00:00.001000Z"},"e":{"x":2,"y":"/w=="}}',
        },
        "type",
        "schema_id",
        "avro",
        "framing",
        "framing",
        {"a": 2, "b": "x", "c": 4, "d": 0.2, "e": {"x": 3}, EXTRA: None},
    ]
    assert verdict(decoder, values) == rows
    assert verdict(careful(decoder), values) == rows
    _, doubtful = decoder._decode_fast(columns(values))
    assert doubtful.tolist() == [2, 3, 4, 5, 6]


def test_framing_is_a_zero_byte_and_four_bytes_of_id() -> None:
    schema = record(("a", "long", {}))
    source, large = registered("http://framed:1", json.dumps(schema)), 0x01020304
    text = Schema("AVRO", json.dumps(schema))
    registries.SCHEMAS.put(source, large, text, parse(text))
    decoder = AvroDecoder(
        EventSchema("t", NO_EVENT_TIME, fields_of_text(json.dumps(schema))[1]), registry=source
    )
    values: list[bytes | None] = [
        framed(large, schema, {"a": 5}),
        b"\x01" + framed(1, schema, {"a": 5})[1:],
        bytes(4),
    ]
    for each in (decoder, careful(decoder)):
        assert verdict(each, values) == [{"a": 5, EXTRA: None}, "framing", "framing"]


@pytest.mark.parametrize(
    ("kind", "default", "kept"),
    [
        ("int", 7, 7), ("string", "x", "x"), ("boolean", False, False), ("double", 0.5, 0.5), ("bytes", "\xff", "/w=="),
        (["null", "int"], None, None), (["int", "null"], 7, 7),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [], []), ({"type": "array", "items": "int"}, [1], None),
        ({"type": "map", "values": "int"}, {}, {}), ({"type": "map", "values": "int"}, {"a": 1}, None),
        ({"type": "int", "logicalType": "date"}, 1, None),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, 5),
    ],
)  # fmt: skip
def test_defaults_of_avro_are_kept_where_json_can_say_them(kind: Any, default: Any, kept: Any) -> None:
    (field,) = fields_of_text(json.dumps(record(("a", kind, {"default": default}))))[1]
    assert field.default == kept
    assert type(field.default) is type(kept)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("double", 0.5, 0.5), ("double", float("nan"), "NaN"), ("float", float("inf"), "Infinity"),
        ("float", float("-inf"), "-Infinity"), ("long", 7, 7), ("string", "x", "x"), ("boolean", True, True),
        ("bytes", b"\xff", "/w=="), (Decimal(5, 2), Number("1.50"), "1.50"), ("unsigned_long", 2**64 - 1, str(2**64 - 1)),
        ("json", '{"a":1}', {"a": 1}), ("date", -1, "1969-12-31"), ("timestamp_ms", 1_500, "1970-01-01T00:00:00.001500Z"),
        ("local_timestamp_ms", 1_500, "1970-01-01T00:00:00.001500"), ("string", None, None),
        (Array(Field("element", "double")), [float("nan")], ["NaN"]),
        (Map(Field("key", "boolean"), Field("value", "long")), [(True, 1), (False, None)], {"true": 1, "false": None}),
        (Union((Field("a", "long"), Field("b", "double"))), {"a": None, "b": float("inf")}, {"b": "Infinity"}),
        (Union((Field("a", "long"),)), {"a": None}, None),
        (Record((Field("x", "date"), Field("y", "long"))), {"x": 0}, {"x": "1970-01-01", "y": None}),
    ],
)  # fmt: skip
def test_what_has_no_column_is_kept_as_json(kind: Any, value: Any, text: Any) -> None:
    assert as_json(value, kind) == text


def test_a_table_grows_by_what_a_newer_schema_has() -> None:
    old = EventSchema(
        "t", "at", (Field("at", "timestamp_ms", True), Field("e", Record((Field("x", "int"),))))
    )
    new = EventSchema(
        "t",
        "at",
        (
            Field("n", "long", True),
            Field("at", "timestamp_ms", True),
            Field("e", Record((Field("y", "int", True), Field("x", "int")))),
        ),
    )
    grown = old.grown(new)
    old.check_evolution(grown)
    assert [(f.name, f.required) for f in grown.fields] == [("at", True), ("e", False), ("n", False)]
    assert [f.name for f in grown.fields[1].type.fields] == ["x", "y"]  # type: ignore[union-attr]
    other = EventSchema(
        "t", "at", (Field("at", "timestamp_ms", True), Field("e", "string"), Field("E", "int"))
    )
    assert old.grown(other) == old, "records are judged one by one"
    assert old.refused(other) == [
        "e cannot become string from record",
        "E differs from another field in case alone",
    ]


LOGICAL = [
    ({"type": "int", "logicalType": "date"}, 19782, "date", 19782),
    ({"type": "int", "logicalType": "time-millis"}, 5, "time_ms", 5000),
    ({"type": "long", "logicalType": "time-micros"}, 5, "time_us", 5),
    ({"type": "long", "logicalType": "timestamp-millis"}, NOW, "timestamp_ms", NOW * 1000),
    ({"type": "long", "logicalType": "timestamp-micros"}, NOW, "timestamp_us", NOW),
    ({"type": "long", "logicalType": "timestamp-nanos"}, NOW, "timestamp_ns", NOW),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, NOW, "local_timestamp_ms", NOW * 1000),
    (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        bytes(15) + b"\x01",
        "uuid",
        "00000000-0000-0000-0000-000000000001",
    ),
    (
        {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0},
        (5).to_bytes(20),
        Decimal(38, 0),
        Number(5),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        (-150).to_bytes(3, signed=True),
        Decimal(4, 2),
        Number("-1.50"),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        b"",
        Decimal(4, 2),
        Number("0.00"),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 2},
        b"\x05",
        Decimal(2, 2),
        Number("0.05"),
    ),
]


@pytest.mark.parametrize(("kind", "raw", "expected", "value"), LOGICAL)
def test_logical_types_of_avro(kind: Any, raw: Any, expected: Any, value: Any) -> None:
    schema = record(("a", kind, {}))
    plain = {name: held for name, held in kind.items() if name not in ("logicalType", "precision", "scale")}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record(("a", plain, {}))), {"a": raw})
    fields = fields_of_text(json.dumps(schema))[1]
    assert fields[0].type == expected
    decoder = AvroDecoder(EventSchema("t", NO_EVENT_TIME, fields), text=json.dumps(schema))
    for way in (decoder, careful(decoder)):
        assert verdict(way, [out.getvalue()]) == [{"a": value, EXTRA: None}]


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1 << 62),
        ({"type": "int", "logicalType": "date"}, 1 << 30),
        ({"type": "int", "logicalType": "time-millis"}, -1),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x64"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x7f" + bytes(15)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x7f" * 40),
    ],
)
def test_what_no_column_holds_is_refused_or_kept(kind: Any, raw: Any) -> None:
    schema = record(("a", kind, {}))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record(("a", kind["type"], {}))), {"a": raw})
    decoder = AvroDecoder(
        EventSchema("t", NO_EVENT_TIME, fields_of_text(json.dumps(schema))[1]), text=json.dumps(schema)
    )
    for way in (decoder, careful(decoder)):
        is_time = isinstance(raw, int)
        expected = {"a": None, "_extra": f'{{"a":{raw}}}'} if is_time else "range"
        assert verdict(way, [out.getvalue()]) == [expected]


def test_a_record_within_itself_becomes_text() -> None:
    node = record(("v", "long", {}), ("next", ["null", "R"], {}))
    schema = {"type": "record", "name": "Top", "fields": [{"name": "node", "type": node}]}
    decoder = AvroDecoder(
        EventSchema("t", NO_EVENT_TIME, fields_of_text(json.dumps(schema))[1]), text=json.dumps(schema)
    )
    (row, deep) = verdict(
        decoder, [written(schema, {"node": {"v": 1, "next": {"v": 2, "next": None}}}), b"\x02\x02" * 5_000]
    )
    assert json.loads(row["node"]) == {"v": 1, "next": {"v": 2, "next": None}}
    assert deep == "avro"


# --- files, options, drafts ---------------------------------------------------------------------------------------------


def chosen(*words: str, table: Any = None) -> Any:
    parser = ArgumentParser()
    parser.add_argument("--topic", default="t")
    options.add_format(parser)
    return options.choose(parser.parse_args(words), lambda: table or {})


def test_schemas_are_read_from_files_of_all_formats(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "place.proto").write_text(
        'syntax = "proto3"; package p; message Place { string name = 1; }'
    )
    files = {
        "a.avsc": json.dumps(record(("x", "long", {}))),
        "b.proto": 'syntax = "proto3"; import "shared/place.proto"; message B { p.Place place = 1; int64 x = 2; }',
        "c.json": json.dumps({"$schema": "x", "type": "object", "properties": {"x": {"type": "integer"}}}),
        "d.json": json.dumps(
            {"name": "d", "event_time": "ts", "fields": [{"name": "ts", "type": "long", "required": True}]}
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    by_name = {name: chosen("--schema", str(tmp_path / name)) for name in files}
    assert [entry.decoding.get("format") for entry in by_name.values()] == ["avro", "protobuf", None, None]
    assert [entry.schema.fields[-1].name for entry in by_name.values()] == ["x", "x", "x", "ts"]
    for entry in by_name.values():
        limits = json.loads(json.dumps(formats.restore(entry.schema, entry.decoding).limits()))
        assert formats.restore(entry.schema, limits) == formats.restore(entry.schema, entry.decoding)
    table = by_name["a.avsc"].schema.to_dict()
    (tmp_path / "a.avsc").write_text(json.dumps(record(("x", "long", {}), ("y", "int", {}))))
    assert [f.name for f in chosen("--schema", str(tmp_path / "a.avsc"), table=table).schema.fields] == ["x"]
    assert [
        f.name for f in chosen("--schema", str(tmp_path / "a.avsc"), "--evolve", table=table).schema.fields
    ] == ["x", "y"]


def test_json_schemas_become_columns_or_text() -> None:
    text = json.dumps(
        {
            "title": "T",
            "type": "object",
            "required": ["a", "f"],
            "$defs": {"loop": {"type": "object", "properties": {"next": {"$ref": "#/$defs/loop"}}}},
            "properties": {
                "a": {"type": "integer", "minimum": 0},
                "b": {"oneOf": [{"type": "null"}, {"type": "string", "format": "uuid"}]},
                "c": {"type": ["string", "integer"]},
                "d": {"type": "object", "additionalProperties": {"type": "number"}},
                "e": {},
                "f": {"enum": ["x", "y"]},
                "g": {"$ref": "#/$defs/loop"},
                "h": {"type": "string", "contentEncoding": "base64"},
            },
        }
    )
    title, fields = json_fields(text)
    assert title == "T"
    assert fields[:4] == (
        Field("a", "long", True, min=0),
        Field("b", "uuid"),
        Field("c", Union((Field("string", "string"), Field("long", "long")))),
        Field("d", Map(Field("value", "double", True))),
    )
    assert fields[4:] == (
        Field("e", "json"),
        Field("f", Enum(("x", "y")), True),
        Field("g", Record((Field("next", "json"),))),
        Field("h", "bytes"),
    )


def test_a_draft_holds_the_sample_that_it_was_made_from() -> None:
    sample: list[bytes | None] = [
        json.dumps(
            {
                "ts": NOW + n,
                "id": "00000000-0000-0000-0000-000000000000",
                "n": n / 2 if n else 1,
                "tags": ["a"] * n,
                "deep": {"x": None if n else 1},
                "any": n or "x",
            }
        ).encode()
        for n in range(3)
    ] + [b"no json"]
    schema = draft("t", sample)
    assert schema.event_time == "ts"
    assert {f.name: f.type for f in schema.fields} == {
        "ts": "long",
        "id": "uuid",
        "n": "double",
        "tags": Array(Field("element", "string", True)),
        "deep": Record((Field("x", "long"),)),
        "any": "json",
    }
    assert EventSchema.from_dict(schema.to_dict()) == schema
    assert [isinstance(row, dict) for row in verdict(JsonDecoder(schema), sample)] == [
        True,
        True,
        True,
        False,
    ]


def test_decoder_of_the_how_to_is_found_by_entry_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / "csv_decoder.py", tmp_path / "csv_events.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = [EntryPoint("csv", "csv_events:CsvDecoder", formats.GROUP)]
    monkeypatch.setattr(formats, "entry_points", lambda group: mine if group == formats.GROUP else [])
    schema = EventSchema(
        "t",
        "at",
        (Field("at", "long", True), Field("name", "string", True, max=5), Field("price", Decimal(9, 2))),
    )
    decoder = formats.restore(schema, {"format": "csv"})
    lines = [b"%d,apple,1.50" % NOW, b"%d,bananas,1" % NOW, b"x,apple,1", b"\xff", b"%d,kiwi,1,more" % NOW]
    assert verdict(decoder, list(lines)) == [
        {"at": NOW, "name": "apple", "price": Number("1.50"), EXTRA: None},
        "range",
        "csv",
        "csv",
        "csv",
    ]
    assert formats.restore(schema, decoder.limits()) == decoder
    with pytest.raises(
        UsageError, match="is no format: json, connect-json, avro, protobuf, raw, string, csv"
    ):
        formats.restore(schema, {"format": "tsv"})

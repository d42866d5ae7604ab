"""Schemas understood, and data written and read by them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema

ORDER = """{
  "type": "record", "name": "Order", "namespace": "shop", "doc": "an order",
  "fields": [
    {"name": "id", "type": "string"},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}, "default": "NEW"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    {"name": "raw", "type": ["null", "bytes"], "default": null},
    {"name": "price", "type": "double", "default": 0},
    {"name": "before", "type": ["null", "Order"], "default": null}
  ]
}"""
PROTO = """// orders
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

message Order {
  reserved 9, 20 to max;
  string id = 1 [json_name = "ID", deprecated = true];
  repeated Line lines = 2;
  map<string, int32> counts = 3;
  optional int64 at = 4;
  oneof paid { bool cash = 5; Card card = 6; }
  google.protobuf.Timestamp time = 7;
  State state = 8;
  message Line { string sku = 1; }
  enum State { NEW = 0; DONE = 1; }
}

message Card { bytes number = 1; }

service Orders { rpc Get(Order) returns (stream Card); }
"""


def avro(text: str, *dependencies: tuple[str, str]) -> Any:
    return parse(Schema("AVRO", text), dependencies, is_new=True)


def proto(text: str, *dependencies: tuple[str, str]) -> Any:
    return parse(Schema("PROTOBUF", text), dependencies, is_new=True)


def test_avro_goes_through_json() -> None:
    schema = avro(ORDER)
    value = {"id": "1", "raw": "\x00\xff", "price": "NaN", "before": {"id": "0", "state": "DONE"}}
    decoded = schema.decode(schema.encode(value))
    assert decoded == {
        "id": "1", "state": "NEW", "at": 0, "raw": "\x00\xff", "price": "NaN",
        "before": {"id": "0", "state": "DONE", "at": 0, "raw": None, "price": 0.0, "before": None},
    }  # fmt: skip
    assert schema.decode(schema.encode(decoded)) == decoded
    assert json.loads(json.dumps(decoded)) == decoded


def test_a_union_is_written_by_the_branch_that_fits_or_is_named() -> None:
    schema = avro(
        '["null","int","string",{"type":"record","name":"R","fields":[{"name":"int","type":"int"}]}]'
    )
    for value in (None, 5, "five", {"int": 5}):
        assert schema.decode(schema.encode(value)) == (5 if value == {"int": 5} else value)
    assert schema.decode(schema.encode({"R": {"int": 5}})) == {"int": 5}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "id is missing"),
        ({"id": 5}, "id is no string"),
        ({"id": "1", "more": 1}, "shop.Order has no field more"),
        ({"id": "1", "at": 2**63}, "at is no long"),
        ({"id": "1", "before": {"id": None}}, "before is none of null, shop.Order"),
        ([], "the value is no shop.Order"),
    ],
)
def test_a_value_that_is_no_avro_of_its_schema_is_told(value: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        avro(ORDER).encode(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("5", "No type"),
        ('{"type":"recor"}', "Undefined name"),
        ('{"type":"record","name":"a-b","fields":[]}', "Illegal name"),
        ('{"type":"record","name":"R"}', "no fields"),
        ('{"type":"record","fields":[]}', "No name"),
        ('{"type":"record","name":"R","fields":[{"name":"x"}]}', "No field type"),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}',
            "Duplicate field",
        ),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":"s"}]}', "Default value"),
        ('{"type":"enum","name":"E","symbols":["a","a"]}', "Duplicate enum symbol"),
        ('{"type":"enum","name":"E","symbols":["a"],"default":"b"}', "Enum Default"),
        ('["null","null"]', "Duplicate in union"),
        ('[["null"]]', "Nested union"),
        ('{"type":"fixed","name":"F"}', "Invalid or no size"),
        ('{"type":"array"}', "without items"),
    ],
)
def test_what_is_no_avro_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        avro(text)


def test_defaults_within_defaults_are_judged_once_each() -> None:
    """Each record has two fields of the one before, with a default that has their defaults: 2**60 values."""
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int", "default": 0}]}
    for number in range(1, 61):
        fields = [
            {"name": "a", "type": kind, "default": {}},
            {"name": "b", "type": f"R{number - 1}", "default": {}},
        ]
        kind = {"type": "record", "name": f"R{number}", "fields": fields}
    assert avro(json.dumps(kind))
    with pytest.raises(SchemaError, match=r"R0\.x is no int"):
        avro(json.dumps(kind).replace('"default": 0', '"default": "0"'))


@pytest.mark.parametrize(
    ("draft", "schema"),
    [
        ("http://json-schema.org/draft-04/schema#", {"maximum": 5, "exclusiveMaximum": True}),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMaximum": 5}),
        ("http://json-schema.org/draft-07/schema#", {"exclusiveMaximum": 5}),
        ("https://json-schema.org/draft/2019-09/schema", {"exclusiveMaximum": 5}),
        ("https://json-schema.org/draft/2020-12/schema", {"exclusiveMaximum": 5}),
    ],
)
def test_each_draft_is_applied(draft: str, schema: Any) -> None:
    parsed = parse(Schema("JSON", json.dumps({"$schema": draft, **schema})), is_new=True)
    assert parsed.decode(parsed.encode(4)) == 4
    with pytest.raises(SchemaError, match=r"\$: 5 "):
        parsed.encode(5)


def test_json_schemas_refer_by_name_also_beside_their_address() -> None:
    city = '{"type":"object","required":["name"]}'
    for root in ({}, {"$id": "http://example.com/person.json"}):
        text = json.dumps({**root, "properties": {"c": {"$ref": "city.json"}}})
        parsed = parse(Schema("JSON", text), [("city.json", city)], is_new=True)
        with pytest.raises(SchemaError, match="'name' is a required property"):
            parsed.encode({"c": {}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "not JSON"),
        ("[]", "neither an object"),
        ('{"type":"nothing"}', "nothing"),
        ('{"$ref":"http://127.0.0.1:1/x.json"}', "refers to"),
        ('{"properties":{"a":{"$ref":"#/definitions/b"}}}', "refers to"),
    ],
)
def test_what_is_no_json_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse(Schema("JSON", text), is_new=True)


COMPILED = [
    json.loads(line)
    for line in (Path(__file__).resolve().parents[2] / "golden" / "registry" / "protoc.jsonl").read_text().splitlines()
]  # fmt: skip


def _without_usual_names(message: Any) -> None:
    """Put entries of maps behind other messages, and leave out names in JSON: protoc spells out the usual ones too."""
    nested = [type(inner).FromString(inner.SerializeToString()) for inner in message.nested_type]
    del message.nested_type[:]
    message.nested_type.extend(sorted(nested, key=lambda inner_type: inner_type.options.map_entry))
    for field in (*message.field, *message.extension):
        if field.json_name != "see":
            field.ClearField("json_name")
    for inner_type in message.nested_type:
        _without_usual_names(inner_type)


@pytest.mark.parametrize("case", COMPILED, ids=[str(number) for number in range(len(COMPILED))])
def test_protobuf_text_says_what_protoc_makes_of_it(case: Any) -> None:
    schema = proto(case["text"])
    compiled = descriptor_pb2.FileDescriptorProto.FromString(b64decode(case["descriptor"]))
    parsed = type(compiled).FromString(schema.file.SerializeToString())
    for file in (compiled, parsed):
        around: Any = descriptor_pb2.DescriptorProto(nested_type=file.message_type, extension=file.extension)
        _without_usual_names(around)
        for name, parts in (("message_type", around.nested_type), ("extension", around.extension)):
            file.ClearField(name)
            getattr(file, name).extend(parts)
    assert parsed == compiled
    assert proto(schema.canonical).canonical == schema.canonical
    from_descriptor = proto(case["descriptor"])
    assert proto(from_descriptor.text).canonical == from_descriptor.canonical


def test_edition_says_presence_and_message_encoding() -> None:
    schema = proto(
        'edition = "2023"; option features.field_presence = IMPLICIT;'
        "message M { int32 a = 1; int32 b = 2 [features.field_presence = EXPLICIT];"
        " M m = 3 [features.message_encoding = DELIMITED]; }"
    )
    assert schema.decode(b"\x00") == {"a": 0}
    assert schema.encode({"m": {"b": 0}}) == b"\x00" + b"\x1b\x10\x00\x1c"
    assert "option features.field_presence = IMPLICIT;" in schema.canonical
    assert proto(schema.canonical).file == schema.file


def test_protobuf_goes_through_json() -> None:
    schema = proto(PROTO)
    value = {
        "id": "1", "lines": [{"sku": "a"}], "counts": {"x": 1}, "at": "5", "card": {"number": "AAE="},
        "time": "1970-01-01T00:00:01Z", "state": "DONE",
    }  # fmt: skip
    assert schema.decode(schema.encode(value)) == value
    assert schema.decode(schema.encode({})) == {"id": "", "lines": [], "counts": {}, "state": "NEW"}


def test_map_entries_count_when_they_precede_other_messages() -> None:
    file = proto(PROTO).file
    order = file.message_type[0]
    line, entry = order.nested_type[0], order.nested_type[1]
    assert entry.options.map_entry
    compiled = [type(line).FromString(part.SerializeToString()) for part in (entry, line)]
    del order.nested_type[:]
    order.nested_type.extend(compiled)  # as compilers order them
    schema = proto(b64encode(file.SerializeToString()).decode())
    assert schema.decode(b"\x04\x00\x02" + b"\x0a\x01x") == {"sku": "x"}
    assert "option map_entry = true;" in schema.text
    assert proto(schema.text).decode(b"\x04\x00\x02" + b"\x0a\x01x") == {"sku": "x"}


def test_protobuf_resolves_references_and_well_known_imports() -> None:
    schema = proto(
        'syntax = "proto3"; import "a.proto"; import "google/type/date.proto"; import "confluent/meta.proto";'
        "message M { A a = 1; google.type.Date d = 2; }",
        ("a.proto", 'syntax = "proto3"; message A { int32 x = 1; }'),
    )
    assert schema.decode(schema.encode({"a": {"x": 1}, "d": {"day": 2}}))["a"] == {"x": 1}
    text = 'syntax = "proto3"; import "b.proto"; message M { %s a = 1; }'
    assert 'import "b.proto";' in proto(text % "string").canonical
    assert proto(text % "A", ("c.proto", "message A {}")).canonical, "another reference has it"
    with pytest.raises(SchemaError, match=r"'A'; it imports b\.proto, which is not among its references"):
        proto(text % "A")


@pytest.mark.parametrize(
    "text",
    [
        "message {",
        "nothing at all",
        "AAAA",
        'syntax = "proto4"; message M {}',
        'syntax = "proto3"; message M { Nowhere n = 1; }',
        'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message M { map<double, string> m = 1; }',
        'syntax = "proto3"; enum E { A = 0; A = 1; }',
        'syntax = "proto3"; option optimize_for = NOTHING; message M {}',
    ],
)
def test_what_is_no_protobuf_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        proto(text)


@pytest.mark.parametrize(
    "text", ['{"type":"record","name":"R","fields":[{"name":"a","type":"R","default":{}}]}']
)
def test_a_default_that_nests_itself_endlessly_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="nested too deeply"):
        avro(text)

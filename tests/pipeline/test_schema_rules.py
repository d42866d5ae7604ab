"""Rules of schemas, by tables: the columns that JSON Schema, Avro, Connect and a sample of records become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Array, Enum, Field, Map, Record, Union
from barnabas_pipeline.formats.base import TIME_MAX_MS
from barnabas_pipeline.formats.inference import KEYS_MAX, SINCE_MS, draft
from barnabas_pipeline.formats.json_schema import fields_of_text as json_fields
from barnabas_pipeline.schema import NO_EVENT_TIME

# --- JSON Schema ------------------------------------------------------------------------------------------------------


def json_field(schema: Any, *, required: bool = True, **more: Any) -> Field:
    root = {"type": "object", "properties": {"f": schema}, "required": ["f"] * required, **more}
    ((field,)) = json_fields(json.dumps(root))[1]
    return field


@pytest.mark.parametrize(
    ("schema", "kind", "required"),
    [
        ({"type": "integer"}, "long", True),
        ({"type": "number"}, "double", True),
        ({"type": "boolean"}, "boolean", True),
        ({"type": "string"}, "string", True),
        ({"type": "string", "format": "date-time"}, "iso8601", True),
        ({"type": "string", "format": "date"}, "date", True),
        ({"type": "string", "format": "uuid"}, "uuid", True),
        ({"type": "string", "format": "email"}, "string", True),
        ({"type": "string", "contentEncoding": "base64"}, "bytes", True),
        ({"type": ["null", "integer"]}, "long", False),
        ({"type": ["integer"]}, "long", True),
        ({}, "json", False),
        (True, "json", False),
        ({"type": "null"}, "json", False),
        ({"type": "object"}, "json", True),
        ({"enum": ["a", "b"]}, Enum(("a", "b")), True),
        ({"enum": ["a", None]}, Enum(("a",)), False),
        ({"type": ["string", "null"], "enum": ["a"]}, Enum(("a",)), False),
        ({"enum": [1, "a"]}, "json", False),
        ({"enum": []}, "json", False),
        ({"type": "array", "items": {"type": "integer"}}, Array(Field("element", "long", True)), True),
        (
            {"type": "array", "items": {"type": ["integer", "null"]}},
            Array(Field("element", "long", False)),
            True,
        ),
        ({"type": "array"}, Array(Field("element", "json", False)), True),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            Map(Field("value", "long", True)),
            True,
        ),
        ({"type": "object", "additionalProperties": False}, "json", True),
        ({"properties": {"x": {"type": "integer"}}}, Record((Field("x", "long"),)), True),
        (
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            Record((Field("x", "long", True),)),
            True,
        ),
        ({"type": "object", "properties": {}}, "json", True),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "string", False),
        ({"anyOf": [{"type": "string"}]}, "string", True),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            Union((Field("string", "string"), Field("long", "long"))),
            True,
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": ["integer", "null"]}]},
            Union((Field("string", "string"), Field("long", "long"))),
            False,
        ),
        (
            {"type": ["string", "integer", "null"]},
            Union((Field("string", "string"), Field("long", "long"))),
            True,
        ),
        ({"oneOf": [{"type": "string"}, {}]}, "json", False),
        ({"oneOf": []}, "json", False),
        (
            {"oneOf": [{"type": "string"}, {"type": "string"}]},
            Union((Field("string", "string"), Field("string2", "string"))),
            True,
        ),
    ],
    ids=str,
)
def test_what_a_json_schema_says_is_a_column(schema: Any, kind: Any, required: bool) -> None:
    field = json_field(schema)
    assert (field.type, field.required) == (kind, required)
    assert not json_field(schema, required=False).required


def test_references_are_followed_between_files_without_cycles() -> None:
    root = {
        "title": "T",
        "type": "object",
        "$defs": {"a/b": {"~": {"type": "integer"}}},
        "properties": {
            "here": {"$ref": "#/$defs/a~1b/~0"},
            "there": {"$ref": "other#/x"},
            "by": {"$ref": "urn:id"},
            "self": {"$ref": "#"},
        },
    }
    other = {"x": {"$ref": "#/y"}, "y": {"type": "boolean"}, "$id": "urn:id", "type": "string"}
    title, fields = json_fields(json.dumps(root), {"other": json.dumps(other)})
    assert title == "T"
    assert {field.name: field.type for field in fields} == {
        "here": "long",
        "there": "boolean",
        "by": "string",
        "self": "json",
    }
    for wrong in ({"$ref": "none#/x"}, {"$ref": "#/none"}, {"$ref": "#/title/x"}):
        with pytest.raises(UsageError, match="JSON Schema"):
            json_field(wrong)
    for text in ("[]", "{", '{"type": "string"}'):
        with pytest.raises(UsageError, match="JSON Schema"):
            json_fields(text)


# --- drafts -----------------------------------------------------------------------------------------------------------


def drafted(*values: Any) -> dict[str, tuple[Any, bool]]:
    schema = draft("t", [json.dumps({"f": value}).encode() for value in values])
    return {field.name: (field.type, field.required) for field in schema.fields}


@pytest.mark.parametrize(
    ("values", "kind", "required"),
    [
        ([1, 2], "long", True),
        ([1, None], "long", False),
        ([1, 2.5], "double", True),
        ([True], "boolean", True),
        ([1, True], "json", True),
        ([2**63], "double", True),
        ([2**63 - 1], "long", True),
        ([-(2**63)], "double", True),
        (["a"], "string", True),
        (["2024-01-02"], "date", True),
        (["2024-01-02", "a"], "string", True),
        (["2024-01-02T03:04:05Z"], "iso8601", True),
        (["2024-01-02", "2024-01-02T03:04:05Z"], "string", True),
        (["00000000-0000-0000-0000-000000000000"], "uuid", True),
        ([None], "json", False),
        ([[], [1]], Array(Field("element", "long", True)), True),
        ([[None, 1]], Array(Field("element", "long", False)), True),
        ([[]], Array(Field("element", "json", False)), True),
        ([{"x": 1}], Record((Field("x", "long", True),)), True),
        ([{"x": 1}, {}], Record((Field("x", "long", False),)), True),
        ([{"x": 1}, None], Record((Field("x", "long", True),)), False),
        ([{}], "json", True),
        ([{"x": 1}, 5], "json", True),
        ([{f"k{n}": n for n in range(KEYS_MAX + 1)}, {}], Map(Field("value", "long")), True),
    ],
    ids=str,
)
def test_a_draft_has_the_narrowest_type_of_all_values(values: Any, kind: Any, required: bool) -> None:
    assert drafted(*values) == {"f": (kind, required)}


def test_a_draft_renames_what_is_ours_and_needs_an_object() -> None:
    schema = draft("t", [None, b"no", b"5", b'{"_x": 1, "a": 1, "_key": "k", "_KEY_": 1, "A": 2}'])
    assert [(field.name, *field.aliases) for field in schema.fields] == [
        ("_x",),
        ("a",),
        ("_key__", "_key"),
        ("_KEY_",),
    ]
    for values in ([b"5", None], [b"{}"]):
        with pytest.raises(UsageError, match="no JSON object"):
            draft("t", values)
    many = draft("t", [json.dumps({"f": {f"k{n}": n for n in range(KEYS_MAX)}}).encode()])
    assert isinstance(many.fields[0].type, Record), "not yet a map"


@pytest.mark.parametrize(
    ("event", "time"),
    [
        ({"x": SINCE_MS, "ts": SINCE_MS}, "ts"),
        ({"x": SINCE_MS}, "x"),
        ({"x": SINCE_MS - 1}, NO_EVENT_TIME),
        ({"x": TIME_MAX_MS}, "x"),
        ({"x": TIME_MAX_MS + 1}, NO_EVENT_TIME),
        ({"x": "2024-01-02T03:04:05Z"}, "x"),
        ({"x": "2024-01-02"}, NO_EVENT_TIME),
        ({"b": SINCE_MS, "a": SINCE_MS}, "b"),
        ({"ts": SINCE_MS, "time": SINCE_MS, "event_time": 1.5}, "time"),
    ],
    ids=str,
)
def test_the_event_time_is_what_looks_most_like_one(event: dict[str, Any], time: str) -> None:
    assert draft("t", [json.dumps(event).encode()]).event_time == time
    lacking = draft("t", [json.dumps(event).encode(), json.dumps({"other": 1}).encode()])
    assert lacking.event_time == NO_EVENT_TIME, "it is not always there"

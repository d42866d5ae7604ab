"""Patterns of JSON Schema: what is registered, what values are checked by, and how schemas with patterns are compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import parse
from barnabas.registry.formats.json_schema import JsonSchema
from barnabas.registry.schemas import Schema

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
NEW_DRAFTS = DRAFTS[3:]


def schema_of(contents: Any, *dependencies: tuple[str, Any], is_new: bool = True) -> Any:
    texts = [(name, json.dumps(document)) for name, document in dependencies]
    return parse(Schema("JSON", json.dumps(contents)), texts, is_new=is_new)


def fits(schema: JsonSchema, value: Any) -> bool:
    try:
        schema.encode(value)
    except SchemaError:
        return False
    return True


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("keywords", "fitting", "other"),
    [
        ({"pattern": r"^\cA\p{Lu}$"}, "\x01\u00c4", "\x01a"),
        ({"pattern": r"^\d$"}, "1", "\u0663"),
        ({"patternProperties": {r"^\p{Lu}": {"type": "string"}}}, {"\u00c4": "a"}, {"\u00c4": 1}),
        ({"patternProperties": {r"^\d$": {}}, "additionalProperties": False}, {"1": 0}, {"\u0663": 0}),
        (
            {
                "patternProperties": {"^a": {}},
                "properties": {"b": {}},
                "additionalProperties": {"type": "null"},
            },
            {"a": 1, "b": 1, "c": None},
            {"c": 1},
        ),
        ({"not": {"pattern": r"^\s$"}}, "\x1c", "\ufeff"),
        ({"definitions": {"a": {"pattern": r"\p{Lu}"}}, "items": {"$ref": "#/definitions/a"}}, ["A"], ["a"]),
    ],
)
def test_values_are_checked_by_patterns_of_each_draft(
    draft: str, keywords: Any, fitting: Any, other: Any
) -> None:
    schema = schema_of({"$schema": draft, **keywords})
    assert fits(schema, fitting)
    assert not fits(schema, other)


@pytest.mark.parametrize("draft", NEW_DRAFTS)
@pytest.mark.parametrize(
    ("keywords", "fitting", "other"),
    [
        ({"patternProperties": {r"^\p{Lu}": {}}}, {"\u00c4": 1}, {"a": 1}),
        ({"allOf": [{"patternProperties": {r"^\p{Lu}": {}}}]}, {"\u00c4": 1}, {"a": 1}),
        ({"anyOf": [{"required": ["X"]}, {"patternProperties": {"^a": {}}}]}, {"a": 1}, {"b": 1}),
        ({"$defs": {"d": {"patternProperties": {"^a": {}}}}, "$ref": "#/$defs/d"}, {"a": 1}, {"b": 1}),
        ({"dependentSchemas": {"a": {"patternProperties": {"^[ab]$": {}}}}}, {"a": 1, "b": 1}, {"b": 1}),
        (
            {"if": {"patternProperties": {"^a$": {"const": 1}}}, "else": {"properties": {"a": {}}}},
            {"a": 2},
            {"b": 1},
        ),
        ({"if": {"required": ["a"]}, "then": {"patternProperties": {".": {}}}}, {"a": 2, "b": 1}, {"b": 1}),
        ({"allOf": [{"additionalProperties": {"type": "string"}}]}, {"a": ""}, {"a": 1}),
        ({"oneOf": [{"properties": {"a": {"const": 1}}}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "c": 1}),
    ],
)
def test_properties_that_a_pattern_looks_at_are_evaluated(
    draft: str, keywords: Any, fitting: Any, other: Any
) -> None:
    schema = schema_of({"$schema": draft, "type": "object", **keywords, "unevaluatedProperties": False})
    assert fits(schema, fitting)
    assert not fits(schema, other)


@pytest.mark.parametrize("draft", NEW_DRAFTS)
def test_evaluated_properties_follow_dynamic_references(draft: str) -> None:
    is_2019 = "2019" in draft
    anchor = {"$recursiveAnchor": True} if is_2019 else {"$dynamicAnchor": "node"}
    reference = {"$recursiveRef": "#"} if is_2019 else {"$dynamicRef": "#node"}
    below = {"anyOf": [{"type": "null"}, reference]}
    schema = schema_of(
        {
            "$schema": draft, "$id": "http://a.example/tree", **anchor,
            "type": "object", "patternProperties": {"^a": below}, "unevaluatedProperties": False,
        }
    )  # fmt: skip
    assert fits(schema, {"a": {"a1": None}})
    assert not fits(schema, {"a": {"b": None}})


@pytest.mark.parametrize(
    "contents",
    [
        {"pattern": r"(a)\1"},
        {"patternProperties": {"a(?=b)": {}}},
        {"properties": {"pattern": {"items": [{"allOf": [{"pattern": "(?<=a)b"}]}]}}},
        {"definitions": {"a": {"propertyNames": {"pattern": "a++"}}}},
        {"$schema": DRAFTS[-1], "$defs": {"a": {"dependentSchemas": {"b": {"pattern": "("}}}}},
        {"$schema": DRAFTS[0], "additionalProperties": {"pattern": "["}},
    ],
)
def test_a_schema_whose_pattern_cannot_be_had_is_not_registered(contents: Any) -> None:
    with pytest.raises(
        SchemaError, match=r"the pattern '.*' is not a regular expression of ECMAScript that RE2 can do"
    ):
        schema_of(contents)


def test_names_and_values_that_are_no_keywords_are_no_patterns() -> None:
    contents = {
        "properties": {"pattern": {"const": {"pattern": "("}}},
        "default": {"pattern": "("},
        "enum": ["("],
    }
    assert json.loads(schema_of(contents).text) == contents


def test_a_registered_schema_whose_pattern_cannot_be_had_is_read() -> None:
    schema = schema_of({"properties": {"a": {"pattern": "b(?=c)"}}}, is_new=False)
    assert schema.decode(b'{"a": "bc"}') == {"a": "bc"}
    assert schema.encode({"b": 1}) == b'{"b":1}'
    with pytest.raises(SchemaError, match=r"the pattern .* looks ahead or behind"):
        schema.encode({"a": "bc"})


def test_a_schema_that_names_properties_by_a_pattern_is_compared() -> None:
    old = schema_of(
        {
            "type": "object",
            "patternProperties": {r"^\p{Lu}": {"type": "string"}},
            "additionalProperties": False,
        }
    )
    new = schema_of(
        {
            "type": "object", "patternProperties": {r"^\p{Lu}": {"type": "string"}}, "additionalProperties": False,
            "properties": {"\u00c4": {"type": "string"}},
        }
    )  # fmt: skip
    assert new.breaks(old) == []


def test_unavailable_pattern_does_not_compare_schemas() -> None:
    old = schema_of(
        {"type": "object", "patternProperties": {"a(?=b)": {}}, "additionalProperties": False}, is_new=False
    )
    new = schema_of({"type": "object", "properties": {"ab": {}}, "additionalProperties": False})
    (reason,) = new.breaks(old)
    assert "looks ahead or behind" in reason

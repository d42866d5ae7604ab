"""Texts of JSON Schemas: every keyword with values of every kind, in each draft, references, JSON that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

DRAFTS = {
    "": "", "4": "http://json-schema.org/draft-04/schema#", "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#", "2019": "https://json-schema.org/draft/2019-09/schema",
    "2020": "https://json-schema.org/draft/2020-12/schema",
}  # fmt: skip
KEYWORDS = [
    "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "maxLength", "pattern", "items", "prefixItems",
    "additionalItems", "unevaluatedItems", "maxItems", "uniqueItems", "contains", "minContains", "maxProperties", "required",
    "properties", "patternProperties", "additionalProperties", "dependencies", "dependentRequired", "dependentSchemas",
    "propertyNames", "if", "allOf", "oneOf", "not", "definitions", "$defs", "format", "default", "examples", "title",
    "$comment", "readOnly", "contentEncoding", "unknown",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, 1, -1, 1.0, 1.5, "", "string", "nothing", [], ["string"], ["string", "string"], [1], [{}], [True], {},
    {"a": {}}, {"a": True}, {"a": ["b"]}, {"a": 1},
]  # fmt: skip
JSON = [
    "", " ", "{", "[]", "5", "null", "true", "false", '"string"', "{}", " {} ", "{}x", "{} {}", "{'type':'string'}",
    '{"type":"string",}', '/* c */ {}', '{"default":NaN}', '{"default":Infinity}', '{"maximum":1e400}', '{"maximum":01}',
    '{"type":"string","type":"nothing"}', '{"type":"nothing","type":"string"}', '\ufeff{}', '{"title":"\\q"}',
    '{"title":"a\nb"}', '{"default":123456789012345678901234567890}',
]  # fmt: skip
REFERENCES: list[Any] = [
    {"$ref": "#"}, {"$ref": "#/definitions/a"}, {"$ref": "#/definitions/a", "definitions": {"a": {}}}, {"$ref": 5},
    {"$ref": "#/properties/a", "properties": {"a": {}}}, {"properties": {"a": {"$ref": "#/definitions/b"}}},
    {"properties": {"a": {"$ref": "#/definitions/b"}}, "definitions": {"b": {"type": "string"}}},
    {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
    {"$ref": "other.json"}, {"$id": "a.json", "$ref": "a.json#"},
]  # fmt: skip


def texts() -> Iterator[str]:
    """Yield the texts."""
    yield from JSON
    for draft, address in DRAFTS.items():
        head = {"$schema": address} if draft else {}
        for keyword in KEYWORDS:
            for value in VALUES:
                yield _text({**head, keyword: value})
    for draft in ("", "4", "2020"):
        head = {"$schema": DRAFTS[draft]} if draft else {}
        for reference in REFERENCES:
            yield _text({**head, **reference})
    for value in VALUES:
        yield _text({"properties": {"a": {"items": {"type": value}}}})
        yield _text({"$schema": value})
        yield _text({"$id": value})
    for address in ("http://json-schema.org/draft-07/schema", "http://json-schema.org/schema#", "https://example.com/s#"):
        yield _text({"$schema": address, "type": "string"})


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

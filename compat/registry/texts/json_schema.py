"""Texts of JSON Schemas: every keyword with values of every kind, in each draft, and JSON that is none."""

from __future__ import annotations

import json
from typing import Any

DRAFTS = {
    "": "", "4": "http://json-schema.org/draft-04/schema#", "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#", "2019": "https://json-schema.org/draft/2019-09/schema",
    "2020": "https://json-schema.org/draft/2020-12/schema",
}  # fmt: skip
KEYWORDS = [
    "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "maxLength", "pattern", "items", "prefixItems",
    "additionalItems", "unevaluatedItems", "maxItems", "uniqueItems", "contains", "minContains", "maxProperties",
    "required",
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


def groups() -> list[tuple[str, list[str]]]:
    """Return texts with a place (%s) for a value, and the values in JSON that may stand there."""
    values = [_text(value) for value in VALUES]
    cases = [("%s", JSON)]
    for address in DRAFTS.values():
        head = f'"$schema":{_text(address)},' if address else ""
        cases += [(f'{{{head}"{keyword}":%s}}', values) for keyword in KEYWORDS]
    cases.append(('{"properties":{"a":{"items":{"type":%s}}}}', values))
    cases.append(('{"$id":%s}', values))
    return cases


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

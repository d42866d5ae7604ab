"""JSON Schema to fields: only types, ranges and enums are used; other constraints are not checked.

The rule: a schema without a single type becomes a text column with JSON; so any schema has a column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import DEPTH_MAX, Array, Enum, Field, Map, Record, Type, Union

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document, Json

_FORMATS = {"date-time": "iso8601", "date": "date", "uuid": "uuid"}
_PLAIN = {"integer": "long", "number": "double", "boolean": "boolean"}


def fields_of_text(text: str, references: Mapping[str, str] | None = None) -> tuple[str, tuple[Field, ...]]:
    """Return (the title, the fields) of the object that a schema describes. Raises UsageError."""
    try:
        root = json.loads(text)
        others = {name: json.loads(reference) for name, reference in (references or {}).items()}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"JSON Schema: {error}") from None
    if not isinstance(root, dict):
        raise UsageError("JSON Schema: it is no object")
    kind, _ = _Reader(root, others).type_of(root, root, ())
    if not isinstance(kind, Record):
        raise UsageError("JSON Schema: it describes no object with properties")
    return str(root.get("title", "")), kind.fields


class _Reader:
    def __init__(self, root: Document, others: Document) -> None:
        self.files = others | {
            schema["$id"]: schema
            for schema in (root, *others.values())
            if isinstance(schema, dict) and "$id" in schema
        }

    def type_of(self, schema: Json, file: Json, within: tuple[int, ...]) -> tuple[Type, bool]:
        """Return (the type of a schema, whether it may be null)."""
        if not isinstance(schema, dict) or id(schema) in within or len(within) > DEPTH_MAX:
            return "json", True
        within = (*within, id(schema))
        if "$ref" in schema:
            target, file = self._referred(str(schema["$ref"]), file)
            return self.type_of(target, file, within)
        for word in ("oneOf", "anyOf"):
            if isinstance(schema.get(word), list):
                return self._one_of(schema[word], file, within)
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        others = [kind for kind in kinds if kind != "null"]
        nullable = "null" in kinds
        if not others and isinstance(schema.get("properties"), dict):
            others = ["object"]
        if (
            "enum" in schema
            and schema["enum"]
            and all(isinstance(value, str) or value is None for value in schema["enum"])
        ):
            return Enum(tuple(value for value in schema["enum"] if value)), nullable or None in schema["enum"]
        if len(others) != 1:
            return (
                self._one_of([{**schema, "type": kind} for kind in others], file, within)
                if others
                else ("json", True)
            )
        return self._plain(others[0], schema, file, within), nullable

    def _plain(self, kind: str, schema: Document, file: Json, within: tuple[int, ...]) -> Type:
        if kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return "bytes"
            return _FORMATS.get(str(schema.get("format")), "string")
        if kind == "array":
            element, nullable = self.type_of(schema.get("items"), file, within)
            return Array(Field("element", element, not nullable))
        properties = schema.get("properties")
        if kind == "object" and isinstance(properties, dict) and properties:
            required = schema.get("required", [])
            fields = [
                self._field(name, inner, name in required, file, within) for name, inner in properties.items()
            ]
            return Record(tuple(fields))
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            value, nullable = self.type_of(schema["additionalProperties"], file, within)
            return Map(Field("value", value, not nullable))
        return "json"

    def _field(
        self, name: str, schema: Json, is_required: bool, file: Json, within: tuple[int, ...]
    ) -> Field:
        kind, nullable = self.type_of(schema, file, within)
        options = schema if isinstance(schema, dict) else {}
        low, high = ("minLength", "maxLength") if kind == "string" else ("minimum", "maximum")
        if kind not in ("string", "long", "double"):
            options = {"default": options.get("default")}
        is_required = is_required and not nullable
        return Field(name, kind, is_required, options.get(low), options.get(high), options.get("default"))

    def _one_of(self, schemas: list[Json], file: Json, within: tuple[int, ...]) -> tuple[Type, bool]:
        types = [self.type_of(schema, file, within) for schema in schemas if schema != {"type": "null"}]
        nullable = any(null for _, null in types) or len(types) < len(schemas)
        if len(types) == 1:
            return types[0][0], nullable
        if not types or any(kind == "json" for kind, _ in types):
            return "json", True
        names: list[str] = []
        for kind, _ in types:
            name = kind if isinstance(kind, str) else type(kind).__name__.lower()
            names.append(name if name not in names else f"{name}{len(names) + 1}")
        return Union(tuple(Field(name, kind) for name, (kind, _) in zip(names, types, strict=True))), nullable

    def _referred(self, text: str, file: Json) -> tuple[Json, Json]:
        name, _, pointer = text.partition("#")
        if name:
            if name not in self.files:
                raise UsageError(f"JSON Schema: it refers to {name!r}, which is not among its references")
            file = self.files[name]
        target = file
        for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or part not in target:
                raise UsageError(f"JSON Schema: {text!r} is not there")
            target = target[part]
        return target, file

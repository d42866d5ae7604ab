"""Small schemas that are costly to check: shared definitions, depth, width, length, recursion. They are generated.

Each function returns the text of a schema with an innermost part of type `inner` (`string` or `long`), so that two schemas
differ there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Make = Callable[[str, int], str]
"""Makes a schema of an inner kind and a size."""

# --- Avro ------------------------------------------------------------------------------------------------------------


def _record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def avro_diamond(inner: str, size: int) -> str:
    """Records, each with two fields of the previous record's type."""
    records = [_record("R0", {"a": inner})]
    records += [_record(f"R{n}", {"a": f"R{n - 1}", "b": ["null", f"R{n - 1}"]}) for n in range(1, size)]
    return json.dumps(records)


def avro_depth(inner: str, size: int) -> str:
    """A record within a record within a record."""
    return json.dumps(
        [_record("R0", {"a": inner}), *(_record(f"R{n}", {"a": f"R{n - 1}"}) for n in range(1, size))]
    )


def avro_union(inner: str, size: int) -> str:
    """A union of many records, the last of which differs."""
    return json.dumps([_record(f"R{n}", {"a": inner if n == size - 1 else "int"}) for n in range(size)])


def avro_enum(inner: str, size: int) -> str:
    """An enum of many symbols."""
    return json.dumps({"type": "enum", "name": "E", "symbols": [f"{inner}{n}" for n in range(size)]})


def avro_names(inner: str, size: int) -> str:
    """A few very long names."""
    return json.dumps(_record("R" * size, {f"{letter * size}": inner for letter in "abcde"}))


def avro_recursion(inner: str, size: int) -> str:
    """Records, each with fields of all of them, by unions."""
    names = [f"R{n}" for n in range(size)]
    fields = {"leaf": inner, **{f"f{n}": ["null", name] for n, name in enumerate(names)}}
    root = _record("Root", {})
    root["fields"] = [{"name": "r", "type": _nested(names, fields)}]
    return json.dumps(root)


def _nested(names: list[str], fields: dict[str, Any]) -> Any:
    """Return the first record; the others are declared within it, at their first use."""
    declared = {names[0]}

    def kind(union: Any) -> Any:
        if isinstance(union, str) or union[1] in declared:
            return union
        declared.add(union[1])
        return [
            "null",
            {"type": "record", "name": union[1], "fields": [{"name": "leaf", "type": fields["leaf"]}]},
        ]

    return _record(names[0], {name: kind(union) for name, union in fields.items()})


# --- JSON Schema -----------------------------------------------------------------------------------------------------

JSON_KINDS = {"string": "string", "long": "integer"}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def _with(root: Any, definitions: dict[str, Any]) -> str:
    return json.dumps({**root, "definitions": definitions})


def json_diamond(inner: str, size: int) -> str:
    """Definitions, each with two references to the previous one."""
    definitions = {"d0": {"type": JSON_KINDS[inner]}}
    definitions |= {
        f"d{n}": _object({"a": _ref(f"d{n - 1}"), "b": _ref(f"d{n - 1}")}) for n in range(1, size)
    }
    return _with(_ref(f"d{size - 1}"), definitions)


def json_choices(inner: str, size: int) -> str:
    """Definitions, each a choice of two that both refer to the previous one."""
    definitions: dict[str, Any] = {"d0": {"type": JSON_KINDS[inner]}}
    for n in range(1, size):
        definitions[f"d{n}"] = {
            "oneOf": [_object({"a": _ref(f"d{n - 1}")}), _object({"b": _ref(f"d{n - 1}")}), {"type": "null"}]
        }
    return _with(_ref(f"d{size - 1}"), definitions)


def json_depth(inner: str, size: int) -> str:
    """A chain of definitions, each with a reference to the next."""
    definitions = {"d0": {"type": JSON_KINDS[inner]}}
    definitions |= {f"d{n}": _object({"a": _ref(f"d{n - 1}")}) for n in range(1, size)}
    return _with(_ref(f"d{size - 1}"), definitions)


def json_union(inner: str, size: int) -> str:
    """One of many objects, the last of which differs."""
    kinds = [JSON_KINDS[inner] if n == size - 1 else "number" for n in range(size)]
    return json.dumps({"oneOf": [_object({f"p{n}": {"type": kind}}) for n, kind in enumerate(kinds)]})


def json_enum(inner: str, size: int) -> str:
    """An enum of many values."""
    return json.dumps({"enum": [{inner: [n]} for n in range(size)]})


def json_names(inner: str, size: int) -> str:
    """A few very long names."""
    return json.dumps(_object({letter * size: {"type": JSON_KINDS[inner]} for letter in "abcde"}))


def json_recursion(inner: str, size: int) -> str:
    """Definitions, each a choice of objects with references to all definitions."""
    names = [f"d{n}" for n in range(size)]
    definitions = {
        name: {"oneOf": [_object({"x": _ref(other), "v": {"type": JSON_KINDS[inner]}}) for other in names]}
        for name in names
    }
    return _with(_ref("d0"), definitions)


# --- Protobuf --------------------------------------------------------------------------------------------------------

PROTOBUF_KINDS = {"string": "string", "long": "int64"}
_HEAD = 'syntax = "proto3";\n'


def _chain(inner: str, size: int, *fields: str) -> str:
    messages = [f"message M0 {{ {PROTOBUF_KINDS[inner]} a = 1; }}"]
    for n in range(1, size):
        body = " ".join(f"M{n - 1} {name} = {number};" for number, name in enumerate(fields, 1))
        messages.append(f"message M{n} {{ {body} }}")
    return _HEAD + "\n".join(messages)


def protobuf_diamond(inner: str, size: int) -> str:
    """Messages, each with two fields of the previous message's type."""
    return _chain(inner, size, "a", "b")


def protobuf_depth(inner: str, size: int) -> str:
    """A message within a message within a message."""
    return _chain(inner, size, "a")


def protobuf_union(inner: str, size: int) -> str:
    """A oneof of many fields."""
    fields = " ".join(f"{PROTOBUF_KINDS[inner]} f{n} = {n};" for n in range(1, size + 1))
    return f"{_HEAD}message M {{ oneof o {{ {fields} }} }}"


def protobuf_enum(inner: str, size: int) -> str:
    """An enum of many names, with very many compatible changes, and a field that changes its type."""
    values = " ".join(f"{inner}{n} = {n};" for n in range(size))
    return f"{_HEAD}enum E {{ {values} }} message M {{ E e = 1; {PROTOBUF_KINDS[inner]} v = 2; }}"


def protobuf_names(inner: str, size: int) -> str:
    """A very long name."""
    name = "M" * size
    return f"{_HEAD}message {name} {{ {PROTOBUF_KINDS[inner]} a = 1; {name} b = 2; }}"


def protobuf_recursion(inner: str, size: int) -> str:
    """Messages, each with fields of all of them."""
    messages = []
    for name in range(size):
        fields = " ".join(f"M{other} f{other} = {other + 1};" for other in range(size))
        messages.append(f"message M{name} {{ {fields} {PROTOBUF_KINDS[inner]} v = {size + 1}; }}")
    return _HEAD + "\n".join(messages)


KINDS: list[tuple[str, Make, int]] = [
    ("AVRO", avro_diamond, 60), ("AVRO", avro_depth, 3_000), ("AVRO", avro_union, 800), ("AVRO", avro_enum, 30_000),
    ("AVRO", avro_names, 100_000), ("AVRO", avro_recursion, 200), ("JSON", json_diamond, 60),
    ("JSON", json_choices, 60), ("JSON", json_depth, 2_000), ("JSON", json_union, 150), ("JSON", json_enum, 20_000),
    ("JSON", json_names, 100_000), ("JSON", json_recursion, 12), ("PROTOBUF", protobuf_diamond, 60),
    ("PROTOBUF", protobuf_depth, 300), ("PROTOBUF", protobuf_union, 500), ("PROTOBUF", protobuf_enum, 1_000),
    ("PROTOBUF", protobuf_names, 20_000), ("PROTOBUF", protobuf_recursion, 20),
]  # fmt: skip
"""Formats, functions, and a size that is accepted, with many paths, many pairs or a great length."""

"""Pairs of schemas from a seed: a schema, and a later version as a team might write it."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS = {
    "null": None, "boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0, "bytes": "", "string": "",
}  # fmt: skip
SPACES = ("", "a", "b.c")


class AvroPairs:
    """Avro, with namespaces, aliases, recursive records, and unions of records with equal fields."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names: list[str] = []

    def pair(self) -> tuple[str, str]:
        """Return the texts of a reader's and a writer's schema."""
        self._names = []
        old = self._type(3)
        new = deepcopy(old)
        for _ in range(self._random.randint(1, 3)):
            new = self._changed(new)
        sides = [json.dumps(old), json.dumps(new)]
        self._random.shuffle(sides)
        return sides[0], sides[1]

    def _type(self, depth: int) -> Any:
        draw = self._random.random()
        if depth == 0 or draw < 0.3:
            return self._random.choice([*PRIMITIVES, *self._names[:2]])
        if draw < 0.4:
            return {"type": "array", "items": self._type(depth - 1)}
        if draw < 0.45:
            return {"type": "map", "values": self._type(depth - 1)}
        if draw < 0.6:
            return self._union(depth)
        if draw < 0.68:
            symbols = self._random.sample("ABCD", self._random.randint(1, 3))
            return {**self._named("enum", "EF"), "symbols": symbols, **self._default(symbols[0])}
        if draw < 0.74:
            return {**self._named("fixed", "XY"), "size": self._random.randint(1, 2)}
        record = self._named("record", "RST")
        names = self._random.sample("abcd", self._random.randint(1, 4))
        return {**record, "fields": [self._field(name, depth) for name in names]}

    def _union(self, depth: int) -> Any:
        branches: dict[str, Any] = {}
        for _ in range(self._random.randint(1, 4)):
            branch = self._type(depth - 1)
            if not isinstance(branch, list):
                branches.setdefault(_name_of(branch), branch)
        return list(branches.values())

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        kind = self._type(depth - 1)
        plain = kind if isinstance(kind, str) else kind[0] if isinstance(kind, list) and kind else None
        default = self._default(DEFAULTS[plain]) if isinstance(plain, str) and plain in DEFAULTS else {}
        aliases = {"aliases": [self._random.choice("mnop")]} if self._random.random() < 0.15 else {}
        return {"name": name, "type": kind, **default, **aliases}

    def _default(self, value: Any) -> dict[str, Any]:
        return {"default": value} if self._random.random() < 0.4 else {}

    def _named(self, kind: str, letters: str) -> dict[str, Any]:
        short, space = self._random.choice(letters), self._random.choice(SPACES)
        name = f"{space}.{short}" if space else short
        while name in self._names:
            name += "x"
        self._names.append(name)
        space, _, short = name.rpartition(".")
        aliases = {"aliases": [f"b.c.{short}"]} if self._random.random() < 0.1 else {}
        return {"type": kind, "name": short, "namespace": space, **aliases}

    def _changed(self, root: Any) -> Any:
        """Return a schema of which one part has changed."""
        box = [root]
        spots = list(_spots(box))
        holder, key = self._random.choice(spots)
        part, draw = holder[key], self._random.random()
        if isinstance(part, str) and part in PRIMITIVES:
            holder[key] = self._random.choice(PRIMITIVES) if draw < 0.6 else [*{part: 0, "null": 0}]
        elif isinstance(part, list):
            part[:] = self._random.sample(part, max(len(part) - 1, 1)) if part and draw < 0.5 else part
            if draw > 0.7 and "string" not in part:
                part.append("string")
        elif isinstance(part, dict) and draw < 0.35 and "name" in part:
            part["namespace"] = self._random.choice(SPACES)
        elif isinstance(part, dict) and draw < 0.45 and "name" in part:
            part["aliases"] = [f"{part['namespace']}.{part['name']}".lstrip("."), "a.R"]
            part["name"] = self._random.choice("RSQ")
        elif isinstance(part, dict) and "fields" in part:
            self._change_fields(part["fields"], draw)
        elif isinstance(part, dict) and "symbols" in part:
            part["symbols"] = self._random.sample("ABCD", self._random.randint(1, 4))
            part.pop("default", None)
        elif isinstance(part, dict) and "size" in part:
            part["size"] = 3 - part["size"]
        return box[0]

    def _change_fields(self, fields: list[Any], draw: float) -> None:
        if draw < 0.65 and len(fields) > 1:
            fields.pop(self._random.randrange(len(fields)))
        elif draw < 0.85 and all(field["name"] != "e" for field in fields):
            fields.append({"name": "e", "type": "int", **self._default(0)})
        elif fields:
            field = self._random.choice(fields)
            field["aliases"], field["name"] = [field["name"]], field["name"] + "n"


def _name_of(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    if "name" in branch:
        return f"{branch['namespace']}.{branch['name']}".lstrip(".")
    return str(branch["type"])


def _spots(holder: Any) -> Any:
    """Yield the position of each part of a schema: a list or an object, and the index or key in it."""
    keys = range(len(holder)) if isinstance(holder, list) else ["type", "items", "values"]
    for key in keys:
        if isinstance(holder, dict) and (key not in holder or (key == "type" and "name" in holder)):
            continue
        part = holder[key]
        if isinstance(holder, dict) and key == "type" and isinstance(part, str) and len(holder) > 1:
            if "default" not in holder and "aliases" not in holder and "name" in holder:
                yield holder, key
            continue
        yield holder, key
        if isinstance(part, dict):
            yield from _spots(part)
            for field in part.get("fields", ()):
                yield from ((field, "type"),)
                if not isinstance(field["type"], str):
                    yield from _spots([field["type"]] if isinstance(field["type"], dict) else field["type"])
        elif isinstance(part, list):
            yield from _spots(part)


class JsonPairs:
    """JSON Schema, draft 7: objects of all kinds of content, arrays, combinations, definitions, recursion."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = [f"d{n}" for n in range(3)]

    def pair(self) -> tuple[str, str]:
        """Return the texts of an old and a new schema."""
        old = {**self._schema(3), "definitions": {name: self._schema(2) for name in self._names}}
        return json.dumps(old), json.dumps(self._changed(old))

    def _schema(self, depth: int, *, may_refer: bool = True) -> Any:
        choose = self._random.choice
        kind = choose(
            ["string", "number", "integer", "enum", "many"] + ["object", "array", "combined", "ref"] * 2
        )
        if kind == "ref" and may_refer and depth < 3:
            return {"$ref": f"#/definitions/{choose(self._names)}"}
        if depth == 0 or kind in ("string", "ref"):
            return {"type": "string", **self._some({"minLength": 2, "maxLength": 5, "pattern": "^a"})}
        if kind in ("number", "integer"):
            return {"type": kind, **self._some({"minimum": 1, "maximum": 9, "multipleOf": choose([2, 4, 3])})}
        if kind == "enum":
            return {"enum": self._random.sample(["a", "b", 1, None, {"x": [1]}], self._random.randint(1, 4))}
        if kind == "many":
            return {"type": self._random.sample(["string", "null", "integer"], self._random.randint(1, 3))}
        if kind == "array":
            items = choose([self._schema(depth - 1), [self._schema(depth - 1), self._schema(depth - 1)]])
            more = {
                "minItems": 1,
                "uniqueItems": True,
                "additionalItems": choose([False, True, {"type": "string"}]),
            }
            return {"type": "array", "items": items, **self._some(more)}
        if kind == "combined":
            members = [self._schema(depth - 1) for _ in range(self._random.randint(1, 3))]
            word = choose(["oneOf", "anyOf", "allOf", "not"])
            return {word: members[0] if word == "not" else members}
        properties = {
            name: self._schema(depth - 1) for name in self._random.sample("abcd", self._random.randint(0, 3))
        }
        rest = choose([True, False, self._schema(0)])
        more = {
            "required": ["a"], "additionalProperties": rest, "patternProperties": {"^d": self._schema(0)},
            "dependencies": {"a": choose([["b"], self._schema(0)])}, "minProperties": 1,
        }  # fmt: skip
        return {"type": "object", "properties": properties, **self._some(more)}

    def _some(self, words: dict[str, Any]) -> dict[str, Any]:
        return {word: value for word, value in words.items() if self._random.random() < 0.4}

    def _changed(self, value: Any, depth: int = 3) -> Any:
        draw = self._random.random()
        if isinstance(value, dict):
            changed = {
                word: inner if word in ("type", "$ref") else self._changed(inner, depth - 1)
                for word, inner in value.items()
                if draw < 0.8 or word in ("definitions", "$ref") or self._random.random() < 0.9
            }
            if draw > 0.95 and "properties" in changed:
                changed["properties"]["z"] = self._schema(0)
            return changed
        if isinstance(value, list):
            return [self._changed(inner, depth - 1) for inner in value[: len(value) - (draw > 0.95) or 1]]
        if type(value) is int and draw > 0.8:
            return value + self._random.choice([-1, 1]) or 1
        return value


class ProtobufPairs:
    """Protobuf: messages within messages, oneofs, maps, enums, fields of other messages, recursion."""

    TYPES = (
        "int32",
        "int64",
        "uint32",
        "sint32",
        "bool",
        "string",
        "bytes",
        "double",
        "fixed32",
        "M0",
        "M1",
        "E0",
    )

    def __init__(self, random: Random) -> None:
        self._random = random

    def pair(self) -> tuple[str, str]:
        """Return the texts of an old and a new schema."""
        old = {f"M{n}": self._fields() for n in range(3)}
        enum = self._random.sample(range(1, 6), 3)
        new = {name: [self._changed(field) for field in fields] for name, fields in old.items()}
        new = {name: [field for field in fields if field is not None] for name, fields in new.items()}
        if self._random.random() < 0.2:
            new.pop("M2")
        return _text(old, enum), _text(new, self._random.sample(range(1, 6), 3))

    def _fields(self) -> list[tuple[int, str, str, str]]:
        """Return fields: number, oneof (or none), label and type."""
        fields = []
        for number in self._random.sample(range(1, 9), self._random.randint(1, 5)):
            group = self._random.choice(["", "", "", "o", "p"])
            label = "" if group else self._random.choice(["", "", "repeated ", "optional ", "map"])
            fields.append((number, group, label, self._random.choice(self.TYPES)))
        return fields

    def _changed(self, field: tuple[int, str, str, str]) -> tuple[int, str, str, str] | None:
        number, group, label, kind = field
        draw = self._random.random()
        if draw < 0.1:
            return None
        if draw < 0.2:
            return number, group, label, self._random.choice(self.TYPES)
        if draw < 0.3:
            return number, self._random.choice(["", "o", "p", "q"]), "", kind
        if draw < 0.35 and not group:
            return number, "", "repeated ", kind
        return field


def _text(messages: dict[str, list[tuple[int, str, str, str]]], enum: list[int]) -> str:
    parts = ['syntax = "proto3";', f"enum E0 {{ Z = 0; {' '.join(f'V{n} = {n};' for n in enum)} }}"]
    for name, fields in messages.items():
        groups: dict[str, list[str]] = {}
        for number, group, label, kind in fields:
            typed = f"map<string, {kind}>" if label == "map" else f"{label}{kind}"
            groups.setdefault(group, []).append(f"{typed} f{number} = {number};")
        body = " ".join(groups.pop("", []))
        body += "".join(f" oneof {group} {{ {' '.join(lines)} }}" for group, lines in groups.items())
        parts.append(f"message {name} {{ {body} }}")
    return "\n".join(parts)

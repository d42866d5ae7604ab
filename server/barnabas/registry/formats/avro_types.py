"""Avro's schemas as types, and types as text.

The rule: text is what Avro's own library prints, which registries keep: attributes in a fixed order, names as short as
their surroundings allow.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from barnabas.registry.errors import SchemaError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE_WORDS = {
    "type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size",
}  # fmt: skip
_FIELD_WORDS = {"name", "type", "doc", "default", "order", "aliases"}


@dataclass(slots=True)
class Field:
    """A field of a record."""

    name: str
    type: Type
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Type:
    """A type; what its kind does not have is empty. Types of the same name are one object."""

    kind: str
    name: str = ""
    """Full name, with the namespace."""
    doc: str | None = None
    aliases: list[str] = field(default_factory=list)
    """Full names."""
    fields: list[Field] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    default: str | None = None
    size: int = 0
    item: Type | None = None
    branches: list[Type] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def inner(self) -> Type:
        """The type of the items of an array, or of the values of a map."""
        assert self.item is not None
        return self.item


def read(text: str, known: dict[str, Type]) -> Type:
    """Read a schema; types of `known` may be referred to, and those that it defines are added. Raises SchemaError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text.strip()  # as Avro's own library has it, a name needs no quotes
        if not _is_name(value):
            raise SchemaError("it is not JSON") from None
    return _type(value, "", known)


def _is_name(text: str) -> bool:
    return all(_NAME.fullmatch(part) for part in text.split("."))


def _type(value: Any, space: str, known: dict[str, Type]) -> Type:
    if isinstance(value, str):
        return _reference(value, space, known)
    if isinstance(value, list):
        return _union([_type(one, space, known) for one in value])
    if not isinstance(value, dict):
        raise SchemaError(f"No type: {json.dumps(value)}")
    kind = value.get("type")
    if kind is None:
        raise SchemaError(f"No type: {json.dumps(value)}")
    if not isinstance(kind, str):
        return _type(kind, space, known)  # a type in a type: its attributes are the inner one's
    properties = {name: one for name, one in value.items() if name not in _TYPE_WORDS}
    if kind in PRIMITIVES:
        return Type(kind, properties=properties)
    if kind in NAMED:
        return _named(kind, value, properties, space, known)
    if kind == "array":
        return Type(kind, item=_type(_of(value, "items"), space, known), properties=properties)
    if kind == "map":
        return Type(kind, item=_type(_of(value, "values"), space, known), properties=properties)
    return _reference(kind, space, known)


def _of(value: dict[str, Any], name: str) -> Any:
    if name not in value:
        raise SchemaError(f"{value['type']} without {name}: {json.dumps(value)}")
    return value[name]


def _reference(name: str, space: str, known: dict[str, Type]) -> Type:
    if name in PRIMITIVES:
        return Type(name)
    full = name if "." in name or not space else f"{space}.{name}"
    found = known.get(full) or known.get(name)
    if found is None:
        raise SchemaError(f"Undefined name: {json.dumps(full)}")
    return found


def _union(branches: list[Type]) -> Type:
    seen = set()
    for one in branches:
        if one.kind == "union":
            raise SchemaError("Nested union")
        name = one.name or one.kind
        if name in seen:
            raise SchemaError(f"Duplicate in union: {name}")
        seen.add(name)
    return Type("union", branches=branches)


def _named(
    kind: str, value: dict[str, Any], properties: dict[str, Any], space: str, known: dict[str, Type]
) -> Type:
    name = value.get("name")
    if not isinstance(name, str):
        raise SchemaError(f"No name in schema: {json.dumps(value)}")
    given = value.get("namespace")
    if "." not in name:
        own = given if isinstance(given, str) else space
        name = f"{own}.{name}" if own else name
    if not _is_name(name):
        raise SchemaError(f"Illegal name: {name}")
    if name in known:
        raise SchemaError(f"Can't redefine: {name}")
    own = name.rpartition(".")[0]
    found = Type(kind, name, doc=_text(value, "doc"), properties=properties)
    found.aliases = [one if "." in one or not own else f"{own}.{one}" for one in _texts(value, "aliases")]
    known[name] = found
    if kind == "fixed":
        size = value.get("size")
        if type(size) is not int or size < 0:
            raise SchemaError(f"Invalid or no size: {json.dumps(value)}")
        found.size = size
    elif kind == "enum":
        _enum(found, value)
    else:
        _fields(found, value, own, known)
    return found


def _enum(found: Type, value: dict[str, Any]) -> None:
    if not isinstance(value.get("symbols"), list):
        raise SchemaError(f"Enum has no symbols: {json.dumps(value)}")
    found.symbols = _texts(value, "symbols")
    found.default = _text(value, "default")
    found.properties.pop("default", None)
    for one in found.symbols:
        if not _NAME.fullmatch(one):
            raise SchemaError(f"Illegal name: {one}")
    if len(set(found.symbols)) < len(found.symbols):
        raise SchemaError(f"Duplicate enum symbol: {json.dumps(found.symbols)}")
    if found.default is not None and found.default not in found.symbols:
        raise SchemaError(f"The Enum Default: {found.default} is not in the enum symbol set")


def _fields(found: Type, value: dict[str, Any], space: str, known: dict[str, Type]) -> None:
    fields = value.get("fields")
    if not isinstance(fields, list):
        raise SchemaError(f"Record has no fields: {json.dumps(value)}")
    names = set()
    for one in fields:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise SchemaError(f"No field name: {json.dumps(one)}")
        name = one["name"]
        if not _NAME.fullmatch(name):
            raise SchemaError(f"Illegal name: {name}")
        if name in names:
            raise SchemaError(f"Duplicate field {name} in record {found.name}")
        names.add(name)
        if "type" not in one:
            raise SchemaError(f"No field type: {json.dumps(one)}")
        order = one.get("order", "ascending")
        if order not in ("ascending", "descending", "ignore"):
            raise SchemaError(f"Illegal order: {order}")
        found.fields.append(
            Field(
                name, _type(one["type"], space, known), _text(one, "doc"), "default" in one, one.get("default"),
                order, _texts(one, "aliases"), {key: it for key, it in one.items() if key not in _FIELD_WORDS},
            )
        )  # fmt: skip


def _text(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise SchemaError(f"{name} is text, not {json.dumps(found)}")
    return found


def _texts(value: dict[str, Any], name: str) -> list[str]:
    found = value.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise SchemaError(f"{name} is a list of names, not {json.dumps(found)}")
    return list(found)


# --- as text ------------------------------------------------------------------------------------------------------


class Writer:
    """Makes text of a type; types of `referred` are named only. `is_normal` writes whole names, and attributes by name."""

    def __init__(self, referred: dict[str, Type], *, is_normal: bool = False) -> None:
        self._written = set(referred)
        self._is_normal = is_normal

    def text(self, of: Type) -> str:
        """Return the text."""
        return json.dumps(self._value(of, ""), ensure_ascii=False, separators=(",", ":"))

    def _value(self, of: Type, space: str) -> Any:
        if of.kind == "union":
            return [self._value(one, space) for one in of.branches]
        if of.name:
            if of.name in self._written:
                return self._named(of.name, space)
            self._written.add(of.name)
            return {**self._head(of, space), **self._body(of)}
        if of.kind in PRIMITIVES:
            return {"type": of.kind, **self._properties(of.properties)} if of.properties else of.kind
        word = "items" if of.kind == "array" else "values"
        return {"type": of.kind, word: self._value(of.inner, space), **self._properties(of.properties)}

    def _named(self, name: str, space: str) -> str:
        own, _, short = name.rpartition(".")
        return short if own == space and not self._is_normal else name

    def _head(self, of: Type, space: str) -> dict[str, Any]:
        own, _, short = of.name.rpartition(".")
        found: dict[str, Any] = {"type": of.kind, "name": of.name if self._is_normal else short}
        if own != space and not self._is_normal:
            found["namespace"] = own
        if of.doc is not None:
            found["doc"] = of.doc
        return found

    def _body(self, of: Type) -> dict[str, Any]:
        own = of.name.rpartition(".")[0]
        found: dict[str, Any] = {}
        if of.kind == "fixed":
            found["size"] = of.size
        elif of.kind == "enum":
            found["symbols"] = of.symbols
            if of.default is not None:
                found["default"] = of.default
        else:
            found["fields"] = [self._field(one, own) for one in of.fields]
        found |= self._properties(of.properties)
        if of.aliases:
            found["aliases"] = [self._named(one, own) for one in of.aliases]
        return found

    def _field(self, one: Field, space: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": one.name, "type": self._value(one.type, space)}
        if one.doc is not None:
            found["doc"] = one.doc
        if one.has_default:
            found["default"] = one.default
        if one.order != "ascending":
            found["order"] = one.order
        if one.aliases:
            found["aliases"] = one.aliases
        return {**found, **self._properties(one.properties)}

    def _properties(self, given: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(given.items())) if self._is_normal else given

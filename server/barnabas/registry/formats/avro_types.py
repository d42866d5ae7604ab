"""Types of Avro's schemas, and their text.

The rule: the text is that of Avro's own library, which registries store: attributes in a fixed order, names as short as
the enclosing namespace allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from barnabas.registry.formats.json_text import write_json

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


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
    """A type; attributes that its kind does not have are empty. Types of the same name are one object."""

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


class Writer:
    """Makes text of a type; types of `referred` are named only. `is_normal` writes properties and aliases by name."""

    def __init__(self, referred: dict[str, Type], *, is_normal: bool = False) -> None:
        self._written = set(referred)
        self._is_normal = is_normal

    def text(self, of: Type) -> str:
        """Return the text."""
        return write_json(self._value(of, ""))

    def _value(self, of: Type, space: str) -> Any:
        if of.kind == "union":
            return [self._value(branch, space) for branch in of.branches]
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
        return short if own == space else name

    def _head(self, of: Type, space: str) -> dict[str, Any]:
        own, _, short = of.name.rpartition(".")
        kind = "record" if of.kind == "error" and self._is_normal else of.kind
        head: dict[str, Any] = {"type": kind, "name": short}
        if own != space:
            head["namespace"] = own
        if of.doc or (of.doc is not None and not self._is_normal):
            head["doc"] = of.doc
        return head

    def _body(self, of: Type) -> dict[str, Any]:
        own = of.name.rpartition(".")[0]
        body: dict[str, Any] = {}
        if of.kind == "fixed":
            body["size"] = of.size
        elif of.kind == "enum":
            body["symbols"] = of.symbols
            if of.default is not None:
                body["default"] = of.default
        else:
            body["fields"] = [self._field(field, own) for field in of.fields]
        body |= self._properties(of.properties)
        if of.aliases:
            body["aliases"] = [self._named(alias, own) for alias in self._sorted(of.aliases)]
        return body

    def _field(self, field: Field, space: str) -> dict[str, Any]:
        written: dict[str, Any] = {"name": field.name, "type": self._value(field.type, space)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.has_default:
            written["default"] = field.default
            if self._is_normal and field.type.kind in ("float", "double") and type(field.default) is int:
                written["default"] = _as_float(field.default)
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = self._sorted(field.aliases)
        return {**written, **self._properties(field.properties)}

    def _properties(self, properties: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(properties.items())) if self._is_normal else properties

    def _sorted(self, names: list[str]) -> list[str]:
        return sorted(names) if self._is_normal else names


def _as_float(number: int) -> float | int:
    """Return a whole number as a float, or unchanged if it is too large for a float."""
    try:
        return float(number)
    except OverflowError:
        return number

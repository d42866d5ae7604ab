"""Texts of Avro's schemas as types.

The rule: new schemas are accepted or refused as by Avro's Java library, with strict names; schemas that were stored before
that rule are read leniently.
"""

from __future__ import annotations

import json
import re
from typing import Any

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats.avro_types import PRIMITIVES, Field, Type
from barnabas.registry.formats.json_text import read_json

NAMED = ("record", "error", "enum", "fixed")
SIZE_MAX = 2**31 - 1
ORDERS = ("ascending", "descending", "ignore")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[+-]?(NaN|Infinity|[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?)")
_TYPE_WORDS = {
    "type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size",
}  # fmt: skip
_FIELD_WORDS = {"name", "type", "doc", "default", "order", "aliases"}


def read(text: str, types: dict[str, Type], *, is_new: bool = False) -> Type:
    """Parse a schema; it may refer to `types`, to which its own definitions are added. Raises SchemaError."""
    reading = _Reading(types, is_new=is_new)
    try:
        value = read_json(text, is_strict=is_new, is_avro=True)
    except SchemaError:
        value = text.strip()  # a name without quotes, which older releases have taken
        if is_new or not _is_name(value):
            raise
    root = reading.type(value, "")
    reading.check_complete()
    if is_new:
        reading.check_defaults()
    return root


def _is_name(text: str) -> bool:
    return all(_NAME.fullmatch(part) for part in text.split("."))


class _Reading:
    """State of parsing a schema."""

    def __init__(self, types: dict[str, Type], *, is_new: bool) -> None:
        self._known = types
        self._is_new = is_new
        self._awaited: dict[str, Type] = {}
        """Types that are named before they are defined."""
        self._open: set[str] = set()
        """Records with fields that are being read."""
        self._defaults: list[tuple[str, Field]] = []
        """Fields with a default, with the names of their records."""

    def check_complete(self) -> None:
        """Raise SchemaError for a name that nothing defines."""
        for name in self._awaited:
            raise SchemaError(f"Undefined name: {json.dumps(name)}")

    def check_defaults(self) -> None:
        """Raise SchemaError for a default that its field does not have."""
        judge = _Defaults()
        for record, field in self._defaults:
            if not judge.has_value(field.type, field.default):
                raise SchemaError(
                    f"Default value {_shown(field.default)} of field {record}.{field.name} is no "
                    f"{field.type.name or field.type.kind}"
                )

    def type(self, value: Any, space: str) -> Type:
        if isinstance(value, str):
            return self._reference(value, space)
        if isinstance(value, list):
            return _union([self.type(branch, space) for branch in value])
        if not isinstance(value, dict) or value.get("type") is None:
            raise SchemaError(f"No type: {_shown(value)}")
        kind = value["type"]
        if not isinstance(kind, str):  # a type in a type: older releases accepted it as the inner type
            if self._is_new:
                raise SchemaError(f"No type: {_shown(kind)}, which is not the name of one")
            return self.type(kind, space)
        properties = {name: inner for name, inner in value.items() if name not in _TYPE_WORDS}
        if kind in PRIMITIVES:
            return Type(kind, properties=properties)
        if kind in NAMED:
            return self._named(kind, value, properties, space)
        if kind in ("array", "map"):
            word = "items" if kind == "array" else "values"
            if word not in value:
                raise SchemaError(f"{kind} without {word}: {_shown(value)}")
            return Type(kind, item=self.type(value[word], space), properties=properties)
        return self._reference(kind, space)

    def _reference(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not space else f"{space}.{name}"
        defined = self._known.get(full) or self._known.get(name)
        if defined is not None:
            return defined
        if not _is_name(full):
            raise SchemaError(f"Undefined name: {json.dumps(full)}")
        return self._awaited.setdefault(full, Type("", full))

    def _named(self, kind: str, value: dict[str, Any], properties: dict[str, Any], space: str) -> Type:
        name = _full_name(value, space)
        if self._is_new and name in PRIMITIVES:
            raise SchemaError(f"Schemas may not be named after primitive types: {name}")
        own = name.rpartition(".")[0]
        if name in self._open:
            raise SchemaError(f"Can't redefine: {name}")
        before = self._known.get(name)
        named = self._awaited.pop(name, None) or Type("", name)
        named.kind, named.doc, named.properties = kind, _text(value, "doc"), properties
        named.aliases = self._aliases(value, own)
        self._known[name] = named
        if kind == "fixed":
            size = value.get("size")
            if type(size) is not int or not 0 <= size <= SIZE_MAX:
                raise SchemaError(f"Invalid or no size: {_shown(value)}")
            named.size = size
        elif kind == "enum":
            _enum(named, value)
        else:
            self._open.add(name)
            self._fields(named, value, own)
            self._open.discard(name)
        if before is not None:
            if not _are_equal(before, named):
                raise SchemaError(f"Can't redefine: {name}")
            self._known[name] = before
            return before
        return named

    def _aliases(self, value: dict[str, Any], space: str) -> list[str]:
        aliases = []
        for alias in self._texts(value, "aliases"):
            full = alias if "." in alias or not space else f"{space}.{alias}"
            if self._is_new and not _NAME.fullmatch(full.rpartition(".")[2]):
                raise SchemaError(f"Illegal name: {alias}")
            aliases.append(full)
        return list(dict.fromkeys(aliases))

    def _fields(self, record: Type, value: dict[str, Any], space: str) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"Record has no fields: {_shown(value)}")
        names = set()
        for item in fields:
            field = self._field(item, space)
            if field.name in names:
                raise SchemaError(f"Duplicate field {field.name} in record {record.name}")
            names.add(field.name)
            record.fields.append(field)
            if field.has_default:
                self._defaults.append((record.name, field))

    def _field(self, value: Any, space: str) -> Field:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise SchemaError(f"No field name: {_shown(value)}")
        name = value["name"]
        if not _NAME.fullmatch(name):
            raise SchemaError(f"Illegal name: {name}")
        if "type" not in value:
            raise SchemaError(f"No field type: {_shown(value)}")
        order = value.get("order", ORDERS[0])
        if not isinstance(order, str) or order.lower() not in ORDERS:
            raise SchemaError(f"Illegal order: {order}")
        kind = self.type(value["type"], space)
        return Field(
            name, kind, _text(value, "doc"), "default" in value, _default(kind, value.get("default")),
            order.lower(), self._texts(value, "aliases"),
            {key: inner for key, inner in value.items() if key not in _FIELD_WORDS},
        )  # fmt: skip

    def _texts(self, value: dict[str, Any], name: str) -> list[str]:
        if name not in value or (not self._is_new and not value[name]):
            return []
        texts = value[name]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise SchemaError(f"{name} is a list of names, not {_shown(texts)}")
        return list(texts)


def _default(of: Type, value: Any) -> Any:
    """Return the default of a field: a float's or double's text becomes a number. Raises SchemaError."""
    if of.kind not in ("float", "double") or not isinstance(value, str):
        return value
    if not _NUMBER.fullmatch(value):
        raise SchemaError(f"Default value {_shown(value)} is no {of.kind}")
    return float(value)


class _Defaults:
    """Validation of defaults: a value may fit any branch of a union, and records may omit fields that have a default.

    Each value is checked once per record type, as nested defaults may lead to it again and again.
    """

    def __init__(self) -> None:
        self._judged: dict[tuple[int, int], bool] = {}

    def has_value(self, of: Type, value: Any) -> bool:
        """Return whether a value may be a default of a type."""
        kind = of.kind
        if kind == "union":
            return any(self.has_value(branch, value) for branch in of.branches)
        if kind in ("string", "bytes", "enum", "fixed"):
            return isinstance(value, str)
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            return type(value) is int and -(1 << bits) <= value < 1 << bits
        if kind in ("float", "double"):
            return isinstance(value, int | float) and not isinstance(value, bool)
        if kind == "null":
            return value is None
        if kind == "boolean":
            return isinstance(value, bool)
        if kind == "array":
            return isinstance(value, list) and all(self.has_value(of.inner, item) for item in value)
        if kind == "map":
            return isinstance(value, dict) and all(self.has_value(of.inner, item) for item in value.values())
        place = id(of), id(value)  # both objects live while the schema is parsed
        if place not in self._judged:
            self._judged[place] = isinstance(value, dict) and self._has_fields(of, value)
        return self._judged[place]

    def _has_fields(self, of: Type, value: dict[str, Any]) -> bool:
        for field in of.fields:
            if not field.has_default and field.name not in value:
                return False
            if not self.has_value(field.type, value.get(field.name, field.default)):
                return False
        return True


def _are_equal(before: Type, after: Type) -> bool:
    """Return whether two definitions of a name are equal, descriptive attributes aside."""
    return bool(_essence(before) == _essence(after))


def _essence(of: Type) -> Any:
    fields = [
        (
            field.name,
            _type_essence(field.type),
            field.has_default,
            json.dumps(field.default, sort_keys=True),
            field.order,
            field.properties,
        )
        for field in of.fields
    ]
    return of.kind, of.name, fields, of.symbols, of.size, of.default, of.properties


def _type_essence(of: Type) -> Any:
    item = None if of.item is None else _type_essence(of.item)
    return of.kind if not of.name else "", of.name, item, [*map(_type_essence, of.branches)], of.properties


def _full_name(value: dict[str, Any], space: str) -> str:
    name, own = value.get("name"), value.get("namespace")
    if not isinstance(name, str):
        raise SchemaError(f"No name in schema: {_shown(value)}")
    if "." not in name:
        own = own if isinstance(own, str) else space
        name = f"{own}.{name}" if own else name
    elif name.rfind(".") == 0:
        name = name[1:]
    if not _is_name(name):
        raise SchemaError(f"Illegal name: {name}")
    return name


def _union(branches: list[Type]) -> Type:
    seen = set()
    for branch in branches:
        if branch.kind == "union":
            raise SchemaError("Nested union")
        name = branch.name or branch.kind
        if name in seen:
            raise SchemaError(f"Duplicate in union: {name}")
        seen.add(name)
    return Type("union", branches=branches)


def _enum(enum: Type, value: dict[str, Any]) -> None:
    symbols = value.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise SchemaError(f"Enum has no symbols: {_shown(value)}")
    enum.symbols = list(symbols)
    enum.default = _text(value, "default")
    enum.properties.pop("default", None)
    for symbol in symbols:
        if not _NAME.fullmatch(symbol):
            raise SchemaError(f"Illegal name: {symbol}")
    if len(set(symbols)) < len(symbols):
        raise SchemaError(f"Duplicate enum symbol: {_shown(symbols)}")
    if enum.default is not None and enum.default not in symbols:
        raise SchemaError(f"The Enum Default: {enum.default} is not in the enum symbol set")


def _text(value: dict[str, Any], name: str) -> str | None:
    """Return an attribute that is text; None for other values."""
    text = value.get(name)
    return text if isinstance(text, str) else None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."

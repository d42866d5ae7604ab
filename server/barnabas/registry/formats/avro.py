"""Schemas of Avro: read and written by fastavro, compared by our own.

The rule: values are plain, not tagged by the types of unions; bytes are text of which each letter is one byte, as in Avro's
own JSON, and logical types stay the numbers and bytes that they are written as.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from barnabas.registry.errors import SchemaError
from barnabas.registry.formats import Dependency
from barnabas.registry.formats.avro_compatibility import breaks
from barnabas.registry.formats.avro_counting import EmptyValues
from barnabas.registry.formats.avro_reading import read
from barnabas.registry.formats.avro_types import Type, Writer

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def parse(text: str, dependencies: Sequence[Dependency], *, is_new: bool) -> AvroSchema:
    """Understand a schema. Raises SchemaError."""
    types: dict[str, Type] = {}
    for _, dependency in dependencies:
        read(dependency, types)
    referred = dict(types)
    return AvroSchema(read(text, types, is_new=is_new), referred)


class AvroSchema:
    """A schema of Avro, with the types that it refers to by name."""

    def __init__(self, root: Type, referred: dict[str, Type]) -> None:
        self.root = root
        self._referred = referred
        self.text = Writer(referred).text(root)
        self.canonical = self.text
        self._fast: Any = None
        self._empty: EmptyValues | None = None

    def normalized(self) -> str:
        """Return the schema with properties and aliases by name."""
        return Writer(self._referred, is_normal=True).text(self.root)

    def resolved(self) -> str:
        """Return the schema with all that it refers to in it."""
        return Writer({}).text(self.root)

    def breaks(self, writer: AvroSchema) -> list[str]:
        """Say why data of `writer` cannot always be read."""
        return breaks(self.root, writer.root)

    def decode(self, payload: bytes) -> Any:
        """Return the decoded value. Raises SchemaError."""
        if self._empty is None:
            self._empty = EmptyValues(self.root)
        if self._empty.there_are_any:
            self._empty.check(self.root, payload)
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, self._codec(), None)
        except Exception as error:  # whatever hostile bytes do to fastavro
            raise SchemaError(f"the data does not fit its schema: {error or type(error).__name__}") from None
        return _to_json(value)

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value. Raises SchemaError."""
        target = io.BytesIO()
        native = _from_json(self.root, value, "")
        try:
            fastavro.schemaless_writer(target, self._codec(), native, strict_allow_default=True)
        except Exception as error:
            raise SchemaError(f"the value does not fit the schema: {error or type(error).__name__}") from None
        return target.getvalue()

    def _codec(self) -> Any:
        if self._fast is None:
            try:
                self._fast = fastavro.parse_schema(_plain(self.root, set()), _ignore_default_error=True)
            except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
                raise SchemaError(str(error)) from None
        return self._fast


def _plain(of: Type, seen: set[str]) -> Any:
    """Return a type for fastavro: complete, without logical types."""
    if of.kind == "union":
        return [_plain(field, seen) for field in of.branches]
    if not of.name:
        if of.item is None:
            return of.kind
        return {"type": of.kind, "items" if of.kind == "array" else "values": _plain(of.item, seen)}
    if of.name in seen:
        return of.name
    seen.add(of.name)
    plain: dict[str, Any] = {"type": of.kind, "name": of.name}
    if of.kind == "fixed":
        return {**plain, "size": of.size}
    if of.kind == "enum":
        return {**plain, "symbols": of.symbols}
    fields = []
    for field in of.fields:
        default = {"default": field.default} if field.has_default else {}
        fields.append({"name": field.name, "type": _plain(field.type, seen), **default})
    return {**plain, "fields": fields}


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _from_json(of: Type, value: Any, path: str) -> Any:
    """Return a JSON value as fastavro expects it. Raises SchemaError, naming the place."""
    if of.kind == "union":
        return _branch(of, value, path)
    kind = of.kind
    if kind in ("bytes", "fixed"):
        try:
            if isinstance(value, str) and (kind == "bytes" or len(value) == of.size):
                return value.encode("latin-1")
        except UnicodeEncodeError:
            pass
    elif kind in ("float", "double"):
        if isinstance(value, str) and value in _SPECIAL:
            return _SPECIAL[value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        if type(value) is int and -(1 << bits) <= value < 1 << bits:
            return value
    elif kind == "array" and isinstance(value, list):
        return [_from_json(of.inner, item, f"{path}[{number}]") for number, item in enumerate(value)]
    elif kind == "map" and isinstance(value, dict):
        return {name: _from_json(of.inner, item, f"{path}.{name}") for name, item in value.items()}
    elif kind in ("record", "error") and isinstance(value, dict):
        return _record(of, value, path)
    elif (
        (kind == "null" and value is None)
        or (kind == "boolean" and isinstance(value, bool))
        or (kind == "string" and isinstance(value, str))
        or (kind == "enum" and value in of.symbols)
    ):
        return value
    raise SchemaError(f"{path.lstrip('.') or 'the value'} is no {of.name or kind}")


def _record(of: Type, value: dict[str, Any], path: str) -> dict[str, Any]:
    names = {field.name for field in of.fields}
    if unknown := sorted(value.keys() - names):
        raise SchemaError(f"{of.name} has no field {', '.join(unknown)}")
    record = {}
    for field in of.fields:
        if field.name in value:
            record[field.name] = _from_json(field.type, value[field.name], f"{path}.{field.name}")
        elif field.has_default:
            default = field.default
            record[field.name] = _from_json(field.type, default, f"{path}.{field.name}")
        else:
            raise SchemaError(f"{f'{path}.{field.name}'.lstrip('.')} is missing, and has no default")
    return record


def _branch(of: Type, value: Any, path: str) -> Any:
    """Return the value for the first matching branch; `{"branch": value}`, as in Avro's own JSON, names the branch."""
    if isinstance(value, dict) and len(value) == 1:
        [(name, inner)] = value.items()
        for branch in of.branches:
            if name == (branch.name or branch.kind):
                return _chosen(branch, _from_json(branch, inner, path))
    for branch in of.branches:
        try:
            return _chosen(branch, _from_json(branch, value, path))
        except SchemaError:
            continue
    raise SchemaError(
        f"{path.lstrip('.') or 'the value'} is none of {', '.join(branch.name or branch.kind for branch in of.branches)}"
    )


def _chosen(branch: Type, value: Any) -> Any:
    return (branch.name or branch.kind, value) if branch.name else value

"""Requests from plain values, in any version: fields that a version lacks are omitted.

    make("Metadata", 12, {"topics": [{"name": "events"}]})

The rule: names are those of the generated classes; a name that no version has is a mistake, and raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any

from barnabas.wire import registry
from barnabas.wire.errors import UnsupportedFieldError

Values = Mapping[str, Any]
_NESTED = re.compile(r"\b(\w+Request)\.(\w+)")


def make(name: str, version: int, values: Values) -> Any:
    """Return the request of an API. Raises KeyError, AttributeError for a name that there is not; EncodeError."""
    codec = registry.request_codec(registry.key_of(name))
    message = _filled(codec.message, values)
    while True:
        try:
            codec.encode_bytes(message, version)
        except UnsupportedFieldError as error:
            _reset(message, error.struct, error.field)
        else:
            return message


def _filled(cls: type, values: Values) -> Any:
    message = cls()
    nested = _nested(cls)
    for name, value in values.items():
        if name not in nested:
            raise AttributeError(f"{cls.__name__} has no field {name!r}")
        setattr(message, name, _value(nested[name], value))
    return message


def _value(cls: type | None, value: Any) -> Any:
    if cls is None or value is None:
        return value
    if isinstance(value, list):
        return [_value(cls, item) for item in value]
    return _filled(cls, value) if isinstance(value, Mapping) else value


@cache
def _nested(cls: type) -> dict[str, type | None]:
    """The fields of a message, and the class of their items where that is a message too."""
    outer = getattr(__import__(cls.__module__, fromlist=["_"]), cls.__qualname__.partition(".")[0])
    classes: dict[str, type | None] = {}
    for field in fields(cls):
        match = _NESTED.search(str(field.type))
        classes[field.name] = getattr(outer, match[2]) if match else None
    return classes


def _default(of: Field[Any]) -> Any:
    if of.default_factory is not MISSING:
        return of.default_factory()
    return of.default


def _reset(message: Any, struct: str, name: str) -> None:
    """Give a field its default, in all messages of this class."""
    for field in fields(message):
        value = getattr(message, field.name)
        if type(message).__name__ == struct and field.name == name:
            setattr(message, name, _default(field))
        elif isinstance(value, list):
            for item in value:
                if is_dataclass(item):
                    _reset(item, struct, name)
        elif is_dataclass(value):
            _reset(value, struct, name)

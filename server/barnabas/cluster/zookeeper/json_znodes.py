"""JSON of znodes: reading it with errors that name the znode. Pure.

The rule: reading a znode with any content returns values of the requested types, or raises ZnodeError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

SHOWN_BYTES_MAX = 200
INT32_MAX = 2**31 - 1
SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Znodes below these paths have secrets: messages do not show their content."""


def is_secret(path: str) -> bool:
    """Return whether a znode may hold secrets."""
    return path.startswith(SENSITIVE_ROOTS)


class ZnodeError(ValueError):
    """The content of a znode is invalid; the message names the znode and shows the content, unless that may be secret."""

    def __init__(self, path: str, why: str, data: bytes = b"") -> None:
        is_shown = bool(data) and not is_secret(path)
        held = f", it holds {data[:SHOWN_BYTES_MAX]!r}" if is_shown else ""
        more = " and more" if is_shown and len(data) > SHOWN_BYTES_MAX else ""
        super().__init__(f"znode {path}: {why}{held}{more}")
        self.path = path


def encode(value: Mapping[str, Any]) -> bytes:
    """The JSON of an object, without spaces, as Kafka writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def read(path: str, data: bytes) -> Fields:
    """The object in a znode. Raises ZnodeError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError too
        raise ZnodeError(path, f"it is not JSON ({error})", data) from error
    return Fields(path, value, data)


class Fields:
    """A JSON object of a znode, with fields that are read by their types."""

    __slots__ = ("_data", "_value", "path")

    def __init__(self, path: str, value: Any, data: bytes) -> None:
        self.path = path
        self._data = data
        if not isinstance(value, dict):
            raise self._error(f"a JSON object is expected, not {type(value).__name__}")
        self._value: dict[str, Any] = value

    def _error(self, why: str) -> ZnodeError:
        return ZnodeError(self.path, why, self._data)

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def names(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(self._value)

    def wrong(self, name: str, expected: str) -> ZnodeError:
        """Return the error of a field with an unexpected value."""
        value = self._value.get(name)
        if value is None:
            return self._error(f'"{name}" is missing')
        shown = "" if is_secret(self.path) else f", not {value!r:.80}"
        return self._error(f'"{name}" must be {expected}{shown}')

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer, also if it is written as text, as some versions do."""
        value = self._value.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii() and len(value) < 20:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
            raise self.wrong(name, "an integer")
        return value

    def int32(self, name: str, default: int | None = None) -> int:
        """An integer of 32 bits."""
        value = self.integer(name, default)
        if not -INT32_MAX - 1 <= value <= INT32_MAX:
            raise self.wrong(name, "an integer of 32 bits")
        return value

    def version(self, latest: int, *, is_strict: bool = False) -> int:
        """The version of the layout, at least 1. A version above `latest` is read as `latest`, unless `is_strict`."""
        version = self.int32("version")
        if version < 1 or (is_strict and version > latest):
            raise self.wrong("version", f"from 1 to {latest}")
        return version

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self._value.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, None if it is missing."""
        return self.text(name) if name in self else None

    def ids(self, name: str) -> tuple[int, ...]:
        """A list of broker ids."""
        value = self._value.get(name)
        if not isinstance(value, list) or not all(
            isinstance(broker_id, int) and not isinstance(broker_id, bool) and -1 <= broker_id <= INT32_MAX
            for broker_id in value
        ):
            raise self.wrong(name, "a list of broker ids")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._value.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts")
        return tuple(value)

    def object(self, name: str) -> Fields:
        """An object; empty if it is missing."""
        value = self._value.get(name)
        if not isinstance(value, dict | None):
            raise self.wrong(name, "an object")
        return Fields(self.path, value or {}, self._data)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return [Fields(self.path, item, self._data) for item in value]

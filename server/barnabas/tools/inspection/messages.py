"""Requests and answers as JSON: field names as in Python, ids as Kafka's tools show them, secrets masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from barnabas.wire.ids import uuid_text
from barnabas.wire.primitives import ZERO_UUID
from barnabas.wire.regions import FileRegion

ENTRIES_MAX = 1000
"""Entries of arrays shown of one message by default."""
TEXT_CHARACTERS_MAX = 1000
SECRETS = frozenset(("auth_bytes", "hmac", "salted_password", "salt", "session_token", "password"))
"""Fields that hold credentials."""
MASK = "***"
_SECRET_SETTINGS = ("password", "secret", "jaas", "keystore.key", "credential")


class UnreadRecords:
    """Records that were not decoded; their length is known."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"UnreadRecords({self.size})"


Data = bytes | bytearray | memoryview | FileRegion | UnreadRecords
RecordsAsJson = Callable[[Data], Any]
"""Shows the records of a partition."""


def is_secret_setting(name: object) -> bool:
    """Return whether the value of a setting with this name must not be shown."""
    text = str(name or "")
    return any(word in text for word in _SECRET_SETTINGS)


def as_json(
    message: Any, *, entries_max: int = ENTRIES_MAX, records: RecordsAsJson | None = None
) -> dict[str, Any]:
    """Return a message as JSON; records are counted, or shown by `records`.

    Arrays keep `entries_max` entries in total; "..." replaces omitted ones.
    """
    shown: dict[str, Any] = _Shown(entries_max, records).shown(message, "")
    return shown


class _Shown:
    """A message being converted to JSON."""

    __slots__ = ("_entries_left", "_records")

    def __init__(self, entries_max: int, records: RecordsAsJson | None) -> None:
        self._entries_left = entries_max
        self._records = records

    def shown(self, value: Any, name: str) -> Any:
        """Return a value of the field `name` as JSON."""
        if value is None or isinstance(value, int | float):
            return value
        if is_dataclass(value):
            return self._struct(value)
        if name in SECRETS and value:
            return MASK
        if isinstance(value, str):
            return value[:TEXT_CHARACTERS_MAX]
        if isinstance(value, list):
            return self._array(value, name)
        if isinstance(value, dict):
            return {str(key): self.shown(inner, name) for key, inner in value.items()}
        if isinstance(value, bytes | bytearray | memoryview | FileRegion | UnreadRecords):
            return self._bytes(value, name)
        return value

    def _struct(self, value: Any) -> dict[str, Any]:
        is_secret = is_secret_setting(getattr(value, "name", ""))
        shown = {}
        for field in fields(value):
            name = field.name
            inner = getattr(value, name)
            if name == "unknown_tagged_fields" and inner is None:
                continue
            shown[name] = MASK if is_secret and name == "value" and inner else self.shown(inner, name)
        return shown

    def _array(self, value: list[Any], name: str) -> list[Any]:
        items = []
        for item in value:
            if self._entries_left <= 0:
                items.append("...")
                break
            self._entries_left -= 1
            items.append(self.shown(item, name))
        return items

    def _bytes(self, value: Data, name: str) -> Any:
        """Return an id as text, records by the chosen view, and the size of anything else."""
        if isinstance(value, bytes) and len(value) == len(ZERO_UUID) and name.endswith("id"):
            return uuid_text(value)
        if name == "records" and self._records is not None:
            return self._records(value)
        return {"bytes": len(value)}

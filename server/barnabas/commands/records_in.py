"""Records on input as people and programs write them: lines, with keys before a separator, and JSON.

The rule: the output of `consume --json` is read back as the same record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from barnabas.tools.inspection.plain_records import bytes_of

_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for separating records, and keys from values."""

    delimiter: bytes = b"\n"
    key_separator: bytes | None = None
    empty_is_null: bool = False
    is_json: bool = False
    is_whole: bool = False
    """True if each file is one record."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A record that was read."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int | None = None


def line_record(text: bytes, reading: Reading) -> Parsed:
    """Read a line. Raises ValueError for one without a separator where keys are expected."""
    key: bytes | None = None
    if reading.key_separator is not None:
        key, separator, text = text.partition(reading.key_separator)
        if not separator:
            raise ValueError(f"{key[:80]!r} has no separator {reading.key_separator!r}")
    if reading.empty_is_null:
        return Parsed(text or None, key or None)
    return Parsed(text, key)


def json_record(text: bytes) -> Parsed:
    """Read a record that is a JSON object. Raises ValueError."""
    value: Any = json.loads(text)
    if not isinstance(value, dict) or not value.keys() <= set(_FIELDS):
        raise ValueError(f"an object with some of {', '.join(_FIELDS)} is expected")
    timestamp = value.get("timestamp")
    if timestamp is not None and (type(timestamp) is not int or timestamp < -1):
        raise ValueError(f"timestamp {timestamp!r} is no number of ms")
    headers = value.get("headers") or []
    if isinstance(headers, dict):
        headers = [headers]
    if not isinstance(headers, list) or not all(isinstance(header, dict) for header in headers):
        raise ValueError("headers are a list of objects")
    return Parsed(
        bytes_of(value.get("value")),
        bytes_of(value.get("key")),
        [(name, bytes_of(text)) for entry in headers for name, text in entry.items()],
        None if timestamp == -1 else timestamp,
    )

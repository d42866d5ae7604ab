"""Rows: the tool's output as flat dictionaries, printed as lines of text or of JSON.

The rule: a check yields rows and knows nothing of the format; bytes stay bytes until here.

In JSON, bytes that are text become a string, others `{"base64": "..."}`; each row is one line.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from barnabas.log.format.properties import UUID_SIZE, encode_uuid

Row = dict[str, Any]
KIND = "kind"
_OF_IDS = ("log_dirs", "directories")
"""Fields of messages with a list of ids."""


def plain(value: Any) -> Any:
    """Convert a value to JSON types: messages into dictionaries, bytes into text or base64."""
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, str):
        return value if _is_utf8(value) else _plain_bytes(value.encode("utf-8", "surrogateescape"))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _plain_bytes(bytes(value))
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {
            name: plain(_with_uuids(name, inner))
            for name, inner in pairs
            if name != "unknown_tagged_fields" or inner  # almost always empty, and then only noise
        }
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [plain(inner) for inner in value]
    raise TypeError(f"no row can hold {value!r}")


def _with_uuids(name: str, value: Any) -> Any:
    """Return a field of a message, with ids of topics, log dirs and similar in Kafka's text form."""
    if name.endswith(_OF_IDS) and isinstance(value, list):
        return [_with_uuids("id", item) for item in value]
    if name.split("_")[-1] == "id" and isinstance(value, bytes) and len(value) == UUID_SIZE:
        return encode_uuid(value)
    return value


def _plain_bytes(data: bytes) -> str | dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(char.isprintable() or char in "\t\n\r" for char in text):
        return text
    return {"base64": b64encode(data).decode()}


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def to_json(row: Row) -> str:
    """The row as one line of JSON."""
    return _dumps(plain(row))


def to_text(row: Row) -> str:
    """Return the row as one line: its kind, then `name=value` for each field; absent values are omitted."""
    parts = [str(row[KIND])]
    for name, value in row.items():
        if name != KIND and value is not None:
            parts.append(f"{name}={_word(plain(value))}")
    return " ".join(parts)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value if value and value.isprintable() and not set(value) & set(' "=') else _dumps(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, int | float) else _dumps(value)


def _dumps(value: Any) -> str:
    """Return readable JSON without characters that a terminal would obey."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)

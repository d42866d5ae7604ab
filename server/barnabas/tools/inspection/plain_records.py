"""Records as plain values that can be written as JSON.

The rule: keys, values and headers are texts where they are UTF-8, and `{"base64": ...}` otherwise.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from typing import Any

JsonObject = dict[str, Any]


def plain(data: bytes | None) -> str | JsonObject | None:
    """Return bytes as text where they are UTF-8, as base64 otherwise."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def plain_headers(headers: list[tuple[str, bytes | None]]) -> list[JsonObject]:
    """Return headers as plain values: one object for each, as names may be repeated."""
    return [{name: plain(value)} for name, value in headers]


def bytes_of(value: object) -> bytes | None:
    """Return the bytes of a value that `plain` has made a text or an object; other JSON as its text. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (Error, TypeError, ValueError):
            raise ValueError(f"{value['base64']!r} is not base64") from None
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

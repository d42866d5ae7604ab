"""Records for filters: keys, values and headers as texts, and as the JSON values of these texts. Pure.

The rule: a payload is parsed once, when a condition first needs it; a payload that is not JSON has no JSON value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PARSED_BYTES_MAX = 4 << 20
"""Size of a payload from which on its JSON is not read."""
MISSING: Any = object()
"""The value of a payload that is not JSON, and of a path without a value."""


class Content:
    """A key, value or header: the bytes of its text, None for null."""

    __slots__ = ("_value", "data")

    def __init__(self, data: bytes | None, value: Any = MISSING) -> None:
        """`value` is the JSON value where a schema has read it already."""
        self.data = data
        self._value = [value] if value is not MISSING else []

    @property
    def value(self) -> Any:
        """The JSON value of the text; MISSING for a text that is not JSON, and for null."""
        if not self._value:
            self._value.append(_parsed(self.data))
        return self._value[0]

    @property
    def text(self) -> str | None:
        """The text, None for null."""
        return None if self.data is None else self.data.decode("utf-8", "replace")


def _parsed(data: bytes | None) -> Any:
    if data is None or len(data) > PARSED_BYTES_MAX:
        return MISSING
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        return MISSING


@dataclass(frozen=True, slots=True)
class Fields:
    """A record: `timestamp` in ms since 1970, negative without one."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Content
    value: Content
    headers: Sequence[tuple[str, Content]]

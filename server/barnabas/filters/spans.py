"""The characters that a value has in the text of JSON. Pure.

The rule: the text has been parsed before, so it is JSON; of a name that an object has twice, the last counts, as in `json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from json import JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]

_BLANKS = " \t\n\r"
_value_at = JSONDecoder().raw_decode


def span_of(text: str, steps: Iterable[str | int]) -> tuple[int, int]:
    """Return where the value of a path begins and ends."""
    start = _skip(text, 0)
    for step in steps:
        start = _entries(text, start)[step]
    return start, _value_at(text, start)[1]


def _entries(text: str, at: int) -> dict[str | int, int]:
    """Return where the values of the object or array at a place begin, by name or number."""
    is_object = text[at] == "{"
    starts: dict[str | int, int] = {}
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        name: str | int = len(starts)
        if is_object:
            name, at = scanstring(text, at + 1)
            at = _skip(text, _skip(text, at) + 1)
        starts[name] = at
        at = _skip(text, _value_at(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
    return starts


def _skip(text: str, at: int) -> int:
    """Return the place of the next character that is not blank."""
    while text[at] in _BLANKS:
        at += 1
    return at

"""The JSON of schemas: strict JSON, except for the comments that Avro's own library accepts.

The rule: all responses are JSON that every client reads, so texts that are not JSON, such as `NaN`, are refused as input.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from barnabas.registry.errors import SchemaError

_OPENINGS = re.compile('["/]')
_WITHIN_TEXT = re.compile(r'["\\]')


def read_json(text: str, *, is_strict: bool = True, is_avro: bool = False) -> Any:
    """Return the parsed value; `is_strict` refuses NaN and Infinity, which are not JSON.

    `is_avro` accepts comments, and numbers that are too large for a double as infinite, as Avro's own library does.
    Raises SchemaError.
    """
    try:
        return json.loads(
            _without_comments(text) if is_avro else text,
            parse_constant=_refuse if is_strict else None,
            parse_float=_finite if is_strict and not is_avro else None,
        )
    except (ValueError, RecursionError):
        raise SchemaError("it is not JSON") from None


def write_json(value: Any, *, is_sorted: bool = False) -> str:
    """Return JSON without blanks; a number that JSON lacks is written as text, as by Avro's own library."""
    try:
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted, allow_nan=False
        )
    except ValueError:
        return write_json(_with_named_numbers(value), is_sorted=is_sorted)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _with_named_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_named_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_named_numbers(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _without_comments(text: str) -> str:
    """Return a text with a blank in place of each comment, except a comment after the value, which Avro refuses, too."""
    if "/*" not in text and "//" not in text:
        return text
    pieces = []
    begin = at = 0
    while opening := _OPENINGS.search(text, at):
        at = opening.start()
        if text[at] == '"':
            at = _end_of_text(text, at + 1)
            continue
        closing = {"/*": "*/", "//": "\n"}.get(text[at : at + 2])
        if closing is None:
            at += 1
            continue
        pieces += [text[begin:at], " "]
        end = text.find(closing, at + 2)
        if end < 0:
            break
        begin = at = end + len(closing)
    if not text[begin:].strip():
        raise ValueError("it ends with a comment")
    return "".join([*pieces, text[begin:]])


def _end_of_text(text: str, at: int) -> int:
    """Return the end of a string, given the position of its first character."""
    while mark := _WITHIN_TEXT.search(text, at):
        if mark.group() == '"':
            return mark.end()
        at = mark.end() + 1
    return len(text)

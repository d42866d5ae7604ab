"""Text for people at a terminal: foreign text is shown and never obeyed, and numbers agree with their nouns.

The rule: all text from records, names or responses passes here before a terminal gets it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_COMMANDS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
"""Control characters but tab and line feed, and those that turn the direction of text round."""
_OBEYED = re.compile(f"[{_COMMANDS}\udc80-\udcff]")
_OBEYED_IN_JSON = re.compile(f"[{_COMMANDS}]")


def visible(text: str) -> str:
    """Return a name or a message as one line: unprintable characters are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def visible_lines(text: str) -> str:
    """Return a message that may have several lines and tabs, with control sequences of a terminal escaped."""
    return _OBEYED.sub(_escaped, text)


def visible_data(data: bytes) -> bytes:
    """Return a key, a value or a header with control sequences of a terminal escaped; lines and tabs stay."""
    if data.isascii() and data.isalnum():
        return data
    return visible_lines(data.decode("utf-8", "surrogateescape")).encode()


def _escaped(char: re.Match[str]) -> str:
    code = ord(char[0])
    if code >= 0xDC80:  # a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible_json(value: Any, indent: int | None = None) -> str:
    """Return equivalent JSON for people and programs alike, without a character that a terminal would obey."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _OBEYED_IN_JSON.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 record`, `2 records`, `1 reply`, `2 replies` where the plural is given."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
